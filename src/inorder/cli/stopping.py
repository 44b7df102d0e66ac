"""SIGTERM and Ctrl-C ask a service to stop, once, and give it a budget to do so.

The signal wakes a watching thread through a pipe that C code writes to (`signal.set_wakeup_fd`). A Python
handler would not do: it runs only when the main thread is back in Python, which one inside librdkafka may not
be for long, and setting an event from it can deadlock with the wait that it interrupted.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from inorder.cli.output import say

BUDGET_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

T = TypeVar("T")


@contextmanager
def stop_on_signals(what: str, budget_seconds: float = BUDGET_SECONDS) -> Iterator[threading.Event]:
    """An event that the first signal sets; a block that then outlives the budget ends with exit code 1."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    stop, done = threading.Event(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(reading, stop, done, what, budget_seconds), daemon=True)
    handlers = {number: signal.signal(number, _ignore) for number in _SIGNALS}
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher.start()
    try:
        yield stop
    finally:
        done.set()
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _ignore(_number: int, _frame: object) -> None:
    """Python must have a handler for the wake-up to be written; the watcher does the work."""


def _watch(reading: int, stop: threading.Event, done: threading.Event, what: str, budget_seconds: float) -> None:
    while signals := os.read(reading, 1):
        if signals[0] in _SIGNALS:
            break
    if not signals:
        return
    stop.set()
    say(f"Stopping {what} (at most {budget_seconds:g} s).")
    if not done.wait(budget_seconds):
        say(f"error: {what} did not stop within {budget_seconds:g} s and was ended.")
        # Nothing that still hangs may hold the exit back; embedded servers notice that we are gone.
        os._exit(1)


def in_background(work: Callable[[], T]) -> T:
    """Runs `work` on another thread and waits for it.

    Spark puts a Ctrl-C handler of its own into a main thread that starts it; it would break off a stop.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="service") as pool:
        return pool.submit(work).result()
