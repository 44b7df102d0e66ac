"""The drain protocol: from outbox rows to Kafka records, exactly once and in order per key.

One owner per shard reads the oldest rows, publishes them in one Kafka transaction and deletes them:

    read ──▶ publish (records + marker, one transaction) ──▶ purge
      ▲                                                        │
      └── the next batch is read while the last one commits ◀──┘

Three stores take part and cannot commit together: the outbox table, the topics and the owner's memory, which may
be gone at any moment. What is authoritative:

- **Who owns the shard: the broker.** `init_transactions` with the shard's `transactional.id` fences each earlier owner.
  A lease only hints who should try (`ports/lease.py`).
- **What was published: the last committed marker.** It names every id that was published and is not known to be purged,
  and commits together with the records themselves.
- **What is still to be published: the table, less the marker.**

Invariants

1. A row is purged only after the transaction that carried its record is known to be committed.
2. The last committed marker names every id that was published and may still be in the table. Each new marker therefore
   repeats what is not yet known to be purged.
3. A new owner purges the marker's ids before its first read. So whatever it reads was never published.
4. Batches are published one after the other, rows within a batch in id order, and reads never let a row overtake one
   that its transaction could have seen (`relay/scan.py`). So records of a key keep their order.

What if …

| the owner …                          | then                                                                          |
|---|---|
| dies before the commit is sent       | the broker aborts; readers see nothing; the rows are still there              |
| dies after the commit is sent        | `init_transactions` of the next owner settles it; the marker tells which way  |
| dies between commit and purge        | the next owner purges by the marker; nothing is sent again                    |
| is paused and wakes up later         | its commit is fenced; its purge removes only ids that are committed           |
| gets no answer to a commit           | it takes over from itself: fence, marker, purge                               |
| loses the database while purging     | ids stay in the marker until a purge is confirmed; `MAX_UNPURGED` batches     |
| loses the broker                     | the transaction is aborted or unknown; rows wait; nothing uses up attempts    |
| is fenced                            | it drops all it has in hand and must win the lease again                      |
| meets a record the broker refuses    | the transaction is aborted, the record's key held, the rest sent again        |
| finds its attempts used up           | the decision is committed as a marker, then the row moved (`parking.py`)      |
| dies between those two               | the next owner reads the marker and moves the row                             |

| the surroundings …                   | then                                                                          |
|---|---|
| two instances run with one group     | each `init_transactions` fences the other; the lease keeps that rare          |
| the marker topic is deleted          | rows published but not purged at that moment are published again              |
| the database is restored             | rows purged since the backup come back and are published again; new rows that |
|                                      | get ids which the marker names would be purged unsent: after a restore, give  |
|                                      | the relay a new group, whose marker topic is empty                            |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from inorder.ports.exceeded_store import ExceededStore, Exceeding
from inorder.ports.outbox_store import OutboxRow, OutboxStore, Scan
from inorder.ports.shard_log import ShardLog
from inorder.relay.limits import FIRST_ROWS, next_limit
from inorder.relay.marker import Marker, ranges
from inorder.relay.parking import Parking
from inorder.relay.scan import Horizon, after_scan, is_watching, next_scan, observe
from inorder.relay.settlement import Settlement

log = logging.getLogger("inorder.relay")

MAX_UNPURGED = 4
"""Published batches that may wait for their purge; bounds the marker and what a new owner has to purge."""

SWEEP_SECONDS = 60.0
"""How often the table is read from its head whatever is known about ids."""

LAST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to be published together, in id order, and the floor of the scan that read them."""

    rows: list[OutboxRow]
    floor: int
    is_full: bool = False
    """Whether more rows are waiting than were read."""

    @property
    def ids(self) -> list[int]:
        return [row.id for row in self.rows]


class Owner:
    """One term of owning a shard: from `take_over` until it ends by any error."""

    def __init__(
        self,
        store: OutboxStore,
        exceeded: ExceededStore,
        shard: ShardLog,
        *,
        batch_size: int,
        clock: Callable[[], float],
        look_seconds: float,
        retry_seconds: float,
    ) -> None:
        """An owner looks for released keys every `look_seconds` and purges again after `retry_seconds`."""
        self._store = store
        self._exceeded = exceeded
        self._shard = shard
        self._batch_size = batch_size
        self._limit = min(batch_size, FIRST_ROWS)
        self._clock = clock
        self._horizon = Horizon()
        self._parking = Parking()
        self._floor = 0
        self._swept_at = float("-inf")
        self._look_seconds = look_seconds
        self._looked_at = float("-inf")
        self._settlement = Settlement(store, retry_seconds)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="inorder-read")
        self._ahead: Future[Batch] | None = None

    def take_over(self) -> int:
        """Fences earlier owners and purges what they had published; returns how many rows that were."""
        marker = Marker.decode(self._shard.take_over())
        purged = self._store.purge(list(marker.ids()))
        if marker.exceeding is not None:
            self._exceeded.exceed(marker.exceeding)
        self._parking = Parking(self._exceeded.parked())
        self._floor = marker.floor
        self._horizon = Horizon(floor=marker.floor, last=marker.floor)
        self._settlement.start()
        log.info("relay.taken_over", extra={"purged": purged, "floor": marker.floor})
        return purged

    def claim(self) -> Batch:
        """The next batch, read ahead where one was; empty if there is nothing to do."""
        ahead, self._ahead = self._ahead, None
        return ahead.result() if ahead is not None else self._read()

    def sift(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """The rows that may go now; those of held keys wait."""
        return self._parking.sift(rows)

    def publish(self, batch: Batch) -> None:
        """Publishes the batch and hands it over to be purged; the next one is read meanwhile if it waits already.

        Without a backlog the next read is better made afterwards: it finds what is committed in the meantime.
        """
        self._settlement.wait_below(MAX_UNPURGED)
        if self._ahead is None and batch.is_full:
            self._ahead = self._reader.submit(self._read)
        ids = batch.ids
        marker = Marker((*self._settlement.unpurged(), *ranges(ids)), batch.floor)
        self._shard.publish(batch.rows, marker.encode())
        self._settlement.published(ids)
        self._parking.published(ids)
        self._floor = batch.floor

    def settle_delivered(self, ids: Sequence[int]) -> None:
        """Hands rows over to be purged that arrived although the rest of their batch did not."""
        self._settlement.published(ids)
        self._parking.published(ids)

    def refuse(self, row: OutboxRow) -> int:
        """Counts a refusal; returns how many attempts the row has used up."""
        return self._parking.refuse(row)

    def hold(self, row: OutboxRow, retry_at: float) -> None:
        """Holds a refused row and its key; `due` gives them back at `retry_at`."""
        self._parking.hold(row, retry_at)

    def exceed(self, row: OutboxRow, exceeding: Exceeding) -> None:
        """Moves a row out of the outbox: the decision is committed under the fence first, then carried out."""
        self._settlement.wait_below(MAX_UNPURGED)
        self._shard.publish((), Marker(self._settlement.unpurged(), self._floor, exceeding).encode())
        self._exceeded.exceed(exceeding)
        self._settlement.forget([row.id])
        self._parking.exceed(row, parks=exceeding.parks, now=self._clock())

    def due(self) -> Iterator[Batch]:
        """Batches of held keys whose time has come, or whom somebody released, read again from the table."""
        now = self._clock()
        waiting = self._parking.due(now)
        if self._parking.parked() and now - self._looked_at >= self._look_seconds:
            self._looked_at = now
            waiting += self._parking.release(self._exceeded.parked())
        for ids in waiting:
            for start in range(0, len(ids), self._batch_size):
                yield Batch(self.read_again(ids[start : start + self._batch_size]), self._floor)

    def close(self) -> None:
        """Ends the term: sends nothing more, purges what is known to be published, as far as the database allows."""
        self._shard.close()
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._settlement.stop()

    def _read(self) -> Batch:
        in_hand = self._settlement.in_hand()
        scan = next_scan(self._horizon, sweep=self._sweep_is_due())
        # Walks and sweeps return what is in hand once more; it must not crowd out what is new.
        limit = self._limit + (len(in_hand) if scan.above < self._horizon.last else 0)
        rows = self._store.read(scan, limit)
        self._horizon = after_scan(self._horizon, scan, [row.id for row in rows], in_hand=in_hand, limit=limit)
        if is_watching(self._horizon):
            self._horizon = observe(self._horizon, self._store.holders())
        self._limit = next_limit(self._limit, len(rows), sum(map(_size, rows)), self._batch_size)
        fresh = [row for row in rows if row.id not in in_hand] if in_hand else rows
        self._settlement.read([row.id for row in fresh])
        return Batch(fresh, self._horizon.floor, is_full=len(rows) >= limit)

    def read_again(self, ids: Sequence[int]) -> list[OutboxRow]:
        """Rows in hand as they are now, repaired perhaps; those that are gone are forgotten."""
        if self._ahead is not None:
            wait([self._ahead])  # the store's reading connection serves one thread at a time
        rows = self._store.read(Scan(above=LAST_ID, probes=tuple(ids)), 1)
        self._settlement.read([row.id for row in rows])
        self._settlement.forget(set(ids) - {row.id for row in rows})
        return rows

    def _sweep_is_due(self) -> bool:
        if self._clock() - self._swept_at < SWEEP_SECONDS:
            return False
        self._swept_at = self._clock()
        return True


def _size(row: OutboxRow) -> int:
    return len(row.value or b"") + len(row.key or b"")
