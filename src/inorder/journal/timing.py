"""Timers for what journals measure: of a block, and of a stream; and a warning for a call that takes long."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, perf_counter
from typing import Final, TypeVar

T = TypeVar("T")
log = logging.getLogger("inorder.journal")

WARN_EVERY_SECONDS: Final = 10.0
"""At most one warning in this time for a kind of call and a topic; the next one counts those in between."""


class SlowCalls:
    """Logs calls that took longer than they should; thread-safe."""

    def __init__(self, limits: Mapping[str, float], clock: Callable[[], float] = monotonic) -> None:
        """`limits` are seconds by kind of call; a call that is not named is never slow."""
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._warned_at: dict[tuple[str, str], float] = {}
        self._unreported = Counter[tuple[str, str]]()

    def report(self, call: str, topic: str, seconds: float) -> None:
        limit = self._limits.get(call)
        if limit is None or seconds <= limit:
            return
        with self._lock:
            kind, now = (call, topic), self._clock()
            if now - self._warned_at.get(kind, float("-inf")) < WARN_EVERY_SECONDS:
                self._unreported[kind] += 1
                return
            self._warned_at[kind] = now
            others = self._unreported.pop(kind, 0)
        fields = {"call": call, "topic": topic, "seconds": round(seconds, 3), "limit": limit, "others": others}
        log.warning("journal.slow_call", extra=fields)


@contextmanager
def timed(report: Callable[[float], None]) -> Iterator[None]:
    """Passes the seconds that the block takes to `report`, whether it succeeds or fails."""
    began = perf_counter()
    try:
        yield
    finally:
        report(perf_counter() - began)


def timed_stream(
    source: Iterator[T], report: Callable[[float, int, bool], None], *, spent: float = 0.0
) -> Generator[T, None, None]:
    """The same stream; at its end `report` gets the seconds waited for it, its items, and whether it succeeded.

    A reader that stops early succeeds. `spent` is what was waited for before the stream began.
    """
    items, is_success = 0, False
    try:
        while True:
            began = perf_counter()
            try:
                item = next(source)
            except StopIteration:
                is_success = True
                return
            finally:
                spent += perf_counter() - began
            items += 1
            yield item
    except GeneratorExit:
        is_success = True
        raise
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()
        report(spent, items, is_success)
