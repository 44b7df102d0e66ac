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
    """Opens as many as are used at once, up to a limit; closes what has been idle for a minute at the next return."""

    def __init__(
        self,
        open_one: Callable[[], T],
        close_one: Callable[[T], object],
        clock: Callable[[], float] = time.monotonic,
        on_lent: OnLent = ignore_loan,
        most: int | None = None,
    ) -> None:
        """With `most` in use, a user waits until one is returned; None is no limit."""
        self._on_lent = on_lent
        self._most = most
        self._lent = 0
        self._open_one = open_one
        self._close_one = close_one
        self._clock = clock
        self._returned = threading.Condition()
        self._idle: list[tuple[float, T]] = []
        self._is_closed = False

    @property
    def idle(self) -> int:
        """How many are in the pool and unused."""
        return len(self._idle)

    @contextmanager
    def lent(self, seconds: float | None = None) -> Iterator[T]:
        """Lends one for the block; if the block fails, it is closed instead of returned.

        Where all are in use it waits, at most so many seconds, then raises `TransientError`.
        """
        asked_at = self._clock()
        thing = self._take(seconds)
        taken_at = self._clock()
        try:
            yield thing
        except GeneratorExit:  # a reader that stops early leaves it usable
            self._give_back(thing)
            raise
        except BaseException:
            self._count_return()
            self._close_one(thing)
            raise
        else:
            self._give_back(thing)
        finally:
            self._on_lent(taken_at - asked_at, self._clock() - taken_at)

    def close(self) -> None:
        """Closes the idle ones now and the others when they are returned; may be called twice."""
        with self._returned:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._returned.notify_all()
        for _, thing in idle:
            self._close_one(thing)

    def _take(self, seconds: float | None) -> T:
        with self._returned:
            is_free = self._returned.wait_for(self._has_one, seconds)
            if self._is_closed:
                raise TransientError("The pool is closed.", hint="Open another.")
            if not is_free:
                raise TransientError(
                    f"All {self._most} are in use, and none was returned within {seconds:g} s.",
                    hint="Finish or close reads that are not read to their end.",
                )
            self._lent += 1
            if self._idle:
                return self._idle.pop()[1]
        try:
            return self._open_one()
        except BaseException:
            self._count_return()
            raise

    def _has_one(self) -> bool:
        return self._is_closed or self._most is None or self._lent < self._most

    def _count_return(self) -> None:
        with self._returned:
            self._lent -= 1
            self._returned.notify()

    def _give_back(self, thing: T) -> None:
        now = self._clock()
        with self._returned:
            self._lent -= 1
            self._returned.notify()
            over = [kept for since, kept in self._idle if now - since > IDLE_SECONDS]
            self._idle = [(since, kept) for since, kept in self._idle if now - since <= IDLE_SECONDS]
            if self._is_closed:
                over.append(thing)
            else:
                self._idle.append((now, thing))
        for each in over:
            self._close_one(each)
