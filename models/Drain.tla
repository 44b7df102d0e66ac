------------------------------- MODULE Drain -------------------------------
(* The drain protocol: outbox rows to Kafka records, once and in order.

   Three stores take part: the outbox table of a database that may lose its last commits, the topic behind a broker, and
   the memory of the owners, which may be lost at any moment. Requests that end a transaction may reach the broker late,
   and more than once. All rows have one key, so that their order is the order of the topic.

   What a step does is done in the code by the function that is named beside it ("does:"); a test looks them up. What is
   left out: several shards, several topics, parking of refused records, transactions of publishers that commit in
   another order than their ids (a property of relay/scan.py), and the time of every wait.

   Defects is a set of names: each takes one part of the protocol away, and TLC must find what it was for. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Owners,      \* instances of the relay
          Rows,        \* how many rows publishers commit
          BatchSize,   \* rows in one transaction
          Terms,       \* how often each transactional id may be initialised
          Losses,      \* how often the database loses its last commits
          Repeats,     \* how many requests the client sends twice
          Aborts,      \* how many transactions are aborted by their owner
          Defects

VARIABLES table,       \* rows: an id, which a database may give out again, and an event, which is unique
          lastId,
          events,      \* how many events were ever committed
          session,     \* of the database; a new one after it went back
          replica,     \* the table and last id that remain if the last commits are lost
          lost,        \* events that the database has lost
          returned,    \* published events whose purge the database has lost, and that may be published again
          losses, repeats, aborts,
          epoch,       \* of each transactional id
          open,        \* the transaction of each id: records that have arrived, and the marker if it has
          topic,       \* committed records
          marker,      \* the last committed marker
          net,         \* EndTxn requests on their way
          owner

vars == <<table, lastId, events, session, replica, lost, returned, losses, repeats, aborts, epoch, open, topic, marker,
          net, owner>>
database == <<table, lastId, events, session, replica, lost, returned, losses>>
broker == <<epoch, open, topic, marker, net, repeats>>

Ids == {"a", "b"}
None == <<>>
NoMarker == [rows |-> {}, batch |-> None]
Fresh == [stage |-> "idle", epochs |-> [id \in Ids |-> 0], turn |-> "a", seen |-> NoMarker, batch |-> <<>>,
          left |-> <<>>, unpurged |-> {}, session |-> 0, term |-> 0, count |-> 0, last |-> None, spent |-> {},
          renews |-> FALSE, answer |-> "none"]
(* `spent`: ids of whose last transaction a request may still be on its way. *)

Has(defect) == defect \in Defects
Range(sequence) == {sequence[index] : index \in 1..Len(sequence)}
EventsOf(rows) == {row.event : row \in rows}
IdsOf(rows) == {row.id : row \in rows}
Published == Range(topic)
Least(rows) == CHOOSE row \in rows : \A other \in rows : row.id <= other.id
RECURSIVE Oldest(_, _)
Oldest(rows, count) ==
  IF rows = {} \/ count = 0 THEN <<>> ELSE LET row == Least(rows) IN <<row>> \o Oldest(rows \ {row}, count - 1)
Other(id) == IF id = "a" THEN "b" ELSE "a"

Init ==
  /\ table = {} /\ lastId = 0 /\ events = 0 /\ session = 1 /\ replica = [table |-> {}, lastId |-> 0]
  /\ lost = {} /\ returned = {} /\ losses = 0 /\ repeats = 0 /\ aborts = 0
  /\ epoch = [id \in Ids |-> 0] /\ open = [id \in Ids |-> None] /\ topic = <<>> /\ marker = NoMarker /\ net = {}
  /\ owner = [o \in Owners |-> Fresh]

Become(o, fields) == owner' = [owner EXCEPT ![o] = fields @@ owner[o]]
Drop(o) == owner' = [owner EXCEPT ![o] = Fresh]

----------------------------------------------------------------------------
(* Publishers and the database *)

Insert ==  \* does: inorder.outbox.outbox:Outbox.publish
  /\ events < Rows
  /\ events' = events + 1 /\ lastId' = lastId + 1
  /\ table' = table \cup {[id |-> lastId + 1, event |-> events + 1]}
  /\ UNCHANGED <<session, replica, lost, returned, losses, aborts, owner>> /\ UNCHANGED broker

Replicate ==  \* the replica receives what is committed
  /\ losses < Losses /\ replica # [table |-> table, lastId |-> lastId]
  /\ replica' = [table |-> table, lastId |-> lastId]
  /\ UNCHANGED <<table, lastId, events, session, lost, returned, losses, aborts, owner>> /\ UNCHANGED broker

IsQuiet == net = {} /\ \A o \in Owners : owner[o].stage = "idle"

GoBack ==  \* the replica is promoted: all sessions end; ids are given out again
  /\ losses < Losses /\ losses' = losses + 1
  /\ table' = replica.table /\ lastId' = replica.lastId /\ session' = session + 1
  /\ lost' = lost \cup (EventsOf(table) \ EventsOf(replica.table))
  /\ returned' = returned \cup {event \in EventsOf(replica.table) \ EventsOf(table) :
                                event \in Published /\ ~(IsQuiet /\ event \in EventsOf(marker.rows))}
  /\ UNCHANGED <<events, replica, aborts, owner>> /\ UNCHANGED broker

----------------------------------------------------------------------------
(* Taking over: the fence, the marker, the purge by the marker *)

Fence(o, id) ==
  /\ epoch[id] < Terms
  /\ IF Has("NoFence") \/ (Has("OneFence") /\ id = "b") THEN UNCHANGED <<epoch, open>>
     ELSE epoch' = [epoch EXCEPT ![id] = @ + 1] /\ open' = [open EXCEPT ![id] = None]
  /\ UNCHANGED <<topic, marker, net, repeats, aborts>> /\ UNCHANGED database

InitFirst(o) ==  \* does: inorder.kafka.fenced_producer:FencedProducer.__init__
  LET me == owner[o] IN
  /\ me.stage \in {"idle", "renew"}
  /\ Fence(o, "a")
  /\ Become(o, [stage |-> "first", epochs |-> [me.epochs EXCEPT !["a"] = epoch'["a"]], seen |-> marker,
                renews |-> me.stage = "renew"])

InitSecond(o) ==  \* does: inorder.relay.stores.kafka_log:KafkaShardLog._initialise
  LET me == owner[o] IN
  /\ me.stage = "first"
  /\ Fence(o, "b")
  /\ Become(o, [stage |-> "second", epochs |-> [me.epochs EXCEPT !["b"] = epoch'["b"]]])

ReadMarker(o) ==  \* does: inorder.relay.stores.kafka_log:KafkaShardLog.take_over
  LET me == owner[o]  seen == IF Has("MarkerBeforeFence") THEN me.seen ELSE marker IN
  /\ me.stage = "second" /\ ~me.renews
  /\ Become(o, [stage |-> "purge", seen |-> seen, last |-> seen.batch, term |-> me.epochs["a"], count |-> 0,
                turn |-> IF Has("SecondIdFirst") THEN "b" ELSE "a"])
  /\ UNCHANGED <<aborts>> /\ UNCHANGED broker /\ UNCHANGED database

Renewed(o) ==  \* does: inorder.relay.stores.kafka_log:KafkaShardLog._renew
  LET me == owner[o] IN
  /\ me.stage = "second" /\ me.renews
  /\ IF marker.batch = me.last \/ Has("RenewalWithoutCheck")
     THEN Become(o, [stage |-> "send", turn |-> "a", spent |-> {}, renews |-> FALSE])
     ELSE Drop(o)
  /\ UNCHANGED <<aborts>> /\ UNCHANGED broker /\ UNCHANGED database

Remove(rows, isSameSession) ==
  IF isSameSession \/ Has("PurgeById") THEN {row \in table : row.id \notin IdsOf(rows)} ELSE table \ rows

PurgeMarker(o) ==  \* does: inorder.relay.purge_queue:purge_marker
  LET me == owner[o] IN
  /\ me.stage = "purge"
  /\ table' = Remove(me.seen.rows, FALSE)
  /\ Become(o, [stage |-> "own", session |-> session, seen |-> NoMarker])
  /\ UNCHANGED <<lastId, events, session, replica, lost, returned, losses, aborts>> /\ UNCHANGED broker

----------------------------------------------------------------------------
(* One batch *)

Read(o) ==  \* does: inorder.relay.drain:DrainClaims.claim
  LET me == owner[o]
      free == {row \in table : row.id \notin IdsOf(me.unpurged)}
      batch == Oldest(free, BatchSize)
  IN
  /\ me.stage = "own" /\ free # {}
  /\ IF me.session # session THEN Drop(o)  \* the connection is lost, which ends the term
     ELSE Become(o, [stage |-> IF me.turn \in me.spent THEN "renew" ELSE "send", batch |-> batch, left |-> batch,
                     count |-> me.count + 1, answer |-> "none"])
  /\ UNCHANGED <<aborts>> /\ UNCHANGED broker /\ UNCHANGED database

IsCurrent(me) == me.epochs[me.turn] = epoch[me.turn]
Transaction(id) == IF open[id] = None THEN [records |-> <<>>, marker |-> None] ELSE open[id]
Name(o) == <<o, owner[o].term, owner[o].count>>
Marker(o) ==
  [rows |-> Range(owner[o].batch) \cup (IF Has("MarkerForgets") THEN {} ELSE owner[o].unpurged), batch |-> Name(o)]

Produce(o) ==  \* does: inorder.kafka.sender:RowSender.send
  LET me == owner[o]  now == Transaction(me.turn) IN
  /\ me.stage = "send" /\ me.left # <<>>
  /\ IF ~IsCurrent(me) THEN Drop(o) /\ UNCHANGED <<open, marker>>
     ELSE /\ open' = [open EXCEPT ![me.turn] = [now EXCEPT !.records = Append(@, Head(me.left).event)]]
          /\ Become(o, [left |-> Tail(me.left)])
          /\ marker' = IF Has("MarkerBeforeRecords") /\ me.left = me.batch THEN Marker(o) ELSE marker
  /\ UNCHANGED <<epoch, topic, net, repeats, aborts>> /\ UNCHANGED database

InTransaction == Defects \cap {"NoMarker", "MarkerBeforeRecords", "MarkerAfterCommit"} = {}

Commit(o) ==  \* does: inorder.relay.stores.kafka_log:KafkaShardLog._commit
  LET me == owner[o]  now == Transaction(me.turn) IN
  /\ me.stage = "send" /\ me.left = <<>>
  /\ IF ~IsCurrent(me) THEN Drop(o) /\ UNCHANGED <<open, net>>
     ELSE /\ open' = [open EXCEPT ![me.turn] = IF InTransaction THEN [now EXCEPT !.marker = Marker(o)] ELSE now]
          /\ net' = net \cup {[id |-> me.turn, epoch |-> me.epochs[me.turn], ends |-> "commit"]}
          /\ Become(o, [stage |-> "wait"])
  /\ UNCHANGED <<epoch, topic, marker, repeats, aborts>> /\ UNCHANGED database

Abort(o) ==  \* does: inorder.relay.stores.kafka_log:KafkaShardLog._abort
  LET me == owner[o] IN
  /\ me.stage = "send" /\ me.left # me.batch /\ aborts < Aborts
  /\ aborts' = aborts + 1
  /\ net' = net \cup {[id |-> me.turn, epoch |-> me.epochs[me.turn], ends |-> "abort"]}
  /\ Become(o, [stage |-> "aborts"])
  /\ UNCHANGED <<epoch, open, topic, marker, repeats>> /\ UNCHANGED database

Ends(request, stays) ==
  LET now == open[request.id]
      isCurrent == request.epoch = epoch[request.id]
      commits == isCurrent /\ now # None /\ request.ends = "commit"
      waits == {o \in Owners : owner[o].stage = (IF request.ends = "commit" THEN "wait" ELSE "aborts")
                               /\ owner[o].turn = request.id /\ owner[o].epochs[request.id] = request.epoch}
  IN
  /\ topic' = IF commits THEN topic \o now.records ELSE topic
  /\ marker' = IF commits /\ now.marker # None THEN now.marker ELSE marker
  /\ open' = IF isCurrent THEN [open EXCEPT ![request.id] = None] ELSE open
  /\ net' = IF stays THEN net ELSE net \ {request}
  /\ owner' = [o \in Owners |-> IF o \notin waits \/ ~isCurrent THEN owner[o]
                                ELSE [owner[o] EXCEPT !.answer = IF stays THEN "late" ELSE "prompt"]]
  /\ UNCHANGED <<epoch, aborts>> /\ UNCHANGED database

Arrives ==  \* the broker ends a transaction, or refuses an old epoch
  \E request \in net : Ends(request, FALSE) /\ UNCHANGED repeats

ArrivesAndStays ==  \* the client has repeated the request: a copy is still on its way
  \E request \in net : repeats < Repeats /\ repeats' = repeats + 1 /\ Ends(request, TRUE)

Answered(o) ==  \* does: inorder.kafka.fenced_producer:FencedProducer.commit
  LET me == owner[o]  spent == IF me.answer = "late" /\ ~Has("NoRenewal") THEN {me.turn} ELSE {} IN
  /\ me.stage = "wait" /\ me.answer # "none"
  /\ Become(o, [stage |-> "own", unpurged |-> me.unpurged \cup Range(me.batch), batch |-> <<>>, last |-> Name(o),
                turn |-> Other(me.turn), spent |-> me.spent \cup spent, answer |-> "none"])
  /\ marker' = IF Has("MarkerAfterCommit") THEN Marker(o) ELSE marker
  /\ UNCHANGED <<epoch, open, topic, net, repeats, aborts>> /\ UNCHANGED database

Aborted(o) ==  \* does: inorder.kafka.fenced_producer:FencedProducer.abort
  LET me == owner[o]  spent == IF me.answer = "late" /\ ~Has("NoRenewal") THEN {me.turn} ELSE {} IN
  /\ me.stage = "aborts" /\ me.answer # "none"
  /\ Become(o, [stage |-> IF spent # {} THEN "renew" ELSE "send", left |-> me.batch, spent |-> me.spent \cup spent,
                answer |-> "none"])
  /\ UNCHANGED <<aborts>> /\ UNCHANGED broker /\ UNCHANGED database

Unanswered(o) ==  \* does: inorder.relay.stores.kafka_log:KafkaShardLog.close
  /\ owner[o].stage \in {"wait", "aborts"}
  /\ Drop(o)  \* the outcome is unknown: it takes over from itself
  /\ UNCHANGED <<aborts>> /\ UNCHANGED broker /\ UNCHANGED database

Purge(o, isConfirmed) ==  \* does: inorder.relay.purge_queue:purge_rows
  LET me == owner[o]
      early == IF Has("PurgeBeforeCommit") /\ me.stage = "wait" THEN Range(me.batch) ELSE {}
      rows == me.unpurged \cup early
  IN
  /\ me.stage # "idle" /\ rows # {}
  /\ table' = Remove(rows, me.session = session)
  /\ Become(o, [unpurged |-> IF isConfirmed THEN {} ELSE me.unpurged])
  /\ UNCHANGED <<lastId, events, session, replica, lost, returned, losses, aborts>> /\ UNCHANGED broker

Crash(o) ==  \* does: inorder.relay.loop:LeaderLoop.run
  /\ owner[o].stage # "idle" /\ Drop(o)
  /\ UNCHANGED <<aborts>> /\ UNCHANGED broker /\ UNCHANGED database

----------------------------------------------------------------------------
Next ==
  \/ Insert \/ Replicate \/ GoBack \/ Arrives \/ ArrivesAndStays
  \/ \E o \in Owners :
       \/ InitFirst(o) \/ InitSecond(o) \/ ReadMarker(o) \/ Renewed(o) \/ PurgeMarker(o)
       \/ Read(o) \/ Produce(o) \/ Commit(o) \/ Abort(o) \/ Answered(o) \/ Aborted(o) \/ Unanswered(o)
       \/ Purge(o, TRUE) \/ Purge(o, FALSE) \/ Crash(o)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* Guarantees. guarantee: names the claim of docs/guarantees.md. *)

\* guarantee: Nothing is published twice when the owner dies between commit and purge.
\* guarantee: Two owners at once double nothing.
\* guarantee: A take-over that dies between its two transactional ids loses and doubles nothing.
NothingIsPublishedTwice ==
  \A one, two \in 1..Len(topic) : topic[one] = topic[two] => one = two \/ topic[one] \in returned

\* guarantee: A database that goes back in time loses no row unsent
NothingIsLost == \A event \in 1..events : event \in Published \cup EventsOf(table) \cup lost

\* guarantee: Records of a key keep their order.
RecordsKeepTheirOrder ==
  \A one, two \in 1..Len(topic) :
    one < two /\ topic[one] \notin returned /\ topic[two] \notin returned => topic[one] <= topic[two]

\* What is committed without being named by a marker could be published again.
MarkerNamesWhatMayBeInTheTable ==
  \A row \in table : row.event \in Published \ returned =>
    \/ row \in marker.rows
    \/ \E o \in Owners : row \in owner[o].unpurged \/ row \in owner[o].seen.rows
=============================================================================
