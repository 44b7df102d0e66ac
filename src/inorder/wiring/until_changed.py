"""An engine that is stopped when what it should read has changed, to be begun anew with that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def until_changed(
    has_changed: Callable[[], bool], stop: threading.Event, look_seconds: float
) -> Iterator[threading.Event]:
    """An event that is set when the job is to stop, or when a look finds a change; `has_changed` must not raise."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if stop.wait(look_seconds) or (not over.is_set() and has_changed()):
                over.set()

    watcher = threading.Thread(target=watch, name="inorder-watching-topics", daemon=True)
    watcher.start()
    try:
        yield over
    finally:
        over.set()
        watcher.join()
