"""Purges published rows beside the loop, and knows at any moment what is not purged yet.

**By id, or by content.** On the session with which the term began a purge goes by ids. Another session may be on a
server that gave out the ids again, whether or not a purge failed in between: the connection may have been replaced
because a read failed. So once the session is another one, the rest of the term purges by content: a row that only has
the id stays, is no longer in hand, and is found by the next sweep (`relay/scan.py`). So does a relay behind a pooler or
with reads from a replica, where a session may change without our notice. A session does not show that the table was
truncated and its ids begin again, so the stores compare that with each purge, and begin another session.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Protocol

from inorder.model.errors import InorderError, TransientError, UnreachableError
from inorder.model.message import OutboxRow
from inorder.relay.marker import (
    BATCH_BYTES,
    MARKER_BYTES,
    MOST_PHANTOMS,
    Marker,
    PublishedBatch,
    Range,
    prove,
    ranges,
    spans_text,
    split,
)
from inorder.relay.stores.ports import Origin, PurgingStore

log = logging.getLogger("inorder.relay")

PATIENCE_SECONDS = 5.0
"""How long an owner waits for the database before it ends its term, so that it can be stopped."""

LINGER_SECONDS = 0.02
ENOUGH_ROWS = 500
"""Fewer rows than `ENOUGH_ROWS` wait up to `LINGER_SECONDS` for others to be purged with."""

MOST_ROWS = 20_000
"""Rows in one purge, unless a single batch has more."""


MOST_BYTES = MARKER_BYTES - BATCH_BYTES - 20_000
"""What rows that are not purged yet may take in the marker; the rest is for the next batch and single fields."""


class PurgeRows(Protocol):
    """Removes published rows."""

    def __call__(self, ids: Sequence[int], proofs: Callable[[], Mapping[int, int]], /) -> object:
        """Removes rows by id where that is safe, else those that match their proofs."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """What a new owner found of what earlier ones published."""

    purged: int = 0
    replaced: tuple[int, ...] = ()
    """Ids of the marker whose rows are others: they are left to be published."""
    origin: Origin = Origin()  # noqa: RUF009 - it is frozen
    floor: int = 0
    """Up to where no id will appear any more, if the strategy reads on from there."""
    exceeds: bool = True
    """Whether the row that used up its attempts, if the marker names one, is still the one with that id."""


def purge_marker(store: PurgingStore, marker: Marker) -> TakeOver:
    """Purges the rows that a marker names, and no others that have their ids; markers of version 1 have only ids."""
    origin, proofs = store.origin(), marker.rows()
    exceeds = is_row_of_decision(store, marker)
    if proofs is None:
        return TakeOver(store.purge(list(marker.ids())), (), origin, exceeds=exceeds)
    purged, replaced = purge_proven(store, list(proofs), proofs)
    return TakeOver(purged, tuple(replaced), origin, exceeds=exceeds)


def is_row_of_decision(store: PurgingStore, marker: Marker) -> bool:
    """Whether the row that the marker's decision is about is still the one that has its id, as far as is known."""
    if marker.exceeding is None or marker.exceeding_proof is None:
        return True
    return marker.exceeding_proof in prove(store.rows_to_purge([marker.exceeding.row_id]).rows)


def require_same_server(store: PurgingStore, found: TakeOver, reads: Origin) -> None:
    """Raises `UnreachableError` unless a term reads from the server on which it has purged the marker's rows.

    The session that purged may end unnoticed before the one that reads is opened. That may then be on a server that was
    promoted without the last purges, or restarted without having flushed them, and shows published rows again. A server
    that was promoted has another name. A server that was restarted has the same one, but it has ended the session that
    purged: so that is asked again, after the reads have begun.
    """
    if len({found.origin.server, reads.server, store.origin().server} - {None}) > 1:
        raise UnreachableError("The database was replaced during the take-over.")


def purge_rows(
    store: PurgingStore, session: int | None, ids: Sequence[int], proofs: Callable[[], Mapping[int, int]]
) -> int:
    """Purges rows that were read in this term, which began with `session`. Returns how many there were."""
    if session is not None and store.session() == session:
        return store.purge(ids, session)
    purged, replaced = purge_proven(store, ids, proofs())
    if replaced:
        report_lost(replaced)
    return purged


def report_lost(replaced: Sequence[int], lost: Sequence[Range] = (), server: str | None = None) -> None:
    """Logs that the database went back in time: ids with other rows, and ids of published rows that are lost."""
    named = spans_text(lost or ranges(sorted(replaced))[-MOST_PHANTOMS:])
    log.error("relay.database_went_back", extra={"replaced": len(replaced), "phantoms": named, "server": server})


def purge_proven(store: PurgingStore, ids: Sequence[int], proofs: Mapping[int, int]) -> tuple[int, list[int]]:
    """Purges those rows that match their proof; returns how many, and the ids of those that do not.

    The rows are read and deleted on one session: what was read cannot be replaced before it is deleted.
    """
    purged, replaced, left = 0, list[int](), deque(ids)
    while left:
        session = store.session()
        ours, others = split(read_some(store, left), proofs)
        purged += store.purge(ours, session)
        replaced += others
    return purged, replaced


def read_some(store: PurgingStore, left: deque[int]) -> list[OutboxRow]:
    """Reads the first of some rows, as many as may be in memory at once, and takes their ids off."""
    page = store.rows_to_purge([left.popleft() for _ in range(min(len(left), PROVEN_ROWS))], PROVEN_BYTES)
    left.extendleft(reversed(page.rest))
    return page.rows


PROVEN_ROWS = 1000
PROVEN_BYTES = 8 * 1024 * 1024
"""Rows whose content is read at once, beside those that are on their way."""


class PurgeQueue:
    """Ids in hand: read, perhaps published, not yet known to be purged.

    Its own thread purges published batches in order, small ones together: a busy relay publishes two hundred a second.
    An id leaves only when its DELETE is known to be committed, so `unpurged` never omits one. Purging twice is
    harmless, forgetting is not.
    """

    def __init__(self, purge: PurgeRows, retry_seconds: float) -> None:
        self._purge = purge
        self._retry_seconds = retry_seconds
        self._changed = threading.Condition()
        self._in_hand: set[int] = set()
        self._published: deque[PublishedBatch] = deque()
        self._rows = 0
        self._bytes = 0
        self._is_awaited = False
        self._failure: InorderError | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._purge_published, name="inorder-purge", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Purges what is left unless the database is unreachable; the marker covers what stays."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def in_hand(self) -> frozenset[int]:
        """The ids in hand now. Call it **before** a scan begins to know which of its rows are not new."""
        with self._changed:
            return frozenset(self._in_hand)

    def take(self, ids: Sequence[int]) -> None:
        """Takes ids in hand."""
        with self._changed:
            self._in_hand.update(ids)

    def add(self, batch: PublishedBatch) -> None:
        """Adds rows to be purged; the transaction that carried them is committed."""
        with self._changed:
            self._published.append(batch)
            self._rows += len(batch.ids)
            self._bytes += batch.bytes
            if len(self._published) == 1 or self._rows >= ENOUGH_ROWS:
                self._changed.notify_all()

    def forget(self, ids: Iterable[int]) -> None:
        """Drops ids that left the table in another way."""
        with self._changed:
            self._in_hand.difference_update(ids)

    def unpurged(self) -> tuple[PublishedBatch, ...]:
        """Rows published and not known to be purged."""
        with self._changed:
            return tuple(self._published)

    def wait_below(self, batches: int, rows: int) -> None:
        """Waits until fewer batches and rows than these wait to be purged; raises what made the purge fail."""
        with self._changed:
            self._is_awaited = not self._is_below(batches, rows)
            if self._is_awaited:
                self._changed.notify_all()
            settled = self._changed.wait_for(
                lambda: self._is_below(batches, rows) or self._failure is not None, PATIENCE_SECONDS
            )
            self._is_awaited = False
            self.require_working()
            if not settled:
                raise UnreachableError(f"Purging {self._rows} published rows timed out after {PATIENCE_SECONDS:g} s.")

    def require_working(self) -> None:
        """Raises what made the purge fail, if only an operator can repair that."""
        if self._failure is not None:
            raise self._failure

    def _is_below(self, batches: int, rows: int) -> bool:
        return len(self._published) < batches and self._rows < rows and self._bytes < MOST_BYTES

    def _purge_published(self) -> None:
        while batches := self._next():
            ids = list(chain.from_iterable(batch.ids for batch in batches))
            try:
                self._purge(ids, partial(_proofs_of, batches))
            except TransientError as error:
                log.warning("relay.purge_failed", extra={"rows": len(ids), "error": str(error), "code": error.code})
                if self._pause():
                    return
            except InorderError as error:
                log.error("relay.purge_failed", extra={"rows": len(ids), "error": str(error), "code": error.code})
                self._fail(error)
                return
            else:
                self._purged(batches, ids)

    def _next(self) -> list[PublishedBatch]:
        """The batches to purge now, once there are enough rows; none after `stop`."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._published) or self._stopping)
            self._changed.wait_for(self._is_due, LINGER_SECONDS)
            taken, rows = list[PublishedBatch](), 0
            for batch in self._published:
                rows += len(batch.ids)
                if taken and rows > MOST_ROWS:
                    break
                taken.append(batch)
            return taken

    def _is_due(self) -> bool:
        return self._rows >= ENOUGH_ROWS or self._is_awaited or self._stopping

    def _purged(self, batches: Sequence[PublishedBatch], ids: Sequence[int]) -> None:
        with self._changed:
            for batch in batches:
                self._published.popleft()
                self._rows -= len(batch.ids)
                self._bytes -= batch.bytes
            self._in_hand.difference_update(ids)
            self._changed.notify_all()

    def _fail(self, error: InorderError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _pause(self) -> bool:
        """Waits before the next attempt; True if `stop` was called meanwhile."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopping, self._retry_seconds)


def _proofs_of(batches: Sequence[PublishedBatch]) -> dict[int, int]:
    return {id: proof for batch in batches for id, proof in zip(batch.ids, batch.proofs, strict=True)}
