"""The drain protocol: from outbox rows to Kafka records, exactly once and in order per key.

One owner per shard reads the oldest rows, publishes them in one Kafka transaction and deletes them:

    read ──▶ publish (records + marker, one transaction) ──▶ purge
      ▲                                                        │
      └── the next batch is read while the last one commits ◀──┘

Three stores take part and cannot commit together: the outbox table, the topics and the owner's memory, which may
be lost at any moment. What is authoritative:

- **Who owns the shard: the broker.** `init_transactions` with the shard's `transactional.id` fences each earlier owner.
  A lease is a hint who should try (`leadership/lease.py`).
- **What was published: the last committed marker.** It names every row that was published and is not known to be
  purged, by id and content, and commits together with the records themselves.
- **What is still to be published: the table, less the marker.**

Invariants

1. A row is purged only after the transaction that carried its record is known to be committed.
2. The last committed marker names every row that was published and may still be in the table. Each new marker therefore
   repeats what is not yet known to be purged.
3. A new owner purges the marker's rows before its first read. So nothing that it reads was published before. It purges
   no other row that has got an id of the marker: a purge goes by content unless the session has been the same since the
   rows were read.
4. Batches are published one after the other, rows within a batch in id order, and reads never let a row overtake one
   that its transaction could have seen (`relay/scan.py`). So records of a key keep their order.
5. All reads of a term are of one session. What is known of ids (the floor, what is missing) holds for the server that
   gave them out: one that lost its last commits gives ids out again, perhaps below the floor. So a term begins with the
   floor of the marker only if its own session shows nothing of the kind, and ends when that session does.

What if …

| the owner …                          | then                                                                          |
|---|---|
| dies before the commit is sent       | the broker aborts; readers see nothing; the rows are still there              |
| dies after the commit is sent        | `init_transactions` of the next owner settles it; the marker shows which way  |
| dies between commit and purge        | the next owner purges by the marker; nothing is sent again                    |
| is paused and wakes up later         | its commit is fenced; its purge removes only ids that are committed           |
| gets no answer to a commit           | it takes over from itself: fence, marker, purge                               |
| gets the answer late                 | the client may have repeated the commit: the ids are initialised again first  |
| loses the database while purging     | ids stay in the marker until a purge is confirmed; their number has a bound   |
| loses the broker                     | the transaction is aborted or unknown; rows wait; no attempts are used up     |
| is fenced                            | it drops all it has in hand and must win the lease again                      |
| meets a record the broker refuses    | the transaction is aborted, the record's key held, the rest sent again        |
| finds its attempts used up           | the decision is committed as a marker, then the row moved (`parking.py`)      |
| dies between those two               | the next owner reads the marker and moves the row                             |

| the surroundings …                   | then                                                                          |
|---|---|
| two instances run with one group     | each `init_transactions` fences the other; the lease keeps that rare          |
| the marker topic is deleted          | rows published but not purged at that moment are published again              |
| the database loses its last commits  | rows whose purge was lost come back: those that the last marker names are     |
|                                      | purged, earlier ones are published again; new rows with ids of the marker are |
|                                      | published (`marker.py`): reads begin at the head, since transactions that are |
|                                      | open may hold any of the ids; rows that were published and are lost are named |
| … under a running term               | its session ends, so does the term; a purge that reconnects reconnects reads  |
| … during a take-over                 | reads begin on the server that purged by the marker, or the term ends         |
| ids are set back, or the table is    | new rows are found by a sweep, and published; what the marker names is        |
| truncated                            | another row; a purge notices a TRUNCATE, deletes nothing and ends the term    |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from inorder.model.message import OutboxRow
from inorder.relay.marker import Marker, settled_floor
from inorder.relay.purge_queue import TakeOver, purge_marker, purge_rows, require_same_server
from inorder.relay.scan import (
    BATCH_BYTES,
    FIRST_ROWS,
    Horizon,
    Sweeps,
    after_scan,
    is_sweep_only,
    is_watching,
    next_limit,
    next_scan,
    observe,
)
from inorder.relay.stores.ports import LAST_ID, OutboxStore, Page, Scan
from inorder.relay.term import Batch

MOST_SWEPT_IN_HAND = 50_000
"""Rows in hand that a sweep may return again; with more of them waiting it reads only the head of the table."""


class DrainClaims:
    """The claims of one term: reads rows in the order in which they may be published, and removes them by id."""

    def __init__(
        self,
        store: OutboxStore,
        *,
        batch_size: int,
        clock: Callable[[], float],
        shards: int = 1,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._store = store
        self._batch_size = batch_size
        self._batch_bytes = batch_bytes
        self._limit = min(batch_size, FIRST_ROWS)
        self._shards = shards
        self._horizon = Horizon()
        self._session: int | None = None
        self._sweeps = Sweeps(clock)
        self._is_idle = False

    def begin(self, marker: Marker) -> TakeOver:
        """Purges what earlier owners published; reads continue from the floor they had reached, if it still holds."""
        found = purge_marker(self._store, marker)
        self._session = self._store.session()
        origin = self._store.begin_reads()
        require_same_server(self._store, found, origin)
        floor = settled_floor(marker, replaced=bool(found.replaced), origin=origin)
        self._horizon = Horizon(floor=floor, last=floor)
        return replace(found, floor=floor)

    def claim(self, in_hand: Callable[[], frozenset[int]]) -> Batch:
        """The next rows; `in_hand` is called **before** the scan, so that rows met again are recognized."""
        sweeps = self._sweeps.are_due(is_idle=self._is_idle)
        batch = self._scan(next_scan(self._horizon, sweep=sweeps), in_hand)
        if sweeps:
            self._sweeps.end()
            if not batch.rows:  # it leaves what is above the last id to a scan that reads on, which we may be woken for
                batch = self._scan(next_scan(self._horizon), in_hand)
        self._is_idle = not batch.rows
        return batch

    def _scan(self, scan: Scan, in_hand: Callable[[], frozenset[int]]) -> Batch:
        # Walks and sweeps meet rows in hand once more; these must not crowd out new rows.
        held = in_hand() if scan.walk else frozenset()
        scan = replace(scan, held=held, max_bytes=self._batch_bytes)
        page = self._store.read(scan, self._limit_of(scan, held))
        fresh = self._fresh(scan, page, held)
        self._horizon = after_scan(self._horizon, scan, page, in_hand=held)
        if is_watching(self._horizon):
            self._horizon = observe(self._horizon, self._store.holders())
        self._limit = next_limit(self._limit, fresh, self._batch_size, self._batch_bytes)
        return Batch(fresh, self._horizon.floor, is_full=page.is_full, others_move=bool(page.others) and not scan.walk)

    def read_again(self, ids: Sequence[int]) -> Page:
        """Rows as they are now, perhaps repaired."""
        return self._store.read(Scan(above=LAST_ID, probes=tuple(ids), max_bytes=self._batch_bytes), 1)

    def purge(self, ids: Sequence[int], proofs: Callable[[], Mapping[int, int]], /) -> None:
        purge_rows(self._store, self._session, ids, proofs)

    def end(self) -> None:
        """A claim leaves no trace in the table."""

    def _limit_of(self, scan: Scan, held: frozenset[int]) -> int:
        if not scan.walk:
            return self._limit * self._shards
        if scan.above < self._horizon.floor:
            return self._limit + min(len(held), MOST_SWEPT_IN_HAND)
        return self._limit + sum(id > scan.above for id in held)

    def _fresh(self, scan: Scan, page: Page, held: frozenset[int]) -> list[OutboxRow]:
        if not scan.walk:
            return page.rows
        end = self._horizon.last if is_sweep_only(self._horizon, scan) else LAST_ID
        return [row for row in page.rows if row.id not in held and row.id <= end]


@dataclass(frozen=True, slots=True)
class DrainStrategy:
    """Claims rows by reading on; `shards` is how many shards the rows that it meets belong to."""

    store: OutboxStore
    batch_size: int
    shards: int = 1
    clock: Callable[[], float] = time.monotonic
    batch_bytes: int = BATCH_BYTES

    def claims(self, _leader_id: UUID, /) -> DrainClaims:
        return DrainClaims(
            self.store,
            batch_size=self.batch_size,
            clock=self.clock,
            shards=self.shards,
            batch_bytes=self.batch_bytes,
        )
