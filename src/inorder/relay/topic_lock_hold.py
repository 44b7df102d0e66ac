"""Our lock on one topic as far as we know it, and the heart that keeps it while a batch is on the way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from inorder.model.errors import FencedError, TransientError
from inorder.ports.topic_store import TopicStore
from inorder.relay.topic_lock_rules import must_ask

log = logging.getLogger("inorder.relay")

BEATS_A_LOCK = 4
"""How often the heart beats in the time after which a lock is stale."""


class Hold:
    """One worker's lock on one topic, from `lock` to `unlock`."""

    def __init__(
        self, store: TopicStore, topic: str, worker: UUID, *, lock_seconds: float, clock: Callable[[], float]
    ) -> None:
        self.topic = topic
        self._store = store
        self._worker = worker
        self._lock_seconds = lock_seconds
        self._clock = clock
        self._confirmed_at = clock()
        self._is_lost = False

    def beat(self) -> None:
        """Renews the lock; any thread may."""
        asked_at = self._clock()
        if self._store.heartbeat(self.topic, self._worker):
            self._confirmed_at = asked_at
        else:
            self._is_lost = True

    def require(self) -> None:
        """Raises `FencedError` if the lock is known to be lost, and asks for it if it may be."""
        if not self._is_lost and must_ask(self._clock(), self._confirmed_at, self._lock_seconds):
            self.beat()
        if self._is_lost:
            raise FencedError(f"The lock of topic {self.topic!r} was taken from worker {self._worker}.")

    @contextmanager
    def confirming(self) -> Iterator[None]:
        """Around a call of the store that renews the lock by itself."""
        asked_at = self._clock()
        yield
        self._confirmed_at = asked_at


class Heart:
    """Beats for a hold while its batch is on the way, on a thread of its own."""

    def __init__(self, lock_seconds: float) -> None:
        self._seconds = lock_seconds / BEATS_A_LOCK
        self._changed = threading.Condition()
        self._hold: Hold | None = None
        self._batch = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="inorder-heart", daemon=True)
        self._thread.start()

    @contextmanager
    def beating(self, hold: Hold) -> Iterator[None]:
        """Keeps the lock for as long as the block lasts."""
        self._set(hold)
        try:
            yield
        finally:
            self._set(None)

    def close(self) -> None:
        """Ends the thread; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _set(self, hold: Hold | None) -> None:
        with self._changed:
            self._hold = hold
            self._batch += 1
            self._changed.notify_all()

    def _run(self) -> None:
        while (hold := self._next()) is not None:
            try:
                hold.beat()
            except TransientError as error:
                log.warning("relay.heartbeat_failed: %s", error, extra={"topic": hold.topic})

    def _next(self) -> Hold | None:
        """The hold to beat for, once one has been on its way for a while; None at the end."""
        with self._changed:
            while not self._is_closed:
                hold, batch = self._hold, self._batch
                woken = self._changed.wait(self._seconds if hold else None)
                if hold is not None and not woken and self._batch == batch:
                    return hold
            return None
