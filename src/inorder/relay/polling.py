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

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Unpack
from uuid import UUID, uuid4

from inorder.kafka.shard_log import Delivered, Delivery, ShardLog
from inorder.model.errors import FencedError, TransientError, UnknownOutcomeError
from inorder.model.outbox_row import OutboxRow
from inorder.relay.batch import FIRST_ROWS, Batch, next_limit
from inorder.relay.breaker import BreakerOptions, BreakerState, Guard
from inorder.relay.events import BreakerChanged
from inorder.relay.leadership.lease import Lease
from inorder.relay.loop import OwnerLoop, Owning, Progress, Sending, note_trouble
from inorder.relay.marker import Marker, ranges
from inorder.relay.parking import Parking, Policy, Refusals, Waiting
from inorder.relay.polling_rules import (
    Chasm,
    Missing,
    Round,
    Step,
    chunks,
    ordered_by,
    parks,
    recovered,
    settlement,
    step,
    writes,
)
from inorder.relay.stores.ports import LAST_ID, Exceeding, MissingEvent, OutboxStore, PollingStore, Scan, Settlement

# One term of the polling relay: rounds of reading, publishing and settling, from the fence to the first doubt.
#
# `polling.py` tells the protocol. Nothing here outlives the term: the next one reads offset, missing events and marker.

log = logging.getLogger("inorder.relay")

MOST_PROBES = 20_000
"""Single ids asked for in one statement."""

MISSING_PAGE = 10_000
"""Missing events read in one statement."""


class PollingTerm:
    """What an owner does, one round after the other, on one thread."""

    def __init__(
        self,
        leader_id: UUID,
        tables: PollingTables,
        shard: ShardLog,
        sending: Sending,
        progress: Progress,
        *,
        options: PollingOptions,
        outbox_guard: Guard,
        missing_guard: Guard,
        goes_on: Callable[[TransientError], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`goes_on` waits after a failed settlement; it tells whether to try again."""
        self.leader_id = leader_id
        self._tables = tables
        self._shard = shard
        self._sending = sending
        self._progress = progress
        self._options = options
        self._outbox_guard, self._missing_guard = outbox_guard, missing_guard
        self._guard = outbox_guard
        self._goes_on = goes_on
        self._clock = clock
        self._offset = 0
        self._missing = Missing()
        self._parking = Parking()
        self._chasm = Chasm(
            tables.primary, patience_seconds=options.missing_wait * options.missing_max_retries, clock=clock
        )
        self._limit = min(options.batch_size, FIRST_ROWS)
        self._tended_at = self._looked_at = clock()
        self._round = Round(0, Step((), 0))
        self._in_flight: Sequence[OutboxRow] = ()

    def take_over(self) -> int:
        """Fences earlier owners and settles what they had published; returns how many events are missing."""
        with self._guard.asking():
            self._tables.store.check()
        marker = Marker.decode(self._shard.take_over())
        with self._guard.asking():
            self._offset = self._tables.store.offset()
            self._recover(marker)
            self._missing.load(self._all_missing())
            parked = parks(self._tables.store.parked(), self._options.policy) if self._options.keep_order else {}
        self._parking = Parking(parked, ordered_by(keep_order=self._options.keep_order))
        figures = {"offset": self._offset, "missing": len(self._missing.ids), "leader_id": str(self.leader_id)}
        log.info("relay.taken_over", extra=figures)
        return len(self._missing.ids)

    def poll(self) -> bool:
        """The outbox round: rows above the offset, and missing ones that have appeared; whether there was any work."""
        self._guard = self._outbox_guard
        with self._guard.asking():
            unseen, is_all = self._missing.unseen(self._options.missing_batch_size)
            rows = self._read(unseen, reads_on=is_all)
            taken = step(self._offset, [row for row in rows if row.id > self._offset])
            late = [row for row in rows if row.id <= self._offset]
            crossed = self._cross(taken)
            holders = self._tables.primary.holders() if taken.gaps or len(late) < len(unseen) else None
        self._missing.saw(unseen, [row.id for row in late], holders)
        self._missing.gaps.miss(taken.gaps, holders)
        self._hold_refused(late)
        self._work(Round(self._offset, crossed or taken), [*late, *taken.rows])
        self._guard.succeed()
        return (bool(rows) and (taken.chasm_to is None or crossed is not None)) or not is_all

    def tend(self) -> None:
        """The missing round: what is due to be tried again, and what people or time have changed."""
        now = self._clock()
        self._guard = self._missing_guard
        is_due = now - self._tended_at >= self._options.missing_wait
        looks = bool(self._parking.parked()) and now - self._looked_at >= self._options.look_wait
        waiting = self._parking.due(now)
        if is_due:
            self._tended_at = now
            self._count_patience()
        if is_due or looks:
            self._looked_at = now
            self._look_at_tables()
        if waiting:
            self._try_again(waiting)
        if is_due or looks or waiting:
            self._guard.succeed()

    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows that are on their way to the broker at the moment; any thread may ask."""
        return self._in_flight

    def close(self) -> None:
        """Sends nothing more."""
        self._shard.close()

    # What `Sending` needs of a term.

    def sift(self, rows: Sequence[OutboxRow], /) -> list[OutboxRow]:
        """The rows that may go now; those of held keys and topics wait."""
        return self._parking.sift(rows)

    def publish(self, batch: Batch, /) -> Delivery:
        """Sends rows; the marker names all that this round has published, and the offset that it began at."""
        ids = sorted([*self._round.delivered, *batch.ids])
        self._in_flight = batch.rows
        try:
            delivery = self._shard.publish(batch.rows, Marker(ranges(ids), self._round.from_offset).encode())
        finally:
            self._in_flight = ()
        if isinstance(delivery, Delivered):
            self.settle_delivered(batch.ids)
        return delivery

    def settle_delivered(self, ids: Sequence[int], /) -> None:
        """These arrived."""
        self._round.delivered.update(ids)

    def refuse(self, row: OutboxRow, /) -> int:
        """Counts a refusal; returns the retry count that it leads to."""
        self._round.refused.add(row.id)
        return self._missing.retries(row.id)

    def hold(self, row: OutboxRow, retry_at: float, /) -> None:
        """Holds a refused row and its key."""
        self._parking.hold(row, retry_at)

    def hold_topic(self, topic: str, retry_at: float, /) -> None:
        """Holds everything of a topic."""
        self._parking.hold_topic(topic, retry_at)

    def exceed(self, row: OutboxRow, exceeding: Exceeding, /) -> None:
        """Its attempts are used up, as this round will settle."""
        self._round.exceeded[row.id] = f"{exceeding.code}: {exceeding.reason}"
        self._parking.exceed(row, parks=exceeding.parks and self._options.keep_order, now=self._clock())

    def read_again(self, ids: Sequence[int], /) -> list[OutboxRow]:
        """Rows as they are now."""
        with self._guard.asking():
            return self._probe(self._tables.reader, ids)

    # The parts of a round.

    def _read(self, unseen: Sequence[int], *, reads_on: bool) -> list[OutboxRow]:
        """Rows in id order: missing ones that are there, and those above the offset.

        Where more are unseen, nothing above the last of these is asked for: it might pass one that nobody looked at.
        """
        gaps = self._missing.gaps.ids()
        probes = sorted({*unseen, *(gaps if reads_on else gaps[: bisect_right(gaps, unseen[-1])])})
        first, *others = list(chunks(probes, MOST_PROBES)) or [()]
        scan = Scan(self._offset if reads_on else LAST_ID, probes=tuple(first))
        rows = self._tables.reader.read(scan, self._limit).rows
        self._limit = next_limit(self._limit, len(rows), sum(map(_size, rows)), self._options.batch_size)
        found = [row for chunk in others for row in self._probe(self._tables.reader, chunk)]
        return sorted([*found, *rows], key=attrgetter("id")) if found else rows

    def _cross(self, taken: Step) -> Step | None:
        if taken.chasm_to is None:
            return None
        edge = self._chasm.crossed(self._offset, taken.chasm_to)
        return None if edge is None else Step((), edge)

    def _work(self, work: Round, rows: list[OutboxRow]) -> None:
        """Sends the rows and settles the round; one that broke off is settled only if part of it arrived."""
        self._round = work
        is_finished = False
        try:
            is_finished = not rows or self._sending.send(self, Batch(rows, work.from_offset))
        except (FencedError, UnknownOutcomeError):
            raise
        except TransientError:
            if work.delivered:
                self._settle(work, ())
            raise
        if is_finished or work.delivered:
            self._settle(work, self._prove_dead())

    def _prove_dead(self) -> list[int]:
        """Gaps whose every possible transaction has ended, and that a look at the primary does not show."""
        gaps = self._missing.gaps
        if not len(gaps):
            return []
        with self._guard.asking():
            gaps.observe(self._tables.primary.holders())
            ended = gaps.ended()
            present = {row.id for row in self._probe(self._tables.primary, ended)}
        dead = [id for id in ended if id not in present]
        if dead:
            log.debug("relay.never_committed", extra={"ids": len(dead), "first": dead[0], "last": dead[-1]})
        return dead

    def _settle(self, work: Round, dead: Sequence[int]) -> None:
        found = settlement(work, self._missing.ids, dead)
        if writes(found):
            self._write(found)
        self._missing.gaps.forget(dead)
        self._missing.settled(found)
        self._offset = found.to_offset

    def _write(self, found: Settlement) -> None:
        """Settles, and does it again where the answer is lost."""
        while True:
            try:
                with self._guard.asking():
                    self._tables.store.settle(found)
                return
            except FencedError:
                raise
            except TransientError as error:
                if not self._guard.allows() or not self._goes_on(error):
                    raise

    def _hold_refused(self, rows: Sequence[OutboxRow]) -> None:
        """What an earlier owner had refused is not tried at once, or a relay that begins often would use it up."""
        for row in rows:
            if self._missing.was_refused(row.id):
                self._parking.hold(row, self._clock() + self._options.missing_wait)

    def _try_again(self, waiting: Sequence[Waiting]) -> None:
        """Sends the first row of everything that is due; where it goes through, what waited behind it is free."""
        due = [Waiting(each.order, [id for id in each.ids if id in self._missing.ids]) for each in waiting]
        due = [each for each in due if each.ids]
        rows = self.read_again(sorted(each.ids[0] for each in due))
        self._work(Round(self._offset, Step((), self._offset)), rows)
        present = {row.id for row in rows}
        for each in due:
            if not self._parking.waits_again(each, 1):
                self._missing.look_at(id for id in each.ids if id not in present)

    def _look_at_tables(self) -> None:
        """Finds events that people have put back, and keys that they have released."""
        with self._guard.asking():
            parked = parks(self._tables.store.parked(), self._options.policy) if self._options.keep_order else {}
            self._missing.load(self._all_missing())
        for each in self._parking.release(parked):
            self._missing.look_at(each.ids)

    def _count_patience(self) -> None:
        """Ids that nobody can prove dead have so many looks, and so much time, as any missing event."""
        if not (due := self._missing.out_of_patience()):
            return
        with self._guard.asking():
            present = {row.id for row in self._probe(self._tables.primary, due)}
        absent = [id for id in due if id not in present]
        limit = self._options.missing_max_retries
        over = {id: _NEVER_CAME for id in absent if self._missing.retries(id) >= limit}
        for id in over:
            self._progress.exceeded += 1
            log.error("relay.exceeded: %s", _NEVER_CAME, extra={"row": id, "parks": False})
        self._settle(Round(self._offset, Step((), self._offset), exceeded=over, waited=absent), ())

    def _recover(self, marker: Marker) -> None:
        found = recovered(self._offset, marker)
        if found is None:
            if marker.published:
                log.warning("relay.marker_ignored", extra={"offset": self._offset, "marker_floor": marker.floor})
            return
        self._tables.store.settle(found)
        self._offset = found.to_offset

    def _all_missing(self) -> Iterator[MissingEvent]:
        above = -LAST_ID
        while page := self._tables.store.missing(above, MISSING_PAGE):
            yield from page
            above = page[-1].id

    def _probe(self, store: OutboxStore, ids: Sequence[int]) -> list[OutboxRow]:
        """Those of the ascending ids that are there, in id order."""
        parts = [store.read(Scan(LAST_ID, probes=tuple(chunk)), 1).rows for chunk in chunks(ids, MOST_PROBES)]
        return [row for part in reversed(parts) for row in part]


_NEVER_CAME = "No transaction has brought this row, and the database does not tell which are open."


def _size(row: OutboxRow) -> int:
    return len(row.value or b"") + len(row.key or b"")


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


# What a polling relay is told, and what it works on.


@dataclass(frozen=True, slots=True)
class PollingOptions:
    """How a polling relay works; all times in seconds."""

    batch_size: int = 5000
    missing_batch_size: int = 500
    keep_order: bool = True
    queue_wait: float = 0.1
    missing_wait: float = 20.0
    missing_max_retries: int = 5
    broker_max_retries: int = 5
    redelivery_delay: float = 0.25
    look_wait: float = 1.0
    """Between looks whether somebody released a parked key, while there is one."""
    policy: Callable[[str], Policy] = lambda _topic: "park"
    breaker: BreakerOptions = BreakerOptions()  # noqa: RUF009 - it is frozen


@dataclass(frozen=True, slots=True)
class PollingTables:
    """The database: rows are read from `reader`, which may lag; what is final is asked of `primary`."""

    reader: OutboxStore
    primary: OutboxStore
    store: PollingStore
