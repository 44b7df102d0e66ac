"""One term of owning a shard: from the fence to the first error.

The term keeps what every strategy needs: the marker that goes with each batch, what is in hand and not purged yet
(`purge_queue.py`), and what waits (`parking.py`). How rows are claimed and removed is the strategy's (`Claims`):
`drain.py` reads on from the last id, `mark_purge.py` marks rows in the table.

Any doubt ends the term. The next one begins with a new fence, a new leader id and the last committed marker, so nothing
that this one assumed is carried over.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from inorder.kafka.shard_log import Delivered, Delivery, Incomplete, ShardLog, require_delivered
from inorder.model.errors import RejectedError, TransientError
from inorder.model.message import OutboxRow
from inorder.relay.marker import MOST_PHANTOMS, Marker, PublishedBatch, name_rows, phantoms, prove, ranges
from inorder.relay.options import LoopOptions
from inorder.relay.parking import Parking, Waiting
from inorder.relay.purge_queue import PurgeQueue, TakeOver, report_lost
from inorder.relay.stores.ports import ExceededStore, Exceeding, Page, Sleeper

log = logging.getLogger("inorder.relay")

MAX_UNPURGED = 4
"""Full batches whose rows may wait for their purge; bounds the marker and what a new owner has to purge."""

MAX_BATCHES = 64
"""Published batches that may wait for their purge, however small."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to be published together, in id order, and the floor of the scan that read them."""

    rows: list[OutboxRow]
    floor: int = 0
    is_full: bool = False
    """Whether more rows are waiting than were read."""
    others_move: bool = False
    """Whether rows of other shards are being written, which must not wake us."""

    @property
    def ids(self) -> list[int]:
        return [row.id for row in self.rows]


class Term:
    """What an owner does, one call after the other on the thread of its loop."""

    def __init__(
        self,
        leader_id: UUID,
        claims: Claims,
        exceeded: ExceededStore,
        shard: ShardLog,
        *,
        batch_size: int,
        options: LoopOptions,
    ) -> None:
        """Looks for released keys every `pace.parked` seconds and repeats a failed purge after `pace.back_off`."""
        self.leader_id = leader_id
        self._claims = claims
        self._exceeded = exceeded
        self._shard = shard
        self._batch_size = batch_size
        self._options = options
        self._parking = Parking()
        self._state = Marker(proofs=())
        self._looked_at = float("-inf")
        self._purge_queue = PurgeQueue(claims.purge, options.pace.back_off)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="inorder-read")
        self._ahead: Future[Batch] | None = None
        self._published_before: frozenset[int] = frozenset()
        """Ids of the marker that the take-over has settled: a row that appears with one of them is another."""
        self._read_meanwhile: set[int] = set()
        """Ids that were read by id since the batch ahead was: a row that was put back may be in both."""
        self._in_flight: Sequence[OutboxRow] = ()

    def take_over(self) -> int:
        """Fences earlier owners and purges what they published; returns how many rows."""
        marker = self._options.markers.decode(self._shard.take_over())
        found = self._claims.begin(marker)
        self._state = after_take_over(marker, found)
        self._published_before = frozenset(marker.ids()).difference(found.replaced)
        if marker.exceeding is not None and found.exceeds:
            self._carry_out(marker.exceeding)
        self._parking = Parking(self._exceeded.parked())
        self._purge_queue.start()
        figures = {"purged": found.purged, "floor": found.floor, "leader_id": str(self.leader_id)}
        log.info("relay.taken_over", extra=figures)
        return found.purged

    def claim(self) -> Batch:
        """The next batch, read ahead if possible; empty if there is nothing to do. Raises what made a purge fail."""
        self._purge_queue.require_working()
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            batch = self._claim()
        else:
            batch, again, self._read_meanwhile = ahead.result(), self._read_meanwhile, set()
            batch = replace(batch, rows=[row for row in batch.rows if row.id not in again]) if again else batch
        if self._published_before:
            self._look_for_lost(batch)
        return batch

    def _look_for_lost(self, batch: Batch) -> None:
        """Names published rows that the database lost, when another row appears with the id of one.

        The take-over finds those that are visible by then; a transaction may hold the ids for longer, or take them
        later. Ids are given out in order, so that all above the first one are lost.
        """
        if again := self._published_before.intersection(batch.ids):
            lost = ranges(sorted(id for id in self._published_before if id >= min(again)))
            report_lost(sorted(again), lost, self._state.server)
            self._state = replace(self._state, phantoms=(*self._state.phantoms, *lost)[-MOST_PHANTOMS:])
        if again or batch.floor >= max(self._published_before):
            self._published_before = frozenset()

    def sift(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """The rows that may be published now; those of held keys and topics wait."""
        return self._parking.sift(rows)

    def publish(self, batch: Batch) -> Delivery:
        """Publishes the batch and queues it to be purged; with a backlog, the next one is read meanwhile.

        Without a backlog the next read is better made afterwards: it finds what is committed in the meantime.
        """
        try:
            self._purge_queue.wait_below(MAX_BATCHES, MAX_UNPURGED * self._batch_size)
        except TransientError as error:
            return Incomplete(error)
        if self._ahead is None and batch.is_full:
            self._ahead = self._reader.submit(self._claim)
        published, state = PublishedBatch.of(batch.rows), replace(self._state, floor=batch.floor)
        self._in_flight = batch.rows
        try:
            delivery = self._shard.publish(batch.rows, self._encode(state, published))
        finally:
            self._in_flight = ()
        if isinstance(delivery, Delivered):
            self._settle(published)
            self._state = state
        return delivery

    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows on their way to the broker at the moment; thread-safe."""
        return self._in_flight

    def settle_delivered(self, rows: Sequence[OutboxRow]) -> None:
        """Queues rows to be purged that arrived, although the rest of their batch did not."""
        self._settle(PublishedBatch.of(rows))

    def refuse(self, row: OutboxRow) -> int:
        """Counts a refusal; returns how many attempts the row has used up."""
        return self._parking.refuse(row)

    def hold(self, row: OutboxRow, retry_at: float) -> None:
        """Holds a refused row and its key; `due` returns them at `retry_at`."""
        self._parking.hold(row, retry_at)

    def hold_topic(self, topic: str, retry_at: float) -> None:
        """Holds everything of a topic; `due` tries it again from `retry_at`."""
        self._parking.hold_topic(topic, retry_at)

    def exceed(self, row: OutboxRow, exceeding: Exceeding) -> None:
        """Moves a row out of the outbox: the decision is committed under the fence first, then carried out."""
        self._purge_queue.wait_below(MAX_BATCHES, MAX_UNPURGED * self._batch_size)
        decided = replace(self._state, exceeding=exceeding, exceeding_proof=prove([row])[0])
        require_delivered(self._shard.publish((), self._encode(decided)))
        self._carry_out(exceeding)
        self._purge_queue.forget([row.id])
        self._parking.exceed(row, parks=exceeding.parks, now=self._options.clock())

    def block(self, rows: Sequence[OutboxRow], _error: RejectedError, seconds: float) -> list[OutboxRow]:
        """Everything waits; then the rows are read again, in case an operator repaired or deleted them."""
        self._options.stop.wait(seconds)
        ids, found = [row.id for row in rows], list[OutboxRow]()
        while ids:
            page = self._read_again(ids)
            found, ids = [*found, *page.rows], list(page.rest)
        return found

    def due(self) -> Iterator[Batch]:
        """Batches of what waited and may be tried now, read again from the table.

        Publish each before taking the next: when a batch is held again, the rest of its key or topic waits with it and
        is not read.
        """
        now, released = self._options.clock(), list[Waiting]()
        if self._parking.parked() and now - self._looked_at >= self._options.pace.parked:
            self._looked_at = now
            released = self._parking.release(self._exceeded.parked())
        for each in [*released, *self._parking.due(now)]:
            yield from self._batches(each)

    def rest_seconds(self, most: float) -> float:
        """How long nothing needs to be done if no publisher commits, but no longer than `most`."""
        due_at = self._parking.due_at()
        return most if due_at is None else min(most, max(0.0, due_at - self._options.clock()))

    def something_waits(self) -> bool:
        """Whether something is held that only time or an operator releases."""
        return self._parking.holds()

    def _read_again(self, ids: Sequence[int]) -> Page:
        """Rows in hand as they are now, perhaps repaired; those that are gone are forgotten."""
        if self._ahead is not None:
            wait([self._ahead])  # the store's reading connection serves one thread at a time
            self._read_meanwhile.update(ids)
        page = self._claims.read_again(ids)
        read = [row.id for row in page.rows]
        self._purge_queue.take(read)
        self._purge_queue.forget(set(ids).difference(read, page.rest))
        return page

    def close(self) -> None:
        """Ends the term: sends nothing more, purges what is known to be published, if the database answers."""
        self._shard.close()
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._purge_queue.stop()
        self._claims.end()

    def _carry_out(self, exceeding: Exceeding) -> None:
        """Moves the row, then clears the decision from the marker: an operator may put the row back from now on."""
        self._exceeded.exceed(exceeding)
        require_delivered(self._shard.publish((), self._encode(self._state)))

    def _settle(self, published: PublishedBatch) -> None:
        self._purge_queue.add(published)
        self._parking.forget_attempts(published.ids)

    def _encode(self, state: Marker, *batches: PublishedBatch) -> bytes:
        """The marker of a transaction: what is not purged yet, what it carries itself, and what is always said."""
        return self._options.markers.encode(name_rows([*self._purge_queue.unpurged(), *batches], state))

    def _claim(self) -> Batch:
        batch = self._claims.claim(self._purge_queue.in_hand)
        self._purge_queue.take(batch.ids)
        return batch

    def _batches(self, waiting: Waiting) -> Iterator[Batch]:
        place, size = 0, waiting.first_size or self._batch_size
        while place < len(waiting.ids) and not self._parking.waits_again(waiting, place):
            page = self._read_again(waiting.ids[place : place + size])
            yield Batch(page.rows, self._state.floor)
            place = bisect_left(waiting.ids, page.rest[0]) if page.rest else place + size
            size = self._batch_size


def after_take_over(marker: Marker, found: TakeOver) -> Marker:
    """What all markers of the new term say; names the rows that the database lost, if it went back in time."""
    lost = phantoms(marker, found.replaced, found.origin)
    if lost or found.replaced:
        report_lost(found.replaced, lost, found.origin.server)
    return Marker((), found.floor, proofs=(), server=found.origin.server, phantoms=lost or marker.phantoms)


class Claims(Protocol):
    """How one strategy claims and removes rows, for one term.

    `claim` and `read_again` are never called at the same time; `purge` is called from its own thread.
    """

    def begin(self, marker: Marker) -> TakeOver:
        """Purges what earlier owners published, by their last marker."""

    def claim(self, in_hand: Callable[[], frozenset[int]]) -> Batch:
        """The next rows to publish, none of them in hand; empty if there are none."""

    def read_again(self, ids: Sequence[int]) -> Page:
        """Rows in hand as they are now; the page has as many as may be read at once."""

    def purge(self, ids: Sequence[int], proofs: Callable[[], Mapping[int, int]], /) -> None:
        """Removes rows whose records are committed: by id where that is safe, else those that match their proofs."""

    def end(self) -> None:
        """Gives up what is claimed and not published, if the database answers."""


class Strategy(Protocol):
    """A way of claiming rows, and the store that the relay sleeps on while there are none."""

    @property
    def store(self) -> Sleeper: ...

    @property
    def batch_size(self) -> int: ...

    def claims(self, leader_id: UUID, /) -> Claims: ...
