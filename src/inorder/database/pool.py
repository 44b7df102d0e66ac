"""A pool of things that are expensive to open: connections, or Kafka consumers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from inorder.model.errors import TransientError

T = TypeVar("T")

IDLE_SECONDS = 60.0

OnLent = Callable[[float, float], None]
"""Called after each loan with the seconds it took to get the thing, and the seconds it was used."""


def ignore_loan(taking: float, using: float) -> None:
    """The default `OnLent`."""


class Pool(Generic[T]):
    """Opens as many as are used at once, without a limit; closes what has been idle for a minute at the next return."""

    def __init__(
        self,
        open_one: Callable[[], T],
        close_one: Callable[[T], object],
        clock: Callable[[], float] = time.monotonic,
        on_lent: OnLent = ignore_loan,
    ) -> None:
        self._on_lent = on_lent
        self._open_one = open_one
        self._close_one = close_one
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[tuple[float, T]] = []
        self._is_closed = False

    @property
    def idle(self) -> int:
        """How many are in the pool and unused."""
        return len(self._idle)

    @contextmanager
    def lent(self) -> Iterator[T]:
        """Lends one for the block; if the block fails, it is closed instead of returned."""
        asked_at = self._clock()
        thing = self._take()
        taken_at = self._clock()
        try:
            yield thing
        except GeneratorExit:  # a reader that stops early leaves it usable
            self._give_back(thing)
            raise
        except BaseException:
            self._close_one(thing)
            raise
        else:
            self._give_back(thing)
        finally:
            self._on_lent(taken_at - asked_at, self._clock() - taken_at)

    def close(self) -> None:
        """Closes the idle ones now and the others when they are returned; may be called twice."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for _, thing in idle:
            self._close_one(thing)

    def _take(self) -> T:
        with self._lock:
            if self._is_closed:
                raise TransientError("The pool is closed.", hint="Open another.")
            if self._idle:
                return self._idle.pop()[1]
        return self._open_one()

    def _give_back(self, thing: T) -> None:
        now = self._clock()
        with self._lock:
            over = [kept for since, kept in self._idle if now - since > IDLE_SECONDS]
            self._idle = [(since, kept) for since, kept in self._idle if now - since <= IDLE_SECONDS]
            if self._is_closed:
                over.append(thing)
            else:
                self._idle.append((now, thing))
        for each in over:
            self._close_one(each)
