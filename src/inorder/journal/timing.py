"""Timers for what journals measure: of a block, and of a stream."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")


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
