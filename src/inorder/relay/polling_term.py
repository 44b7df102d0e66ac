"""One term of the polling relay: rounds of reading, publishing and settling, from the fence to the first doubt.

`polling.py` tells the protocol. Nothing here outlives the term: the next one reads offset, missing events and marker.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from uuid import UUID

from inorder.model.errors import FencedError, TransientError, UnknownOutcomeError
from inorder.ports.exceeded_store import Exceeding
from inorder.ports.outbox_store import LAST_ID, OutboxRow, OutboxStore, Scan
from inorder.ports.polling_store import MissingEvent, Settlement
from inorder.ports.shard_log import ShardLog
from inorder.relay.batch import Batch
from inorder.relay.breaker import Guard
from inorder.relay.limits import FIRST_ROWS, next_limit
from inorder.relay.marker import Marker, ranges
from inorder.relay.owning import Progress
from inorder.relay.parking import Parking, Waiting
from inorder.relay.polling_chasm import Chasm
from inorder.relay.polling_missing import Missing
from inorder.relay.polling_options import PollingOptions, PollingTables
from inorder.relay.polling_rules import Round, Step, chunks, ordered_by, parks, recovered, settlement, step, writes
from inorder.relay.sending import Sending

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

    def publish(self, batch: Batch, /) -> None:
        """Sends rows; the marker names all that this round has published, and the offset that it began at."""
        ids = sorted([*self._round.delivered, *batch.ids])
        self._in_flight = batch.rows
        try:
            self._shard.publish(batch.rows, Marker(ranges(ids), self._round.from_offset).encode())
        finally:
            self._in_flight = ()
        self.settle_delivered(batch.ids)

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
