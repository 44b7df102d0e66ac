"""The mark-purge protocol: rows are claimed in the table itself, by the id of the leader that will publish them.

    mark (oldest rows not ours ──▶ leader_id = ours) ──▶ publish ──▶ purge
      ▲                                                    │ trouble
      └────────── a new leader id marks them again ◀── reset

It is goharvest's protocol, for tables that other tools read: `leader_id` shows which leader works on a row. It writes
each row once more than `drain` does, and need not track missing ids, because every mark begins below all ids that may
still appear: a row that commits late is found by the next one. It begins at the floor of `relay/scan.py`,
so that it does not walk over deleted rows that an old snapshot keeps.

What is authoritative:

- **Who publishes: the broker's fence** (`relay/term.py`), as with `drain`. A mark fences no one.
- **What was published: the last committed marker**, in delivery `exactly-once`. In `at-least-once` there is none, and
  what is in the table counts as unpublished. Rows are purged by content, as with `drain`, where the session may have
  changed since they were marked.
- **What this term has in hand: the mark.** A leader id is used for one term only. So a row that carries it was claimed
  in this term, and a row that carries another is free.

Invariants

1. A mark is one statement: its rows are seen by one snapshot and come out in id order, so that no row overtakes one
   that its transaction could have seen.
2. A row is purged only after its record is acknowledged.
3. Rows that wait, because their key or topic is held, keep the mark. So the next mark does not return them.
4. Any doubt ends the term, and the next one has a new leader id: everything not purged is claimed again.

What if …

| what                                       | then                                                                    |
|---|---|
| the answer to a mark is lost               | the term ends; the new leader id claims the rows, marked or not         |
| the leader dies after a mark               | the next leader's id differs from the mark: it claims them              |
| the session of the marks ends              | the term ends: another server may give ids out again (`drain.py`)       |
| the leader is paused within a mark         | PostgreSQL ends its session after 10 s, and the next one claims them    |
| the leader dies between publish and purge  | exactly-once: the marker names the rows, they are purged unsent;        |
|                                            | at-least-once: they are sent again                                      |
| a record is refused                        | it and its key wait, marked; all others continue (`parking.py`)         |
| leadership is lost                         | the batch in flight ends, is purged, the rest is reset                  |
| the reset fails                            | nothing: a mark of a past term is no claim                              |
| two leaders mark at once                   | they take rows from each other until the fence stops one; a row that is |
|                                            | in hand and comes back with the next mark is not taken twice            |
| rows are too large to be read together     | all are marked; those that fit are published first, and the others are  |
|                                            | read by their ids before the next mark                                  |
| a row set aside is put back                | it carries no mark, and its key waits: its shard claims it by its id    |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from inorder.model.errors import TransientError
from inorder.relay.marker import Marker
from inorder.relay.purge_queue import TakeOver, purge_marker, purge_rows, require_same_server
from inorder.relay.scan import BATCH_BYTES, Horizon, Sweeps, after_mark, next_limit, observe
from inorder.relay.stores.ports import MarkStore, Page
from inorder.relay.term import Batch

log = logging.getLogger("inorder.relay")

IN_FLIGHT_LIMIT = 1000


class MarkPurgeClaims:
    """The claims of one term, under one leader id."""

    def __init__(
        self,
        store: MarkStore,
        leader_id: UUID,
        mark_limit: int,
        clock: Callable[[], float] = time.monotonic,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._store = store
        self._leader_id = leader_id
        self._mark_limit = self._limit = mark_limit
        self._batch_bytes = batch_bytes
        self._rest: Sequence[int] = ()
        """Marked and not read yet, because they were too large to be read with others."""
        self._horizon = Horizon()
        self._sweeps = Sweeps(clock)
        self._is_idle = False
        self._session: int | None = None

    def begin(self, marker: Marker) -> TakeOver:
        found = purge_marker(self._store, marker)
        self._session = self._store.session()
        origin = self._store.begin_reads()
        self._store.mark_again(self._leader_id, ())  # opens the session that marks, where that is one of its own
        require_same_server(self._store, found, origin)
        return found

    def claim(self, in_hand: Callable[[], frozenset[int]]) -> Batch:
        """Marks the oldest free rows; rows in hand carry our mark, unless a past leader removed it."""
        held = in_hand()
        page = self._read_rest() if self._rest else self._mark(held)
        self._limit = next_limit(self._limit, page.rows, self._mark_limit, self._batch_bytes)
        return Batch([row for row in page.rows if row.id not in held], is_full=page.is_full)

    def _mark(self, held: frozenset[int]) -> Page:
        sweeps = self._sweeps.are_due(is_idle=self._is_idle)
        above = 0 if sweeps else self._horizon.floor
        page = self._store.mark(self._leader_id, self._limit, above=above, max_bytes=self._batch_bytes)
        if sweeps:
            self._sweeps.end()
        self._rest, self._is_idle = page.rest, not page.rows
        self._horizon = after_mark(self._horizon, above, page, in_hand=held)
        if self._horizon.floor < self._horizon.last:
            self._horizon = observe(self._horizon, self._store.holders())
        return page

    def _read_rest(self) -> Page:
        """The next of the rows that a mark has claimed; only then is there another mark."""
        some, later = self._rest[: self._limit], self._rest[self._limit :]
        page = self._store.mark_again(self._leader_id, some, self._batch_bytes)
        self._rest = [*page.rest, *later]
        return replace(page, is_full=True)

    def read_again(self, ids: Sequence[int]) -> Page:
        """Claims rows that waited, as they are now."""
        return self._store.mark_again(self._leader_id, ids, self._batch_bytes)

    def purge(self, ids: Sequence[int], proofs: Callable[[], Mapping[int, int]], /) -> None:
        gone = len(ids) - purge_rows(self._store, self._session, ids, proofs)
        if gone:
            log.warning("relay.purged_by_others", extra={"rows": gone})

    def end(self) -> None:
        """Removes our mark from what is left, so that no row names a leader that is gone."""
        try:
            self._store.reset(self._leader_id)
        except TransientError as error:
            log.warning("relay.reset_failed", extra={"error": str(error)})


@dataclass(frozen=True, slots=True)
class MarkPurgeStrategy:
    """Claims rows by marking them; at most `in_flight_limit` are marked, sent and not acknowledged."""

    store: MarkStore
    batch_size: int
    in_flight_limit: int = IN_FLIGHT_LIMIT
    batch_bytes: int = BATCH_BYTES

    def claims(self, leader_id: UUID, /) -> MarkPurgeClaims:
        """One batch is marked while another is sent, so each has half of `in_flight_limit`."""
        limit = max(1, min(self.batch_size, self.in_flight_limit // 2))
        return MarkPurgeClaims(self.store, leader_id, limit, batch_bytes=self.batch_bytes)
