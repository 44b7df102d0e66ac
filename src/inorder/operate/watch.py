"""Reads the parts of the status periodically, each on its own thread, and keeps the last hour.

Pages are rendered from what is kept here. So a page never waits for a server that is away, and many open pages cost the
servers as much as one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from inorder.model.errors import UnreachableError, last_line
from inorder.observe.endpoint import STALE_SECONDS, PeriodicReader
from inorder.operate.status import Part, read_part

log = logging.getLogger("inorder.operate")

HOUR_SECONDS: Final = 3600.0
_MOST_SAMPLES: Final = 720
_STOP_SECONDS: Final = 5.0

Sample = tuple[float, float]
"""When, in seconds since 1970, and how much."""

MEASURED: Final = {
    "relay": ("waiting", "exceeded"),
    "pipeline": ("behind", "applied", "ends", "dead_letters"),
    "journal": ("behind", "ends", "replicated"),
}
"""The numbers of which the last hour is kept."""


@dataclass(frozen=True, slots=True)
class PartReading:
    """The last reading of a part, and how old it is; None before the first."""

    part: Part | None
    age_seconds: float = 0.0
    stale_seconds: float = STALE_SECONDS
    """A reading that is older says nothing about now: the next one hangs."""

    @property
    def trouble(self) -> str:
        """Why the part does not work; empty where it does."""
        if self.part is None:
            return "It was not read yet."
        if "error" in self.part or self.age_seconds <= self.stale_seconds:
            return str(self.part.get("error", ""))
        return f"It has not answered for {self.age_seconds:.0f} s."

    @property
    def current(self) -> Part | None:
        """The part with its trouble as `error`; None before the first reading."""
        if self.part is None or not self.trouble:
            return self.part
        return {"exit_code": UnreachableError.exit_code, **self.part, "error": self.trouble}


class Watch:
    """The parts and their last hour; a context manager."""

    def __init__(
        self, parts: Mapping[str, Callable[[], Part]], *, seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._samples: dict[tuple[str, str], deque[Sample]] = {}
        self._guard = threading.Lock()
        self._clock = clock
        self._stale = max(STALE_SECONDS, 3 * seconds)
        self._every = max(seconds, HOUR_SECONDS / _MOST_SAMPLES)
        self._readers = {
            name: PeriodicReader(name, lambda name=name, part=part: self._read(name, part), seconds=seconds)  # type: ignore[misc]
            for name, part in parts.items()
        }

    def __enter__(self) -> Watch:
        for reader in self._readers.values():
            reader.start()
        return self

    def __exit__(self, *_error: object) -> None:
        for reader in self._readers.values():
            reader.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        for reader in self._readers.values():
            reader.join(max(0.0, deadline - time.monotonic()))

    def readings(self) -> dict[str, PartReading]:
        """All parts as they were last read."""
        found = {}
        for name, reader in self._readers.items():
            last = reader.last
            found[name] = PartReading(None) if last is None else PartReading(last[1], last[0], self._stale)
        return found

    def part(self, name: str) -> PartReading:
        return self.readings()[name]

    def samples(self, part: str, number: str) -> list[Sample]:
        """The last hour of a number, the oldest first."""
        with self._guard:
            return list(self._samples.get((part, number), ()))

    def wake(self) -> None:
        """Reads everything again now, because something was changed."""
        for reader in self._readers.values():
            reader.wake()

    def _read(self, name: str, part: Callable[[], Part]) -> Part:
        try:
            found = read_part(part)
        except Exception as error:  # a page must say what is wrong, and the thread must go on
            log.exception("operate.part_failed", extra={"part": name})
            return {"error": f"This is a fault of inorder: {last_line(error)}", "exit_code": 1}
        self._note(name, found)
        return found

    def _note(self, name: str, part: Part) -> None:
        now = self._clock()
        with self._guard:
            for number in MEASURED.get(name, ()):
                value = part.get(number)
                if not isinstance(value, int | float):
                    continue
                kept = self._samples.setdefault((name, number), deque(maxlen=_MOST_SAMPLES))
                # Seldom enough that an hour fits; a reading in between replaces the last one.
                if len(kept) > 1 and now - kept[-2][0] <= self._every:
                    kept.pop()
                kept.append((now, float(value)))
