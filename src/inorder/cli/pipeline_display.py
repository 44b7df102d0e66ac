"""A running pipeline in one line on stderr: how much, how fast, how far behind; in a log where it is no terminal."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from inorder.model.errors import InorderError
from inorder.pipeline.progress import Progress

logger = logging.getLogger("inorder.pipeline")

LOOK_SECONDS = 0.5
LOG_SECONDS = 10.0
BEHIND_SECONDS = 2.0
_WINDOW = 6
"""Looks that a rate is taken over."""

Behind = Callable[[], int]


@contextmanager
def shown(progress: Progress, behind: Behind, console: Console | None = None) -> Iterator[None]:
    """Shows a run for as long as the block lasts; `behind` asks the cluster and may fail."""
    over = threading.Event()
    display = _Display(progress, behind, console or Console(stderr=True))
    thread = threading.Thread(target=display.run, args=(over,), name="pipeline-display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Display:
    def __init__(self, progress: Progress, behind: Behind, console: Console) -> None:
        self._progress = progress
        self._behind = behind
        self._console = console
        self._looks: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=_WINDOW)
        self._waiting: tuple[float, int | None] = (0.0, None)

    def run(self, over: threading.Event) -> None:
        """Draws on a terminal, logs elsewhere."""
        if not self._console.is_terminal:
            while not over.wait(LOG_SECONDS):
                logger.info("pipeline.progress %s behind=%s", self._progress.as_dict(), self._ask())
            return
        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            while not over.wait(LOOK_SECONDS):
                live.update(Text(self._line()))

    def _line(self) -> str:
        totals = self._progress.totals()
        self._looks.append((time.monotonic(), totals["read"]))
        (began, first), (now, last) = self._looks[0], self._looks[-1]
        rate = (last - first) / (now - began) if now > began else 0.0
        if now - self._waiting[0] > BEHIND_SECONDS:
            self._waiting = (now, self._ask())
        waiting = "?" if self._waiting[1] is None else f"{self._waiting[1]:,}"
        return line_of(totals, rate, waiting)

    def _ask(self) -> int | None:
        try:
            return self._behind()
        except InorderError as error:
            logger.debug("pipeline.behind_unknown %s", error)
            return None


def line_of(totals: dict[str, int], rate: float, behind: str) -> str:
    """What a person sees."""
    told = ", ".join(f"{count:,} {name}" for name, count in totals.items() if name != "read" and count)
    return f"{totals['read']:,} records ({told or 'none yet'}), {rate:,.0f}/s, {behind} behind"
