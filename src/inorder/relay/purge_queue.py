"""Purges published rows beside the loop, and knows at any moment what is not purged yet."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from inorder.model.errors import InorderError, TransientError, UnreachableError
from inorder.relay.marker import Range, ranges

log = logging.getLogger("inorder.relay")

PATIENCE_SECONDS = 5.0
"""How long an owner waits for the database before it ends its term, so that it can be stopped."""

LINGER_SECONDS = 0.02
ENOUGH_ROWS = 500
"""Fewer rows than `ENOUGH_ROWS` wait up to `LINGER_SECONDS` for others to be purged with."""

MOST_ROWS = 20_000
"""Rows in one purge, unless a single batch has more."""


class PurgeQueue:
    """Ids in hand: read, perhaps published, not yet known to be purged.

    Its own thread purges published batches in order, small ones together: a busy relay publishes two hundred a second.
    An id leaves only when its DELETE is known to be committed, so `unpurged` never omits one. Purging twice is
    harmless, forgetting is not.
    """

    def __init__(self, purge: Callable[[Sequence[int]], object], retry_seconds: float) -> None:
        self._purge = purge
        self._retry_seconds = retry_seconds
        self._changed = threading.Condition()
        self._in_hand: set[int] = set()
        self._published: deque[Sequence[int]] = deque()
        self._rows = 0
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

    def add(self, ids: Sequence[int]) -> None:
        """Adds ids to be purged; the transaction that carried them is committed."""
        with self._changed:
            self._published.append(ids)
            self._rows += len(ids)
            if len(self._published) == 1 or self._rows >= ENOUGH_ROWS:
                self._changed.notify_all()

    def forget(self, ids: Iterable[int]) -> None:
        """Drops ids that left the table in another way."""
        with self._changed:
            self._in_hand.difference_update(ids)

    def unpurged(self) -> tuple[Range, ...]:
        """Ids published and not known to be purged."""
        with self._changed:
            return tuple(span for ids in self._published for span in ranges(sorted(ids)))

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
            if self._failure is not None:
                raise self._failure
            if not settled:
                raise UnreachableError(f"Purging {self._rows} published rows timed out after {PATIENCE_SECONDS:g} s.")

    def _is_below(self, batches: int, rows: int) -> bool:
        return len(self._published) < batches and self._rows < rows

    def _purge_published(self) -> None:
        while batches := self._next():
            ids = [id for batch in batches for id in batch]
            try:
                self._purge(ids)
            except TransientError as error:
                log.warning("relay.purge_failed", extra={"rows": len(ids), "error": str(error)})
                if self._pause():
                    return
            except InorderError as error:
                self._fail(error)
                return
            else:
                self._purged(len(batches), ids)

    def _next(self) -> list[Sequence[int]]:
        """The batches to purge now, once there are enough rows; none after `stop`."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._published) or self._stopping)
            self._changed.wait_for(self._is_due, LINGER_SECONDS)
            taken, rows = list[Sequence[int]](), 0
            for batch in self._published:
                rows += len(batch)
                if taken and rows > MOST_ROWS:
                    break
                taken.append(batch)
            return taken

    def _is_due(self) -> bool:
        return self._rows >= ENOUGH_ROWS or self._is_awaited or self._stopping

    def _purged(self, batches: int, ids: Sequence[int]) -> None:
        with self._changed:
            for _ in range(batches):
                self._rows -= len(self._published.popleft())
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
