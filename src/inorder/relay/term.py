"""One term of owning a shard: from the fence until it ends by any error.

The term keeps what every strategy needs: the marker that goes with each batch, what is in hand and not purged yet
(`settlement.py`), and what waits (`parking.py`). How rows are claimed and removed is the strategy's (`Claims`):
`drain.py` reads on from the last id, `mark_purge.py` marks rows in the table.

Any doubt ends the term. The next one begins with a new fence, a new leader id and the last committed marker, so nothing
that this one believed is carried over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol
from uuid import UUID

from inorder.kafka.shard_log import Delivered, Delivery, Incomplete, ShardLog, require_delivered
from inorder.model.errors import TransientError
from inorder.model.outbox_row import OutboxRow
from inorder.relay.batch import Batch
from inorder.relay.marker import Marker, ranges
from inorder.relay.parking import Parking, Waiting
from inorder.relay.purge_queue import Settlement
from inorder.relay.stores.ports import ExceededStore, Exceeding, Sleeper

log = logging.getLogger("inorder.relay")

MAX_UNPURGED = 4
"""Full batches whose rows may wait for their purge; bounds the marker and what a new owner has to purge."""

MAX_BATCHES = 64
"""Published batches that may wait, however small."""


class Claims(Protocol):
    """How one strategy gets at rows and gets rid of them, for one term.

    `claim` and `read_again` are never called at the same time; `purge` is called from a thread of its own.
    """

    def begin(self, marker: Marker) -> int:
        """Purges what earlier owners published, as their last marker tells; returns how many rows there were."""

    def claim(self, in_hand: Callable[[], frozenset[int]]) -> Batch:
        """The next rows to publish, none of them in hand; empty if there are none."""

    def read_again(self, ids: Sequence[int]) -> list[OutboxRow]:
        """Rows in hand as they are now, in id order."""

    def purge(self, ids: Sequence[int]) -> None:
        """Removes rows whose records are committed."""

    def end(self) -> None:
        """Gives up what is claimed and not published, as far as the database allows."""


class Strategy(Protocol):
    """A way of claiming rows, and what the relay waits on while there are none."""

    @property
    def sleeper(self) -> Sleeper: ...

    @property
    def batch_size(self) -> int: ...

    def claims(self, leader_id: UUID, /) -> Claims:
        """The claims of a new term."""


class Term:
    """What an owner does, one call after the other."""

    def __init__(
        self,
        leader_id: UUID,
        claims: Claims,
        exceeded: ExceededStore,
        shard: ShardLog,
        *,
        batch_size: int,
        clock: Callable[[], float],
        look_seconds: float,
        retry_seconds: float,
    ) -> None:
        """An owner looks for released keys every `look_seconds` and purges again after `retry_seconds`."""
        self.leader_id = leader_id
        self._claims = claims
        self._exceeded = exceeded
        self._shard = shard
        self._batch_size = batch_size
        self._clock = clock
        self._parking = Parking()
        self._floor = 0
        self._look_seconds = look_seconds
        self._looked_at = float("-inf")
        self._settlement = Settlement(claims.purge, retry_seconds)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="inorder-read")
        self._ahead: Future[Batch] | None = None
        self._in_flight: Sequence[OutboxRow] = ()

    def take_over(self) -> int:
        """Fences earlier owners and purges what they had published; returns how many rows that were."""
        marker = Marker.decode(self._shard.take_over())
        purged = self._claims.begin(marker)
        self._floor = marker.floor
        if marker.exceeding is not None:
            self._carry_out(marker.exceeding)
        self._parking = Parking(self._exceeded.parked())
        self._settlement.start()
        log.info("relay.taken_over", extra={"purged": purged, "floor": marker.floor, "leader_id": str(self.leader_id)})
        return purged

    def claim(self) -> Batch:
        """The next batch, read ahead where one was; empty if there is nothing to do."""
        ahead, self._ahead = self._ahead, None
        return ahead.result() if ahead is not None else self._claim()

    def sift(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """The rows that may go now; those of held keys and topics wait."""
        return self._parking.sift(rows)

    def publish(self, batch: Batch) -> Delivery:
        """Publishes the batch and hands it over to be purged; the next one is read meanwhile if it waits already.

        Without a backlog the next read is better made afterwards: it finds what is committed in the meantime.
        """
        try:
            self._settlement.wait_below(MAX_BATCHES, MAX_UNPURGED * self._batch_size)
        except TransientError as error:
            return Incomplete(error)
        if self._ahead is None and batch.is_full:
            self._ahead = self._reader.submit(self._claim)
        ids = batch.ids
        marker = Marker((*self._settlement.unpurged(), *ranges(ids)), batch.floor)
        self._in_flight = batch.rows
        try:
            delivery = self._shard.publish(batch.rows, marker.encode())
        finally:
            self._in_flight = ()
        if isinstance(delivery, Delivered):
            self.settle_delivered(ids)
            self._floor = batch.floor
        return delivery

    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows that are on their way to the broker at the moment; any thread may ask."""
        return self._in_flight

    def settle_delivered(self, ids: Sequence[int]) -> None:
        """Hands rows over to be purged that arrived, perhaps although the rest of their batch did not."""
        self._settlement.published(ids)
        self._parking.published(ids)

    def refuse(self, row: OutboxRow) -> int:
        """Counts a refusal; returns how many attempts the row has used up."""
        return self._parking.refuse(row)

    def hold(self, row: OutboxRow, retry_at: float) -> None:
        """Holds a refused row and its key; `due` gives them back at `retry_at`."""
        self._parking.hold(row, retry_at)

    def hold_topic(self, topic: str, retry_at: float) -> None:
        """Holds everything of a topic; `due` tries it again from `retry_at`."""
        self._parking.hold_topic(topic, retry_at)

    def exceed(self, row: OutboxRow, exceeding: Exceeding) -> None:
        """Moves a row out of the outbox: the decision is committed under the fence first, then carried out."""
        self._settlement.wait_below(MAX_BATCHES, MAX_UNPURGED * self._batch_size)
        marker = Marker(self._settlement.unpurged(), self._floor, exceeding)
        require_delivered(self._shard.publish((), marker.encode()))
        self._carry_out(exceeding)
        self._settlement.forget([row.id])
        self._parking.exceed(row, parks=exceeding.parks, now=self._clock())

    def due(self) -> Iterator[Batch]:
        """Batches of what waited and may be tried now, read again from the table.

        Publish each before asking for the next: when a batch is held again, the rest of its key or topic waits with it
        and is not read.
        """
        now = self._clock()
        waiting = self._parking.due(now)
        if self._parking.parked() and now - self._looked_at >= self._look_seconds:
            self._looked_at = now
            waiting += self._parking.release(self._exceeded.parked())
        for each in waiting:
            yield from self._batches(each)

    def rest_seconds(self, most: float) -> float:
        """How long nothing needs to be done if nobody writes, but no longer than `most`."""
        due_at = self._parking.due_at()
        return most if due_at is None else min(most, max(0.0, due_at - self._clock()))

    def something_waits(self) -> bool:
        """Whether something is held that only time or a person brings back."""
        return self._parking.holds()

    def read_again(self, ids: Sequence[int]) -> list[OutboxRow]:
        """Rows in hand as they are now, repaired perhaps; those that are gone are forgotten."""
        if self._ahead is not None:
            wait([self._ahead])  # the store's reading connection serves one thread at a time
        rows = self._claims.read_again(ids)
        self._settlement.read([row.id for row in rows])
        self._settlement.forget(set(ids) - {row.id for row in rows})
        return rows

    def close(self) -> None:
        """Ends the term: sends nothing more, purges what is known to be published, as far as the database allows."""
        self._shard.close()
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._settlement.stop()
        self._claims.end()

    def _carry_out(self, exceeding: Exceeding) -> None:
        """Moves the row, and takes the decision out of the marker: a person may put the row back from now on."""
        self._exceeded.exceed(exceeding)
        marker = Marker(self._settlement.unpurged(), self._floor)
        require_delivered(self._shard.publish((), marker.encode()))

    def _claim(self) -> Batch:
        batch = self._claims.claim(self._settlement.in_hand)
        self._settlement.read(batch.ids)
        return batch

    def _batches(self, waiting: Waiting) -> Iterator[Batch]:
        place, size = 0, waiting.first_size or self._batch_size
        while place < len(waiting.ids) and not self._parking.waits_again(waiting, place):
            yield Batch(self.read_again(waiting.ids[place : place + size]), self._floor)
            place, size = place + size, self._batch_size
