"""What a run tells while it runs: the outcome of slices, where the time goes, how far behind it is."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

from inorder.engines.slice_work import SliceOutcome, merged

logger = logging.getLogger("inorder.pipeline")

FIGURES: Final = ("read", "applied", "identical", "stale", "ignored", "rejected", "replayed")


class Listener(Protocol):
    """Hears of a run; called from threads of the engine, one after the other per partition."""

    def applied(self, outcome: SliceOutcome) -> None:
        """Slices of a partition became this; several may be told as one."""

    def spent(self, phases: Mapping[str, float]) -> None:
        """So many seconds were spent in each phase since the last time."""


class _Nobody:
    def applied(self, outcome: SliceOutcome) -> None:
        """Nothing."""

    def spent(self, phases: Mapping[str, float]) -> None:
        """Nothing."""


NOBODY: Final[Listener] = _Nobody()


class Several:
    """Hands everything on to all of them."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def applied(self, outcome: SliceOutcome) -> None:
        """Slices of a partition became this."""
        for listener in self._listeners:
            listener.applied(outcome)

    def spent(self, phases: Mapping[str, float]) -> None:
        """So many seconds were spent in each phase."""
        for listener in self._listeners:
            listener.spent(phases)


def tell(listener: Listener, outcome: SliceOutcome) -> None:
    """Logs an outcome, loudly where records were not applied, and hands it on."""
    logger.debug("pipeline.slice_applied %s", outcome)
    if outcome.rejected or outcome.stale:
        logger.warning(
            "pipeline.records_not_applied topic=%s partition=%d below=%d rejected=%d stale=%d",
            outcome.topic, outcome.partition, outcome.next_offset, outcome.rejected, outcome.stale,
        )  # fmt: skip
    listener.applied(outcome)


def summed(earlier: SliceOutcome, later: SliceOutcome) -> SliceOutcome:
    """Two outcomes of one partition, told as one."""
    sums = {name: getattr(earlier, name) + getattr(later, name) for name in FIGURES}
    return replace(later, **sums, measures=merged(earlier.measures, later.measures))


@dataclass
class Progress:
    """A listener that keeps the sums of a run; any thread may look."""

    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sums: Counter[str] = field(default_factory=Counter)
    _phases: Counter[str] = field(default_factory=Counter)
    _last: float | None = None

    def applied(self, outcome: SliceOutcome) -> None:
        """Adds an outcome."""
        figures = asdict(outcome)
        with self._lock:
            self._sums.update({name: figures[name] for name in FIGURES})
            self._last = self.clock()

    def spent(self, phases: Mapping[str, float]) -> None:
        """Adds the seconds of some phases."""
        with self._lock:
            self._phases.update(phases)

    def totals(self) -> dict[str, int]:
        """The sums in records, every figure named."""
        with self._lock:
            return {name: self._sums[name] for name in FIGURES}

    def as_dict(self) -> dict[str, Any]:
        """All of it: sums, seconds by phase, and how long ago the last slice was applied."""
        with self._lock:
            age = None if self._last is None else round(self.clock() - self._last, 3)
            phases = {name: round(seconds, 3) for name, seconds in sorted(self._phases.items())}
            return {name: self._sums[name] for name in FIGURES} | {"phase_seconds": phases, "last_slice_age": age}
