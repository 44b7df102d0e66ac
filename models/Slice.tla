------------------------------- MODULE Slice -------------------------------
(* One slice, one transaction: records of a topic reach a table once and in order.

   A topic has two generations. The first has two partitions and each key its own; the second has one partition, so that
   keys move. Two drivers run the same pipeline, at any pace: each reads slices of any range, applies them in a
   transaction that locks the pointer row, may lose the answer to its COMMIT, and may die. The topic may be deleted and
   created again under its name, records may be written behind the end of the closed generation, and pointer rows may be
   lost.

   "does:" names the function that does a step; a test looks them up. What is left out: what a record contains (decoding,
   dead letters, folds of several fields), deletes, refusals by the database, and Cassandra, which has no transactions. *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Drivers,
          Records,     \* how many records are written in all
          Recreated,   \* how often the first generation's topic is deleted and created again
          Late,        \* how many records are written behind the end
          Forgotten,   \* how often the pointer rows are lost
          Defects

Keys == {"k1", "k2"}
Places == {<<0, 1>>, <<0, 2>>, <<1, 1>>}  \* generation and partition
Place(generation, key) == IF generation = 0 /\ key = "k2" THEN <<0, 2>> ELSE <<generation, 1>>

VARIABLES log,         \* of each place: records, each a key and its place in the key's history (0: behind the end)
          topicId,     \* of the first generation's topic
          written,     \* of each key: how many records
          ends,        \* of the first generation: where it was closed, or nothing
          pointer,     \* of each place: next offset, topic id, end
          lock,        \* of each pointer row: the driver that holds it, or nothing
          row,         \* of each key: the version and the record that it shows
          once, twice, \* records whose effect took place, and took place again
          recreated, late, forgotten,
          driver

vars == <<log, topicId, written, ends, pointer, lock, row, once, twice, recreated, late, forgotten, driver>>
topics == <<log, topicId, written, ends, recreated, late>>

None == <<>>
Has(defect) == defect \in Defects
Fresh == [stage |-> "idle", place |-> None, from |-> 0, records |-> <<>>, id |-> 0, pointer |-> 0]
Sum == written["k1"] + written["k2"]
IdOf(place) == IF place[1] = 0 THEN topicId ELSE 1

Init ==
  /\ log = [place \in Places |-> <<>>] /\ topicId = 1 /\ written = [key \in Keys |-> 0] /\ ends = None
  /\ pointer = [place \in Places |-> [next |-> 0, id |-> 0, end |-> None]]
  /\ lock = [place \in Places |-> None] /\ row = [key \in Keys |-> [version |-> <<0, -1>>, shows |-> 0]]
  /\ once = {} /\ twice = {} /\ recreated = 0 /\ late = 0 /\ forgotten = 0
  /\ driver = [d \in Drivers |-> Fresh]

----------------------------------------------------------------------------
(* Publishers and operators *)

Write(key) ==  \* does: inorder.topics.routes:RoutedShardLog.publish
  LET place == Place(IF ends = None THEN 0 ELSE 1, key) IN
  /\ Sum < Records
  /\ written' = [written EXCEPT ![key] = @ + 1]
  /\ log' = [log EXCEPT ![place] = Append(@, [key |-> key, number |-> written[key] + 1])]
  /\ UNCHANGED <<topicId, ends, pointer, lock, row, once, twice, recreated, late, forgotten, driver>>

Close ==  \* does: inorder.topics.switch:complete
  /\ ends = None /\ recreated = 0  \* a switch is of the topic that the pointers are of
  /\ ends' = [partition \in 1..2 |-> Len(log[<<0, partition>>])]
  /\ pointer' = [place \in Places |-> IF place[1] = 0 /\ ~Has("NoEndInThePointer")
                                      THEN [pointer[place] EXCEPT !.end = <<ends'[place[2]]>>] ELSE pointer[place]]
  /\ UNCHANGED <<log, topicId, written, lock, row, once, twice, recreated, late, forgotten, driver>>

WriteLate(key) ==  \* a copy of a migration, or a writer that could not be fenced
  /\ ends # None /\ late < Late /\ late' = late + 1
  /\ log' = [log EXCEPT ![Place(0, key)] = Append(@, [key |-> key, number |-> 0])]
  /\ UNCHANGED <<topicId, written, ends, pointer, lock, row, once, twice, recreated, forgotten, driver>>

Recreate ==  \* somebody deletes the topic and creates another one of its name; its keys begin again
  /\ recreated < Recreated /\ ends = None
  /\ recreated' = recreated + 1 /\ topicId' = topicId + 1
  /\ log' = [place \in Places |-> IF place[1] = 0 THEN <<>> ELSE log[place]]
  /\ UNCHANGED <<written, ends, pointer, lock, row, once, twice, late, forgotten, driver>>

Forget ==  \* pointer rows are lost, and the pipeline starts over; the tables stay
  /\ forgotten < Forgotten /\ forgotten' = forgotten + 1
  /\ \A place \in Places : lock[place] = None
  /\ pointer' = [place \in Places |-> [pointer[place] EXCEPT !.next = 0]]
  /\ UNCHANGED <<row, once, twice, lock, driver>> /\ UNCHANGED topics

----------------------------------------------------------------------------
(* Drivers *)

IsDrained == ends # None /\ \A partition \in 1..2 : pointer[<<0, partition>>].next >= ends[partition]

MayApply(generation, place) ==  \* does: inorder.topics.gate:may_apply
  \/ generation = 0
  \/ IsDrained
  \/ Has("GateOfOnePartition") /\ ends # None /\ pointer[<<0, 1>>].next >= ends[1]

Begin(place) ==  \* does: inorder.pipeline.job:_UpsertWorker.begin
  /\ pointer[place].id = 0
  /\ pointer' = [pointer EXCEPT ![place].id = IdOf(place)]
  /\ UNCHANGED <<lock, row, once, twice, forgotten, driver>> /\ UNCHANGED topics

Fetch(d, place, from, to) ==  \* does: inorder.engines.slice_work:PartitionReader.read
  /\ driver[d].stage = "idle" /\ pointer[place].id # 0 /\ MayApply(place[1], place)
  /\ from < to /\ to <= Len(log[place])
  /\ from <= pointer[place].next  \* a gap would be refused by the driver's own plan: it reads from a pointer
  /\ driver' = [driver EXCEPT ![d] = [Fresh EXCEPT !.stage = "read", !.place = place, !.from = from,
                                      !.records = SubSeq(log[place], from + 1, to), !.id = IdOf(place)]]
  /\ UNCHANGED <<pointer, lock, row, once, twice, forgotten>> /\ UNCHANGED topics

Lock(d) ==  \* does: inorder.pipeline.stores.ports:SliceTransaction.lock_pointer
  LET me == driver[d] IN
  /\ me.stage = "read" /\ (lock[me.place] = None \/ Has("NoLock"))
  /\ lock' = IF Has("NoLock") THEN lock ELSE [lock EXCEPT ![me.place] = <<d>>]
  /\ driver' = [driver EXCEPT ![d].stage = "locked", ![d].pointer = pointer[me.place].next]
  /\ UNCHANGED <<pointer, row, once, twice, forgotten>> /\ UNCHANGED topics

(* The records of a slice that a transaction applies: those at or above the pointer and before the end. *)
Applied(me) ==
  LET end == pointer[me.place].end
      isOther == me.id # pointer[me.place].id /\ ~Has("NoTopicIdentity")
      stands == IF Has("NoPlan") THEN 0 ELSE me.pointer
  IN {offset \in me.from .. me.from + Len(me.records) - 1 :
        ~isOther /\ offset >= stands /\ (end = None \/ offset < end[1])}

Last(offsets) == CHOOSE offset \in offsets : \A other \in offsets : other <= offset
IsNewer(one, two) == one[1] > two[1] \/ (one[1] = two[1] /\ one[2] > two[2])

Written(me, offsets) ==
  [key \in Keys |->
    LET mine == {offset \in offsets : me.records[offset - me.from + 1].key = key}
        last == Last(mine)
        version == <<me.place[1], last>>
    IN IF mine = {} \/ (~Has("NoVersion") /\ ~IsNewer(version, row[key].version)) THEN row[key]
       ELSE [version |-> version, shows |-> me.records[last - me.from + 1].number]]

Effects(me, offsets) == {<<me.place, offset, me.id>> : offset \in offsets}

Write_(me, offsets) ==
  /\ row' = Written(me, offsets)
  /\ once' = once \cup Effects(me, offsets) /\ twice' = twice \cup (once \cap Effects(me, offsets))

Move(me, offsets) == [pointer EXCEPT ![me.place].next = IF offsets = {} THEN @ ELSE Last(offsets) + 1]

Commit(d, isAnswered) ==  \* does: inorder.pipeline.slice:_SliceWriter.write
  LET me == driver[d]  offsets == Applied(me)  next == IF isAnswered THEN Fresh ELSE [me EXCEPT !.stage = "read"] IN
  /\ me.stage = "locked" /\ (lock[me.place] = <<d>> \/ Has("NoLock"))
  /\ IF Has("PointerFirst") THEN UNCHANGED <<row, once, twice>> ELSE Write_(me, offsets)
  /\ pointer' = IF Has("PointerLater") THEN pointer ELSE Move(me, offsets)
  /\ IF Has("PointerFirst") \/ Has("PointerLater")
     THEN driver' = [driver EXCEPT ![d].stage = "half"] /\ UNCHANGED lock
     ELSE /\ driver' = [driver EXCEPT ![d] = next]
          /\ lock' = [lock EXCEPT ![me.place] = None]
  /\ UNCHANGED forgotten /\ UNCHANGED topics

SecondHalf(d) ==  \* only with pointer and rows in two transactions
  LET me == driver[d]  offsets == Applied(me) IN
  /\ me.stage = "half"
  /\ IF Has("PointerFirst") THEN Write_(me, offsets) /\ UNCHANGED pointer
     ELSE pointer' = Move(me, offsets) /\ UNCHANGED <<row, once, twice>>
  /\ driver' = [driver EXCEPT ![d] = Fresh] /\ lock' = [lock EXCEPT ![me.place] = None]
  /\ UNCHANGED forgotten /\ UNCHANGED topics

Crash(d) ==  \* dies, or the server ends the session of a driver that is paused; does: inorder.engines.slice_work:settle_commit
  LET me == driver[d] IN
  /\ me.stage # "idle"
  /\ driver' = [driver EXCEPT ![d] = Fresh]
  /\ lock' = [place \in Places |-> IF lock[place] = <<d>> THEN None ELSE lock[place]]
  /\ UNCHANGED <<pointer, row, once, twice, forgotten>> /\ UNCHANGED topics

Next ==
  \/ Close \/ Recreate \/ Forget
  \/ \E key \in Keys : Write(key) \/ WriteLate(key)
  \/ \E place \in Places : Begin(place)
  \/ \E d \in Drivers :
       \/ \E place \in Places, from \in 0..Records, to \in 1..Records + 1 : Fetch(d, place, from, to)
       \/ Lock(d) \/ Commit(d, TRUE) \/ Commit(d, FALSE) \/ SecondHalf(d) \/ Crash(d)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* Guarantees *)

\* guarantee: A record is applied once, whatever is replayed.
\* guarantee: Two drivers, or a zombie beside its retry, apply each record once.
EachRecordIsAppliedOnce == forgotten = 0 => twice = {}

\* guarantee: A worker that dies around its commit costs nothing.
NothingBelowThePointerIsMissing ==
  \A place \in Places : \A offset \in 0 .. pointer[place].next - 1 :
    forgotten = 0 => <<place, offset, pointer[place].id>> \in once

\* guarantee: A topic that was deleted and re-created is never taken for the former one
NothingOfAnotherTopicIsApplied == \A effect \in once : effect[3] = pointer[effect[1]].id

\* guarantee: Nothing behind the end of a closed generation is applied to a table
NothingBehindTheEndIsApplied ==
  ends # None => \A effect \in once : effect[1][1] = 0 => effect[2] < ends[effect[1][2]]

\* guarantee: Readers finish one generation before they begin the next.
GenerationsAreAppliedInOrder ==
  \A effect \in once : effect[1][1] = 1 =>
    \A partition \in 1..2 : \A offset \in 0 .. ends[partition] - 1 :
      <<<<0, partition>>, offset, pointer[<<0, partition>>].id>> \in once

\* guarantee: An older record of a partition never overwrites a newer one, even when pointers are lost.
NoRowGoesBack == [][recreated = 0 => \A key \in Keys : row'[key].shows >= row[key].shows]_vars
=============================================================================
