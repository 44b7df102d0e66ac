"""The polling protocol: rows stay in their table, an offset says how far they are published, gaps are waited for.

This is the way of PollingOutboxPublisher, made exact. One owner, the master, goes round:

    read above the offset ──▶ publish (records + marker, one transaction) ──▶ prove gaps dead ──▶ settle
      ▲  + missing ids that appeared                                                                │
      └─────────────────────────────────────────────────────────────────────────────────────────────┘

Two daemons share that thread, each with a circuit breaker of its own (`breaker.py`). The **outbox round** reads on from
the offset. The **missing round** tries refused records again and sees what people have changed.

What is authoritative

- **What is published: offset, missing and exceeded, less the last marker.** Every id up to the offset is delivered,
  recorded in missing, recorded in exceeded, or proven never to be committed. Only the database decides that, by one
  transaction a round (`PollingStore.settle`), which moves the offset by compare-and-set.
- **What was published and not settled: the last committed marker**, with delivery `exactly-once`. It names the ids that
  its round has published, and the offset at which the round began.
- **Who is master: the broker's fence**, with `exactly-once`. The lease only hints. With `at-least-once` nobody stops a
  past master but the compare-and-set, which comes after the sending.

Invariants

1. The offset passes an id only in the transaction that records it, unless it is delivered or dead. So nothing is lost.
2. A round is settled before the next one publishes, and a new owner settles what the marker names before its first
   round. So with `exactly-once` whatever is published was not published before.
3. A gap is dead when every transaction that was open *after* the read which missed it has ended, and a later look at
   the primary database does not show it (`polling_gaps.py`). While one of them lives, nothing is counted against it, so
   a transaction may stay open for longer than any budget. Ids must be given out one by one: a sequence with a cache
   hands them to later transactions.
4. With `keep_order` a row goes only when no earlier row of its key waits. Late rows are asked for in the snapshot that
   reads on, or in one after it: what is read later has lower ids, and all of it is sent in id order. So a row never
   passes one that its transaction could have seen. A gap holds nobody back; its key is not known, and whoever wrote to
   it at the same time has no order with the others.
5. Only errors of the record use up attempts, one each `missing_wait`. So a budget is a length of time.

What if …

| the master …                          | then                                                                         |
|---|---|
| dies before the commit is sent        | nothing is visible; the next one reads the same rows                         |
| dies between commit and settlement    | the next one finds the ids in the marker: it moves the offset over them,     |
|                                       | records what lies between, and takes them out of missing                     |
| gets no answer to a settlement        | it settles the same again; an offset that has moved tells that it was done   |
| is paused and wakes up later          | its commit is fenced; its settlement finds another offset and is refused,    |
|                                       | or the same one, and then all that it says is still true                     |
| loses the broker                      | the batch is tried again, then given up; nothing uses up attempts            |
| loses the database                    | the breaker of the daemon opens; while that of the outbox is open this       |
|                                       | instance gives its lease up, and asks nobody anything                        |
| meets a record that is refused        | it is recorded in missing with `exception_thrown`, and so is what waits      |
|                                       | behind it; everything else goes on                                           |
| finds its attempts used up            | it goes to exceeded with the reason, and its key is parked (`parking.py`)    |
| meets a topic that is closed to us    | its rows are recorded in missing and wait, without attempts                  |
| is told to stop                       | the round ends and is settled; one in trouble is left to the marker          |

| the surroundings …                    | then                                                                         |
|---|---|
| a transaction stays open for hours    | ids missing meanwhile are kept, all of them; each read asks for them         |
| holders of ids cannot be named        | gaps have `missing_max_retries` looks, then they go to exceeded              |
| ids jump ahead by far                 | the chasm is crossed as a whole, once proven empty (`polling_chasm.py`)      |
| rows come from a replica that lags    | it decides only what is sent, never what is dead                             |
| a person sets the offset back         | the marker is ignored, and what is above the offset is sent again            |
| a person puts an id into missing      | it is looked for in the next missing round, and sent                         |
| the marker topic is deleted           | a round that was published and not settled at that moment is published again |
| rows are deleted by somebody          | delivered ones: nothing; others are taken for never committed                |
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Unpack
from uuid import uuid4

from inorder.model.errors import TransientError
from inorder.ports.lease import Lease
from inorder.ports.shard_log import ShardLog
from inorder.relay.breaker import BreakerState, Guard
from inorder.relay.events import BreakerChanged
from inorder.relay.owning import OwnerLoop, Owning, Progress, note_trouble
from inorder.relay.polling_options import PollingOptions, PollingTables
from inorder.relay.polling_term import PollingTerm
from inorder.relay.refusal import Refusals
from inorder.relay.sending import Sending


@dataclass(slots=True)
class PollingProgress(Progress):
    """What the loop has done so far, and how its breakers are."""

    guards: tuple[Guard, ...] = field(default=())

    @property
    def breakers(self) -> dict[str, str]:
        """The state of each breaker, by name."""
        return {guard.name: guard.state.value for guard in self.guards}


class PollingLoop(OwnerLoop[PollingTerm]):
    """Runs the relay of one table until it is told to stop."""

    progress: PollingProgress

    def __init__(
        self,
        tables: PollingTables,
        shard: ShardLog,
        lease: Lease,
        *,
        stop: threading.Event,
        options: PollingOptions,
        confirm: Callable[[], None] = lambda: None,
        lease_in_database: bool = False,
        **owning: Unpack[Owning],
    ) -> None:
        """With `lease_in_database` a lease that cannot be asked for is a failure of the database as any other."""
        super().__init__(lease, stop=stop, confirm=self._confirm_guarded, **owning)
        self._tables = tables
        self._shard = shard
        self._options = options
        self._asks_registry = confirm
        self._lease_in_database = lease_in_database
        self._outbox_guard = Guard("outbox", options.breaker, self._clock, self._tell_breaker)
        self._missing_guard = Guard("missing", options.breaker, self._clock, self._tell_breaker)
        self._stepped_down = False
        self.progress = PollingProgress(guards=(self._outbox_guard, self._missing_guard))
        self._sending = self._new_sending()

    def _new_sending(self) -> Sending:
        """A refused record waits for the missing round, a broker in trouble only for a moment."""
        options, stop, clock = self._options, self._stop, self._clock
        refusals = Refusals(
            self.progress,
            options.missing_max_retries,
            options.policy,
            replace(self._pace, back_off=options.missing_wait),
            clock,
            stop,
        )
        pace = replace(self._pace, back_off=options.redelivery_delay)
        tries = options.broker_max_retries
        return Sending(self.progress, refusals, pace, leads=self._leads, stop=stop, clock=clock, most_tries=tries)

    def _new_term(self) -> PollingTerm:
        return PollingTerm(
            uuid4(),
            self._tables,
            self._shard,
            self._sending,
            self.progress,
            options=self._options,
            outbox_guard=self._outbox_guard,
            missing_guard=self._missing_guard,
            goes_on=self._goes_on,
            clock=self._clock,
        )

    def _step(self, term: PollingTerm) -> None:
        if self._missing_guard.allows():
            term.tend()
        if not term.poll():
            self._stop.wait(self._options.queue_wait)
        self._read_meter()

    def _leads(self) -> bool:
        """Whoever cannot ask the database lets others try, and asks for nothing itself."""
        if not self._outbox_guard.allows():
            self._step_down()
            return False
        self._stepped_down = False
        if not self._lease_in_database:
            return super()._leads()
        with self._outbox_guard.asking():
            return super()._leads()

    def _step_down(self) -> None:
        if not self._stepped_down:
            self._stepped_down = True
            self._leads_until = float("-inf")
            self._release()

    def _goes_on(self, error: TransientError) -> bool:
        """Waits after a settlement that failed; whether it is still ours to make."""
        note_trouble(self.progress, error)
        self._stop.wait(self._pace.back_off)
        return not self._stop.is_set() and self._leads()

    def _confirm_guarded(self) -> None:
        with self._outbox_guard.asking():
            self._asks_registry()

    def _tell_breaker(self, name: str, state: BreakerState) -> None:
        self._tell(BreakerChanged(name, state.value))
