"""Asks somebody now and then, on a thread of its own: whoever reads the answer must not wait for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from inorder.model.errors import InorderError

log = logging.getLogger("inorder.health")

T = TypeVar("T")

READ_SECONDS = 10.0
"""Between questions: what waits is counted, which is work."""


class Watch(Generic[T]):
    """Keeps the last answer and its age; `what` names the question in logs and threads."""

    def __init__(self, what: str, ask: Callable[[], T], *, seconds: float = READ_SECONDS) -> None:
        self._what = what
        self._ask = ask
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"inorder-{what}-watch", daemon=True)
        self._last: tuple[float, T] | None = None
        self.failure = ""
        """Why the last question has no answer; empty where it has one."""

    @property
    def last(self) -> tuple[float, T] | None:
        """The last answer after its age in seconds; None before the first."""
        if self._last is None:
            return None
        at, found = self._last
        return time.monotonic() - at, found

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Asks no more; does not wait for an answer that is still to come."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                found = self._ask()
            except InorderError as error:
                self.failure = error.message
                log.info("health.%s_not_read: %s", self._what, error)
            else:
                self._last, self.failure = (time.monotonic(), found), ""
            self._stop.wait(self._seconds)
