------------------------------ MODULE Journal ------------------------------
(* A journal is read while replication lags behind, with purges and conditional appends.

   The topic decides what a journal is; the store is a copy that is any number of actions behind. A reader joins both in
   several steps, and the replicator, writers and operators go on between any two of them.

   "does:" names the function that does a step; a test looks them up. What is left out: deletes up to a number, appends of
   several events, damaged records, retention, the head cache, and stores without transactions (Cassandra). *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS Actions,     \* how many records the topic gets
          Readers,
          Writers,
          Defects

VARIABLES log,         \* appends and purges
          store,       \* the offset up to which the store has the log, and the journal there
          writer,      \* what each writer saw
          reader

vars == <<log, store, writer, reader>>

None == <<>>
Has(defect) == defect \in Defects
Nothing == [id |-> 0, end |-> 0, at |-> 0, events |-> <<>>]
(* A life: named by the offset of its first append; where it ends; its last action; the offsets of its events. *)

Holds(life, action) ==
  Has("NoConditions") \/ action.life = None
  \/ (action.life[1] = life.id /\ (action.end = None \/ action.end[1] = life.end))

(* A purge whose writer saw a journal where the fold began with nothing: does: inorder.journal.life:JournalFold._was_seen *)
WasSeen(life, action, nothingSince) ==
  nothingSince # None /\ action.life # <<0>> /\ action.seen > nothingSince[1]

Counts(life, action, nothingSince) ==  \* does: inorder.journal.life:JournalFold.counts
  IF action.kind = "append" THEN (action.number > life.end \/ Has("LastWriterWins")) /\ Holds(life, action)
  ELSE Holds(life, action) \/ WasSeen(life, action, nothingSince)

Apply(life, action, offset) ==  \* does: inorder.journal.life:JournalFold.apply
  IF action.kind = "purge" THEN [Nothing EXCEPT !.at = 0]
  ELSE IF life.id = 0 THEN [id |-> offset, end |-> action.number, at |-> offset, events |-> <<offset>>]
  ELSE [life EXCEPT !.end = action.number, !.at = offset, !.events = Append(@, offset)]

After(life, action, offset, nothingSince) ==
  IF Counts(life, action, nothingSince) THEN Apply(life, action, offset) ELSE life

RECURSIVE Fold(_)
Fold(to) == IF to = 0 THEN Nothing ELSE After(Fold(to - 1), log[to], to, None)

Init ==
  /\ log = <<>> /\ store = [offset |-> 0, life |-> Nothing]
  /\ writer = [w \in Writers |-> [life |-> Nothing, seen |-> 0]]
  /\ reader = [r \in Readers |-> [stage |-> "idle"]]

----------------------------------------------------------------------------
(* Writers: what one saw may be old when its action arrives *)

Look(w) ==  \* does: inorder.journal.client:Journal.read
  /\ writer[w].seen # Len(log)
  /\ writer' = [writer EXCEPT ![w] = [life |-> Fold(Len(log)), seen |-> Len(log)]]
  /\ UNCHANGED <<log, store, reader>>

Send(w, action) ==
  /\ Len(log) < Actions /\ log' = Append(log, action)
  /\ UNCHANGED <<store, writer, reader>>

Update(w) ==  \* a decision on a state; does: inorder.journal.client:JournalClient.update
  LET saw == writer[w].life IN
  Send(w, [kind |-> "append", number |-> saw.end + 1, life |-> <<saw.id>>, end |-> <<saw.end>>, saw |-> saw.events,
           seen |-> writer[w].seen])

AppendAnyway(w) ==  \* without a condition; does: inorder.journal.client:Journal.append
  Send(w, [kind |-> "append", number |-> writer[w].life.end + 1, life |-> None, end |-> None, saw |-> <<>>, seen |-> 0])

Purge(w) ==  \* ends the life that its writer saw; does: inorder.journal.client:Journal.purge
  LET saw == writer[w].life IN
  saw.id # 0 /\ Send(w, [kind |-> "purge", number |-> 0, life |-> <<saw.id>>, end |-> None, saw |-> <<>>,
                         seen |-> writer[w].seen])

----------------------------------------------------------------------------
Replicate ==  \* does: inorder.journal.replication.actions:replicate_journal
  /\ store.offset < Len(log)
  /\ LET next == store.offset + 1 IN
     store' = [offset |-> next, life |-> After(store.life, log[next], next, None)]
  /\ UNCHANGED <<log, writer, reader>>

----------------------------------------------------------------------------
(* A read *)

Become(r, fields) == reader' = [reader EXCEPT ![r] = fields]

Mark(r) ==  \* does: inorder.journal.client:Journal.mark
  /\ reader[r].stage = "idle"
  /\ Become(r, [stage |-> "offset", mark |-> Len(log),
                head |-> IF Has("HeadBeforeOffset") THEN store.life ELSE Nothing])
  /\ UNCHANGED <<log, store, writer>>

ReadOffset(r) ==  \* does: inorder.journal.reading.reader:JournalReader._replicated_early
  LET me == reader[r] IN
  /\ me.stage = "offset"
  /\ Become(r, [stage |-> "head", mark |-> me.mark, offset |-> store.offset, head |-> me.head])
  /\ UNCHANGED <<log, store, writer>>

(* The actions of the log that the store's head does not include, applied to it one by one. *)
RECURSIVE Replay(_, _, _)
Replay(plan, from, to) ==
  IF from > to THEN plan
  ELSE LET action == log[from]
           counts == Counts(plan.life, action, plan.nothingSince)
           after == Apply(plan.life, action, from)
       IN Replay(IF ~counts THEN plan
                 ELSE IF action.kind = "purge" /\ ~Has("PurgeForgotten")
                      THEN [life |-> Nothing, fromStore |-> 0, log |-> <<>>, nothingSince |-> <<from>>]
                 ELSE IF action.kind = "purge" THEN [plan EXCEPT !.life = Nothing]
                 ELSE [plan EXCEPT !.life = after, !.log = Append(@, from)], from + 1, to)

Planned(me, head) ==
  LET first == IF head.at > me.offset THEN head.at + 1 ELSE me.offset + 1
      plan == [life |-> head, fromStore |-> head.end, log |-> <<>>,
               nothingSince |-> IF head.id = 0 THEN <<me.offset>> ELSE None]
  IN IF Has("StoreOnly") THEN plan ELSE Replay(plan, first, me.mark)

ReadHead(r) ==  \* does: inorder.journal.reading.reader:JournalReader._head
  LET me == reader[r]
      head == IF Has("HeadBeforeOffset") THEN me.head ELSE store.life
      \* Without a head nothing says which offset it is of: the store may have moved on since that was read.
      isOfOffset == head.id # 0 \/ store.offset = me.offset \/ Has("HeadOfAnotherOffset") \/ Has("HeadBeforeOffset")
      plan == Planned(me, head)
  IN
  /\ me.stage = "head"
  /\ IF ~isOfOffset THEN Become(r, [me EXCEPT !.offset = store.offset])
     ELSE Become(r, [stage |-> "rows", mark |-> me.mark, head |-> head, plan |-> plan])
  /\ UNCHANGED <<log, store, writer>>

FirstOf(events, count) == SubSeq(events, 1, IF count < Len(events) THEN count ELSE Len(events))

ReadRows(r) ==  \* does: inorder.journal.reading.reader:JournalReader._stored
  LET me == reader[r]
      count == IF me.plan.fromStore = 0 THEN 0 ELSE Len(me.head.events)
  IN
  /\ me.stage = "rows"
  /\ Become(r, [stage |-> "again", mark |-> me.mark, head |-> me.head, usesStore |-> count > 0,
                shows |-> FirstOf(store.life.events, count) \o me.plan.log])
  /\ UNCHANGED <<log, store, writer>>

ReadHeadAgain(r) ==  \* does: inorder.journal.reading.reader:_require_unchanged
  LET me == reader[r]
      isUnchanged == ~me.usesStore \/ (store.life.id = me.head.id /\ store.life.end >= me.head.end)
  IN
  /\ me.stage = "again"
  /\ IF isUnchanged \/ Has("NoSecondLook") THEN Become(r, [stage |-> "shown", mark |-> me.mark, shows |-> me.shows])
     ELSE Become(r, [stage |-> "idle"])
  /\ UNCHANGED <<log, store, writer>>

Next ==
  \/ Replicate
  \/ \E w \in Writers : Look(w) \/ Update(w) \/ AppendAnyway(w) \/ Purge(w)
  \/ \E r \in Readers : Mark(r) \/ ReadOffset(r) \/ ReadHead(r) \/ ReadRows(r) \/ ReadHeadAgain(r)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* Guarantees *)

\* guarantee: A read shows one moment of a journal, or raises that the journal changed.
AReadIsOfOneMoment ==
  \A r \in Readers : reader[r].stage = "shown" =>
    \E moment \in reader[r].mark .. Len(log) : reader[r].shows = Fold(moment).events

\* guarantee: The store equals its topic up to the replicated offset
TheStoreEqualsItsTopic == store.life = Fold(store.offset)

\* guarantee: A decision of `update` counts once at most, and follows exactly the state that it saw
ADecisionFollowsTheStateThatItSaw ==
  \A offset \in 1..Len(log) :
    LET before == Fold(offset - 1)  action == log[offset] IN
    action.kind = "append" /\ action.life # None /\ Counts(before, action, None) => before.events = action.saw

\* guarantee: Of two writers the first wins
NumbersRise ==
  LET events == Fold(Len(log)).events IN
  \A one, two \in 1..Len(events) : one < two => log[events[one]].number < log[events[two]].number
=============================================================================
