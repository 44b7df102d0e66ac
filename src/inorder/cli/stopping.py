"""SIGTERM and Ctrl-C ask a service to stop and give it a budget to do so; a second one ends it at once.

The signal wakes a watching thread through a pipe that C code writes to (`signal.set_wakeup_fd`). A Python
handler would not do: it runs only when the main thread is back in Python, which one inside librdkafka may not
be for long, and setting an event from it can deadlock with the wait that it interrupted.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from select import select
from typing import NoReturn, TypeVar

from inorder.cli.output import say

BUDGET_SECONDS = 10.0
TOGETHER_SECONDS = 0.1
"""Signals so close to the first are the same one: `timeout` and systemd send it to the process and to its group."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

T = TypeVar("T")


@contextmanager
def stop_on_signals(
    what: str, budget_seconds: float = BUDGET_SECONDS, left: Callable[[], str] = str
) -> Iterator[threading.Event]:
    """An event that the first signal sets; a block that outlives the budget or a second signal ends with exit code 1.

    `left` says in a sentence what is unfinished then.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(reading, stop, what, budget_seconds, left), daemon=True)
    handlers = {number: signal.signal(number, _ignore) for number in _SIGNALS}
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher.start()
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _ignore(_number: int, _frame: object) -> None:
    """Python must have a handler for the wake-up to be written; the watcher does the work."""


def _watch(reading: int, stop: threading.Event, what: str, budget_seconds: float, left: Callable[[], str]) -> None:
    if _next_signal(reading, None) is not Heard.signal:
        return
    stop.set()
    together = time.monotonic() + TOGETHER_SECONDS
    while (heard := _next_signal(reading, together)) is Heard.signal:
        pass
    say(f"Stopping {what} (at most {budget_seconds:g} s; a second signal ends it at once).")
    if heard is Heard.end:
        return
    match _next_signal(reading, time.monotonic() + budget_seconds):
        case Heard.nothing:
            _end(f"error: {what} did not stop within {budget_seconds:g} s and was ended.", left)
        case Heard.signal:
            _end(f"error: {what} was ended by a second signal.", left)
        case Heard.end:
            return


class Heard(Enum):
    """What came through the pipe."""

    signal = "signal"
    end = "end"
    nothing = "nothing"


def _next_signal(reading: int, deadline: float | None) -> Heard:
    """Waits for one of our signals; the end of the pipe says that the block was left."""
    while True:
        seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select([reading], [], [], seconds)[0]:
            return Heard.nothing
        found = os.read(reading, 1)
        if not found:
            return Heard.end
        if found[0] in _SIGNALS:
            return Heard.signal


def _end(sentence: str, left: Callable[[], str]) -> NoReturn:
    say(f"{sentence} {left()}".strip())
    # Nothing that still hangs may hold the exit back; embedded servers notice that we are gone.
    os._exit(1)


def in_background(work: Callable[[], T]) -> T:
    """Runs `work` on another thread and waits for it.

    Spark puts a Ctrl-C handler of its own into a main thread that starts it; it would break off a stop.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="service") as pool:
        return pool.submit(work).result()
