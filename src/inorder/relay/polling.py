"""The polling protocol: rows stay in their table, an offset records how far they are published, gaps are waited for.

This is the protocol of PollingOutboxPublisher, made exact. One owner, the master, repeats:

    read above the offset ──▶ publish (records + marker, one transaction) ──▶ prove gaps dead ──▶ settle
      ▲  + missing ids that appeared                                                                │
      └─────────────────────────────────────────────────────────────────────────────────────────────┘

Two rounds share that thread, each with its own circuit breaker (`breaker.py`). The **outbox round** reads on from the
offset. The **missing round** tries refused records again and picks up what operators changed in the tables.

What is authoritative

- **What is published: offset, missing and exceeded, less the last marker.** Every id up to the offset is delivered,
  recorded in missing, recorded in exceeded, or proven never to be committed. Only the database decides that, by one
  transaction a round (`PollingStore.settle`), which moves the offset by compare-and-set.
- **What was published and not settled: the last committed marker**, with delivery `exactly-once`. It names the rows
  that its round has published, by id and content, and the offset at which the round began.
- **Who is master: the broker's fence**, with `exactly-once`. The lease is a hint. With `at-least-once` only the
  compare-and-set stops a past master, and it comes after the sending.

Invariants

1. The offset passes an id only in the transaction that records it, unless it is delivered or dead. So nothing is lost.
2. A round is settled before the next one publishes, and a new owner settles what the marker names before its first
   round. So with `exactly-once` nothing is published twice.
3. A gap is dead when every transaction that was open *after* the read which missed it has ended, and a later read of
   the primary database does not show it (`Gaps`). While one of them lives, nothing is counted against it, so
   a transaction may stay open for longer than any budget. Ids must be given out one by one: a sequence with a cache
   hands them to later transactions.
4. With `keep_order` a row is sent only when no earlier row of its key waits. Late rows are read in the snapshot that
   reads on, or in one after it: what is read later has lower ids, and all of it is sent in id order. So a row never
   passes one that its transaction could have seen. A gap holds nothing back: its key is unknown, and transactions that
   wrote to that key at the same time have no order between them.
5. Only errors of the record use up attempts, one each `missing_wait`. So a budget is a length of time.

What if …

| the master …                          | then                                                                         |
|---|---|
| dies before the commit is sent        | nothing is visible; the next one reads the same rows                         |
| dies between commit and settlement    | the next one finds the rows in the marker: it moves the offset over them,    |
|                                       | records what lies between, and takes them out of missing                     |
| gets no answer to a settlement        | it settles the same again; an offset that has moved proves that it was done  |
| is paused and wakes up later          | its commit is fenced; its settlement finds another offset and is refused,    |
|                                       | or the same one, and then all that it says is still true                     |
| loses the broker                      | the batch is tried again, then given up; nothing uses up attempts            |
| loses the database                    | the breaker of the daemon opens; while that of the outbox is open this       |
|                                       | instance releases its lease and sends no request                             |
| meets a record that is refused        | it is recorded in missing with `exception_thrown`, and so is what waits      |
|                                       | behind it; everything else continues                                         |
| finds its attempts used up            | it goes to exceeded with the reason, and its key is parked (`parking.py`)    |
| meets a topic that refuses our writes | its rows are recorded in missing and wait, without attempts                  |
| is stopped                            | the round ends and is settled; one that failed is left to the marker         |

| the surroundings …                    | then                                                                         |
|---|---|
| a transaction stays open for hours    | all ids missing meanwhile are kept; each read includes them                  |
| holders of ids cannot be named        | gaps get `missing_max_retries` reads, then they go to exceeded               |
| ids jump far ahead                    | the large gap is crossed as a whole, once proven empty (`LargeIdGap`)        |
| rows come from a replica that lags    | it decides only what is sent, never what is dead                             |
| an operator sets the offset back      | the marker is ignored, and what is above the offset is sent again            |
| an operator inserts an id in missing  | it is looked for in the next missing round, and sent                         |
| the marker topic is deleted           | a round that was published and not settled at that moment is published again |
| the database loses its last commits   | offset and rows are of one moment; of the rows above the offset those that   |
|                                       | the marker proves are not sent again, and others with their ids are sent     |
| ids are set back below the offset     | the ids that were published last are compared with their rows, and those     |
|                                       | that got other rows are recorded as missing, so sent (`RecentRows`)          |
| another tool deletes rows             | delivered ones: nothing; others count as never committed                     |
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from uuid import UUID, uuid4

from inorder.kafka.shard_log import Delivered, Delivery, ShardLog
from inorder.model.breaker import BreakerOptions, BreakerState
from inorder.model.errors import FencedError, RejectedError, TransientError, UnknownOutcomeError
from inorder.model.message import OutboxRow
from inorder.relay.breaker import CircuitBreaker
from inorder.relay.events import BreakerChanged, notify
from inorder.relay.leadership.lease import Lease
from inorder.relay.loop import BatchPublisher, LeaderLoop, Leadership, RelayProgress
from inorder.relay.marker import MARKER_BYTES, MOST_ROW_BYTES, Marker, is_elsewhere, prove, ranges, split
from inorder.relay.options import LoopOptions, wait_out
from inorder.relay.parking import Parking, Refusals, Waiting
from inorder.relay.polling_rules import (
    LargeIdGap,
    MarkedRows,
    Missing,
    RecentRows,
    Round,
    Step,
    chunks,
    ordered_by,
    recover,
    settlement,
    step,
    waiting_keys,
    writes,
)
from inorder.relay.purge_queue import TakeOver, report_lost
from inorder.relay.scan import BATCH_BYTES, FIRST_ROWS, bytes_of, next_limit
from inorder.relay.stores.ports import (
    LAST_ID,
    Exceeding,
    Key,
    MissingEvent,
    OffsetSetBackError,
    OutboxStore,
    PollingStore,
    Scan,
    Settlement,
)
from inorder.relay.term import Batch, after_take_over

log = logging.getLogger("inorder.relay")

MOST_PROBES = 20_000
"""Single ids read by one statement."""

MISSING_PAGE = 10_000
"""Missing events read by one statement."""


ROUND_ROWS = MARKER_BYTES // MOST_ROW_BYTES // 2
"""Late rows, and rows above the offset, of one round: its marker names both, and a record has a bound."""


class PollingLoop(LeaderLoop["PollingTerm"]):
    """Runs the relay of one table until `stop` is set."""

    progress: PollingProgress
    _options: PollingOptions

    def __init__(
        self,
        tables: PollingTables,
        shard: ShardLog,
        lease: Lease,
        options: PollingOptions,
        *,
        lease_in_database: bool = False,
    ) -> None:
        """With `lease_in_database` a lease that cannot be read counts as a failure of the database."""
        self._outbox_breaker = CircuitBreaker("outbox", options.breaker, options.clock, self._report_breaker)
        self._missing_breaker = CircuitBreaker("missing", options.breaker, options.clock, self._report_breaker)
        options = replace(options, confirm=partial(self._confirm, options.confirm))
        progress = PollingProgress(circuit_breakers=(self._outbox_breaker, self._missing_breaker))
        leadership = PollingLeadership(
            lease, options, progress, self._outbox_breaker, lease_in_database=lease_in_database
        )
        super().__init__(leadership, options)
        self._tables = tables
        self._shard = shard
        self._publisher = _new_publisher(leadership, options)

    def _new_term(self) -> PollingTerm:
        # As in `RelayLoop`: a term reads through sessions that it opens itself.
        self._tables.reader.close()
        self._tables.primary.close()
        return PollingTerm(
            uuid4(),
            self._tables,
            self._shard,
            self._publisher,
            self._leadership,
            options=self._options,
            outbox_breaker=self._outbox_breaker,
            missing_breaker=self._missing_breaker,
        )

    def _step(self, term: PollingTerm) -> None:
        if self._missing_breaker.allows():
            term.run_missing_round()
        if not term.run_outbox_round():
            self._options.stop.wait(self._options.queue_wait)

    def _confirm(self, confirm: Callable[[], None]) -> None:
        with self._outbox_breaker.count_failures():
            confirm()

    def _report_breaker(self, name: str, state: BreakerState) -> None:
        notify(self._options.on_event, BreakerChanged(name, state.value))


def _new_publisher(leadership: Leadership, options: PollingOptions) -> BatchPublisher:
    """A refused record waits for the missing round, a failing broker only for a moment."""
    refusing = replace(
        options, max_attempts=options.missing_max_retries, pace=replace(options.pace, back_off=options.missing_wait)
    )
    sending = replace(options, pace=replace(options.pace, back_off=options.redelivery_delay))
    refusals = Refusals(refusing, leadership.progress)
    return BatchPublisher(leadership, refusals, sending, most_tries=options.broker_max_retries)


class PollingLeadership(Leadership):
    """Gives the lease up while the breaker of the outbox is open, so that another instance can try."""

    def __init__(
        self,
        lease: Lease,
        options: PollingOptions,
        progress: PollingProgress,
        breaker: CircuitBreaker,
        *,
        lease_in_database: bool,
    ) -> None:
        super().__init__(lease, options, progress)
        self._breaker = breaker
        self._lease_in_database = lease_in_database
        self._stepped_down = False

    def leads(self) -> bool:
        """Never while the breaker is open; then neither the lease nor the database gets a request."""
        if not self._breaker.allows():
            if not self._stepped_down:
                self._stepped_down = True
                self.release_lease()
            return False
        self._stepped_down = False
        if not self._lease_in_database:
            return super().leads()
        with self._breaker.count_failures():
            return super().leads()


class PollingTerm:
    """What an owner does, one round after the other, on one thread, from the fence to the first error.

    Nothing here outlives the term: the next one reads offset, missing events and marker.
    """

    def __init__(
        self,
        leader_id: UUID,
        tables: PollingTables,
        shard: ShardLog,
        publisher: BatchPublisher,
        leadership: Leadership,
        *,
        options: PollingOptions,
        outbox_breaker: CircuitBreaker,
        missing_breaker: CircuitBreaker,
    ) -> None:
        self.leader_id = leader_id
        self._tables = tables
        self._shard = shard
        self._publisher = publisher
        self._leadership = leadership
        self._options = options
        self._clock = options.clock
        self._outbox_breaker, self._missing_breaker = outbox_breaker, missing_breaker
        self._breaker = outbox_breaker
        self._offset = 0
        self._missing = Missing()
        self._parking = Parking()
        self._large_gap = LargeIdGap(
            tables.primary,
            patience_seconds=options.missing_wait * options.missing_max_retries,
            clock=options.clock,
        )
        self._limit = min(options.batch_size, FIRST_ROWS)
        self._missing_round_at = self._tables_read_at = options.clock()
        self._round = Round(0, Step((), 0))
        self._state = Marker(proofs=())
        self._recent = RecentRows()
        self._looked_back_at = options.clock()
        self._in_flight: Sequence[OutboxRow] = ()

    def take_over(self) -> int:
        """Fences earlier owners and settles what they published; returns how many events are missing."""
        with self._breaker.count_failures():
            self._tables.store.check()
        marker = self._options.markers.decode(self._shard.take_over())
        with self._breaker.count_failures():
            self._offset = self._tables.store.offset()
            self._recover(marker)
            self._missing.load(self._all_missing())
            parked = self._parked_keys()
        self._parking = Parking(parked, ordered_by(keep_order=self._options.keep_order))
        figures = {"offset": self._offset, "missing": len(self._missing.ids), "leader_id": str(self.leader_id)}
        log.info("relay.taken_over", extra=figures)
        return len(self._missing.ids)

    def run_outbox_round(self) -> bool:
        """Rows above the offset, and missing ones that have appeared; whether there were any."""
        self._breaker = self._outbox_breaker
        with self._breaker.count_failures():
            unseen, is_all = self._missing.unseen(self._options.missing_batch_size)
            rows, unread = self._read(unseen, reads_on=is_all)
            unseen = unseen[: bisect_left(unseen, unread)]
            watched = {*self._recent.newest()}.difference(self._missing.ids)
            newest, rows = [row for row in rows if row.id in watched], [row for row in rows if row.id not in watched]
            if self._recent.replaced(newest):
                self._look_back(self._recent.all())
                return True
            if rows:
                self._require_offset()
            taken = step(self._offset, [row for row in rows if row.id > self._offset])
            late = [row for row in rows if row.id <= self._offset]
            if len(late) > ROUND_ROWS:
                taken = Step((), self._offset)
            crossed = self._cross(taken)
            holders = self._tables.primary.holders() if taken.gaps or len(late) < len(unseen) else None
        self._missing.record_read(unseen, [row.id for row in late], holders)
        self._missing.gaps.miss(taken.gaps, holders)
        self._missing.look_at(row.id for row in late[ROUND_ROWS:])
        del late[ROUND_ROWS:]
        self._hold_refused(late)
        self._work(Round(self._offset, crossed or taken), [*late, *taken.rows])
        self._maybe_look_back()
        self._breaker.succeed()
        return (bool(rows) and (taken.large_gap_to is None or crossed is not None)) or not is_all or unread <= LAST_ID

    def run_missing_round(self) -> None:
        """What is due to be tried again, and what operators or time have changed."""
        now = self._clock()
        self._breaker = self._missing_breaker
        is_due = now - self._missing_round_at >= self._options.missing_wait
        reads_tables = bool(self._parking.parked()) and now - self._tables_read_at >= self._options.look_wait
        if is_due:
            self._missing_round_at = now
            self._count_patience()
        if is_due or reads_tables:
            self._tables_read_at = now
            self._read_tables()
        if waiting := self._parking.due(now):
            self._try_again(waiting)
        if is_due or reads_tables or waiting:
            self._breaker.succeed()

    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows on their way to the broker at the moment; thread-safe."""
        return self._in_flight

    def close(self) -> None:
        self._shard.close()

    # What `BatchPublisher` needs of a term.

    def sift(self, rows: Sequence[OutboxRow], /) -> list[OutboxRow]:
        """The rows that may be published now; those of held keys and topics wait."""
        return self._parking.sift(rows)

    def publish(self, batch: Batch, /) -> Delivery:
        """Sends rows; the marker names all that this round has published, and the offset at which it began."""
        proofs = self._round.delivered | dict(zip(batch.ids, prove(batch.rows), strict=True))
        ids = sorted(proofs)
        marker = replace(
            self._state,
            published=ranges(ids),
            proofs=tuple(map(proofs.__getitem__, ids)),
            floor=self._round.from_offset,
        )
        self._in_flight = batch.rows
        try:
            delivery = self._shard.publish(batch.rows, self._options.markers.encode(marker))
        finally:
            self._in_flight = ()
        if isinstance(delivery, Delivered):
            self._round.delivered = proofs
        return delivery

    def settle_delivered(self, rows: Sequence[OutboxRow], /) -> None:
        self._round.delivered.update(zip([row.id for row in rows], prove(rows), strict=True))

    def refuse(self, row: OutboxRow, /) -> int:
        """Counts a refusal; returns the retry count that it leads to."""
        self._round.refused.add(row.id)
        return self._missing.retries(row.id)

    def hold(self, row: OutboxRow, retry_at: float, /) -> None:
        self._parking.hold(row, retry_at)

    def hold_topic(self, topic: str, retry_at: float, /) -> None:
        self._parking.hold_topic(topic, retry_at)

    def exceed(self, row: OutboxRow, exceeding: Exceeding, /) -> None:
        """Recorded when this round is settled."""
        self._round.exceeded[row.id] = f"{exceeding.code}: {exceeding.reason}"
        self._parking.exceed(row, parks=exceeding.parks and self._options.keep_order, now=self._clock())

    def block(self, rows: Sequence[OutboxRow], _error: RejectedError, seconds: float, /) -> list[OutboxRow]:
        """Everything waits; then the rows are read again, in case an operator repaired them."""
        self._options.stop.wait(seconds)
        with self._breaker.count_failures():
            found = self._probe(self._tables.reader, [row.id for row in rows])
            return sorted((row for part in found for row in part), key=attrgetter("id"))

    # The parts of a round.

    def _read(self, unseen: Sequence[int], *, reads_on: bool) -> tuple[list[OutboxRow], int]:
        """Rows in id order: missing ones that are there, those above the offset, and the newest published one.

        The latter shows in the same snapshot whether the ids of the others were given out again.
        Where more are unseen, nothing above the last of these is read: it might pass one that was not checked yet.
        For the same reason nothing is returned from the first row on that has too many bytes; its id is returned too,
        or a number above all ids.
        """
        gaps = self._missing.gaps.ids()
        wanted = [*gaps, *self._recent.newest()] if reads_on else gaps[: bisect_right(gaps, unseen[-1])]
        probes = sorted({*unseen, *wanted})
        first, *others = list(chunks(probes, MOST_PROBES)) or [()]
        most = self._options.batch_bytes
        above = self._offset if reads_on else LAST_ID
        page = self._tables.reader.read(Scan(above, probes=tuple(first), max_bytes=most), self._limit)
        self._limit = next_limit(self._limit, page.rows, min(self._options.batch_size, ROUND_ROWS), most)
        rows, unread = page.rows, min(page.rest, default=LAST_ID + 1)
        for chunk in others:
            left = max(0, most - sum(map(bytes_of, rows)))
            page = self._tables.reader.read(Scan(LAST_ID, probes=tuple(chunk), max_bytes=left), 1)
            unread = min([unread, *page.rest])
            rows = [*rows, *page.rows]
        if others:
            rows = sorted((row for row in rows if row.id < unread), key=attrgetter("id"))
        return rows, unread

    def _cross(self, taken: Step) -> Step | None:
        if taken.large_gap_to is None:
            return None
        edge = self._large_gap.cross(self._offset, taken.large_gap_to)
        return None if edge is None else Step((), edge)

    def _work(self, work: Round, rows: list[OutboxRow]) -> None:
        """Sends the rows and settles the round; an interrupted one is settled only if part of it arrived."""
        self._round = work
        is_finished = False
        try:
            is_finished = not rows or self._publisher.send(self, Batch(rows, work.from_offset))
        except (FencedError, UnknownOutcomeError):
            raise
        except TransientError:
            if work.delivered:
                self._settle(work, ())
            raise
        if is_finished or work.delivered:
            self._settle(work, self._prove_dead())

    def _prove_dead(self) -> list[int]:
        """Gaps whose every possible transaction has ended, and that a read of the primary does not show."""
        gaps = self._missing.gaps
        if not len(gaps):
            return []
        with self._breaker.count_failures():
            gaps.observe(self._tables.primary.holders())
            ended = gaps.ended()
            present = {row.id for rows in self._probe(self._tables.primary, ended) for row in rows}
        dead = [id for id in ended if id not in present]
        if dead:
            log.debug("relay.never_committed", extra={"ids": len(dead), "first": dead[0], "last": dead[-1]})
        return dead

    def _settle(self, work: Round, dead: Sequence[int]) -> None:
        found = settlement(work, self._missing.ids, dead)
        if writes(found):
            self._write(found)
        self._missing.gaps.forget(dead)
        self._missing.apply(found)
        self._offset = found.to_offset
        self._recent.remember(work.delivered)

    def _write(self, found: Settlement) -> None:
        """Settles, and repeats it if the answer is lost."""
        while True:
            try:
                with self._breaker.count_failures():
                    self._tables.store.settle(found)
                return
            except (FencedError, OffsetSetBackError):
                raise
            except TransientError as error:
                if not self._breaker.allows() or not self._tries_again(error):
                    raise

    def _tries_again(self, error: TransientError) -> bool:
        """Waits after a settlement that failed; whether this instance may still repeat it."""
        wait_out(error, self._leadership.progress, self._options)
        return not self._options.stop.is_set() and self._leadership.leads()

    def _hold_refused(self, rows: Sequence[OutboxRow]) -> None:
        """Delays what an earlier owner had refused: a relay that restarts often would use up its attempts."""
        for row in rows:
            if self._missing.take_refused(row.id):
                self._parking.hold(row, self._clock() + self._options.missing_wait)

    def _try_again(self, waiting: Sequence[Waiting]) -> None:
        """Sends the first row of everything that is due; if that succeeds, what waited behind it is free."""
        due = [Waiting(each.order, [id for id in each.ids if id in self._missing.ids]) for each in waiting]
        due = [each for each in due if each.ids]
        self._missing.look_at(id for each in due[ROUND_ROWS:] for id in each.ids)
        del due[ROUND_ROWS:]
        with self._breaker.count_failures():
            scan = Scan(LAST_ID, probes=tuple(sorted(each.ids[0] for each in due)), max_bytes=self._options.batch_bytes)
            page = self._tables.reader.read(scan, 1)
        rows, unread = page.rows, {*page.rest}
        self._missing.look_at(id for each in due if each.ids[0] in unread for id in each.ids)
        due = [each for each in due if each.ids[0] not in unread]
        self._work(Round(self._offset, Step((), self._offset)), rows)
        present = {row.id for row in rows}
        for each in due:
            if not self._parking.waits_again(each, 1):
                self._missing.look_at(id for id in each.ids if id not in present)

    def _read_tables(self) -> None:
        """Finds events that operators put back, and keys that they released."""
        with self._breaker.count_failures():
            parked = self._parked_keys()
            self._missing.load(self._all_missing())
        for each in self._parking.release(parked):
            self._missing.look_at(each.ids)

    def _count_patience(self) -> None:
        """Ids that cannot be proven dead get as many reads, and as much time, as any missing event."""
        if not (due := self._missing.out_of_patience()):
            return
        with self._breaker.count_failures():
            present = {row.id for rows in self._probe(self._tables.primary, due) for row in rows}
        absent = [id for id in due if id not in present]
        limit = self._options.missing_max_retries
        over = {id: _NEVER_CAME for id in absent if self._missing.retries(id) >= limit}
        for id in over:
            self._leadership.progress.exceeded += 1
            log.error("relay.exceeded", extra={"row": id, "parks": False, "reason": _NEVER_CAME})
        self._settle(Round(self._offset, Step((), self._offset), exceeded=over, waited=absent), ())

    def _recover(self, marker: Marker) -> None:
        """Settles what the marker proves to be published."""
        proofs, origin = marker.rows(), self._tables.primary.origin()
        known, ours, replaced = None, list[int](), list[int]()
        if proofs is not None:
            for rows in self._probe(self._tables.primary, sorted(proofs)):
                proven, others = split(rows, proofs)
                ours += proven
                replaced += others
            known = MarkedRows(frozenset(ours), frozenset(replaced), is_elsewhere(marker, origin))
        self._state = after_take_over(marker, TakeOver(0, tuple(replaced), origin, marker.floor))
        found = recover(self._offset, marker, known)
        if found is None:
            if marker.published:
                log.warning("relay.marker_ignored", extra={"offset": self._offset, "marker_floor": marker.floor})
            return
        self._tables.store.settle(found)
        self._offset = found.to_offset
        if known is not None and proofs is not None:
            self._recent.remember(
                {id: proofs[id] for id in sorted(proofs.keys() - known.replaced) if id <= self._offset}
            )

    def _maybe_look_back(self) -> None:
        """Finds once in a while whether the table's sequence, or the offset itself, was set back.

        A database that lost its last commits has ended our sessions, and a new term begins with `_recover`. This is for
        those who truncate the table or set a sequence back on a running server.
        """
        now = self._clock()
        if now - self._looked_back_at < self._options.look_wait:
            return
        self._looked_back_at = now
        with self._breaker.count_failures():
            self._require_offset()
            self._look_back(self._recent.given_again(self._offset, self._tables.primary.origin().last_id))

    def _look_back(self, ids: Sequence[int]) -> None:
        """Records those of the ids as missing whose rows are not the published ones, so that they are published too."""
        found = ids
        for rows in self._probe(self._tables.primary, ids):
            found = self._recent.unproven(found, rows)
        fresh = [id for id in found if id not in self._missing.ids]
        if fresh:
            report_lost(fresh)
            self._recent.forget(fresh)
            self._tables.store.settle(Settlement(self._offset, self._offset, missed=[*map(MissingEvent, fresh)]))
            self._missing.load(self._all_missing())

    def _require_offset(self) -> None:
        """Nothing is published that the offset cannot record: one that went back makes this term's knowledge void."""
        offset = self._tables.store.offset()
        if offset < self._offset:
            raise OffsetSetBackError(f"The offset is {offset} and not {self._offset}: it was set back, or restored.")

    def _parked_keys(self) -> Mapping[Key, Sequence[int]]:
        return waiting_keys(self._tables.store.parked(), self._options.policy) if self._options.keep_order else {}

    def _all_missing(self) -> Iterator[MissingEvent]:
        above = -LAST_ID
        while page := self._tables.store.missing(above, MISSING_PAGE):
            yield from page
            above = page[-1].id

    def _probe(self, store: OutboxStore, ids: Sequence[int]) -> Iterator[list[OutboxRow]]:
        """Those of the ids that are there, in parts of which each may be in memory."""
        for left in chunks(ids, MOST_PROBES):
            while left:
                page = store.read(Scan(LAST_ID, probes=tuple(left), max_bytes=self._options.batch_bytes), 1)
                yield page.rows
                left = page.rest


_NEVER_CAME = "No transaction committed this row, and the database does not report which ones are open."


@dataclass(slots=True, kw_only=True)
class PollingProgress(RelayProgress):
    """What the loop has done so far, and the state of its breakers."""

    circuit_breakers: tuple[CircuitBreaker, ...] = ()

    @property
    def breakers(self) -> dict[str, str]:
        """The state of each breaker, by name."""
        return {breaker.name: breaker.state.value for breaker in self.circuit_breakers}


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingOptions(LoopOptions):
    """How a polling relay works; all times in seconds."""

    batch_size: int = 5000
    batch_bytes: int = BATCH_BYTES
    missing_batch_size: int = 500
    keep_order: bool = True
    queue_wait: float = 0.1
    missing_wait: float = 20.0
    missing_max_retries: int = 5
    broker_max_retries: int = 5
    redelivery_delay: float = 0.25
    look_wait: float = 1.0
    """Between checks whether an operator released a parked key, while there is one."""
    breaker: BreakerOptions = BreakerOptions()  # noqa: RUF009 - it is frozen


@dataclass(frozen=True, slots=True)
class PollingTables:
    """The database: rows are read from `reader`, which may lag; what is final is read from `primary`."""

    reader: OutboxStore
    primary: OutboxStore
    store: PollingStore
