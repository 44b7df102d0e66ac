"""Where idle workers of a process rest: one of them listens for publishers, the others wait for it, or for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable

from inorder.ports.outbox_store import Sleeper

IDLE_SECONDS = 0.5


LOOK_SECONDS = 0.2
"""How soon a resting worker notices that it is to stop."""


class Rest:
    """Shared by the workers of a relay."""

    def __init__(
        self,
        sleeper: Sleeper,
        *,
        stop: threading.Event,
        idle_seconds: float = IDLE_SECONDS,
        brief_seconds: float | None = None,
    ) -> None:
        """`brief_seconds` is the pause while publishers cannot be asked, because one is about to commit."""
        self._sleeper = sleeper
        self._stop = stop
        self._idle_seconds = idle_seconds
        self._brief_seconds = idle_seconds if brief_seconds is None else brief_seconds
        self._listening = threading.Lock()
        self._woken = threading.Condition()

    def pause(self, has_work: Callable[[], bool]) -> None:
        """Returns when a publisher woke us, or after a while; `has_work` finds what was committed just before."""
        if not self._listening.acquire(blocking=False):
            self._wait(self._wait_for_listener, self._idle_seconds)
            return
        try:
            woken = self._listen(has_work)
        finally:
            self._listening.release()
        if woken:
            with self._woken:
                self._woken.notify_all()

    def close(self) -> None:
        """Gives the connection back."""
        self._sleeper.close()

    def _listen(self, has_work: Callable[[], bool]) -> bool:
        asleep = self._sleeper.begin_sleep()
        try:
            if asleep and has_work():
                return True
            return self._wait(self._sleeper.wait, self._idle_seconds if asleep else self._brief_seconds)
        finally:
            self._sleeper.end_sleep()

    def _wait_for_listener(self, seconds: float) -> bool:
        with self._woken:
            return self._woken.wait(seconds)

    def _wait(self, wait: Callable[[float], bool], seconds: float) -> bool:
        """Waits so long, and no longer than until the stop; whether somebody woke us."""
        left = seconds
        while left > 0 and not self._stop.is_set():
            if wait(min(left, LOOK_SECONDS)):
                return True
            left -= LOOK_SECONDS
        return False
