"""When live records are due: a fixed rate, whatever becomes of the records before.

Latency counts from the moment at which a record was due, not from the one at which it went out. A stall then costs
every record that it held back, as it would cost users who do not wait for one another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """So many records a second, for some seconds after a warm-up."""

    rate: int
    seconds: float
    warm_seconds: float = 2.0

    @property
    def warm(self) -> int:
        """How many records are warm-up and not counted."""
        return round(self.rate * self.warm_seconds)

    @property
    def counted(self) -> int:
        """How many records are counted."""
        return self.total - self.warm

    @property
    def total(self) -> int:
        """How many records there are, warm-up included."""
        return self.warm + round(self.rate * self.seconds)

    @property
    def lasts(self) -> float:
        """Seconds from the first record to the last."""
        return self.warm_seconds + self.seconds

    def due_ns(self, number: int) -> int:
        """When a record is due, in nanoseconds from the start."""
        return number * 1_000_000_000 // self.rate

    def share(self, writer: int, writers: int) -> range:
        """The records of one of several writers, who take turns."""
        return range(writer, self.total, writers)


def when_due(schedule: Schedule, start: int, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Each number when its moment has come, or at once when it has passed, with that moment."""
    pause = threading.Event()
    for number in numbers:
        due = start + schedule.due_ns(number)
        if (early := due - time.monotonic_ns()) > 0:
            pause.wait(early / 1e9)
        yield number, due
