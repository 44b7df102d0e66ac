"""What a run reports while it runs: the outcomes of slices, and how much time each phase takes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from inorder.engines.slice_work import STALE_KEYS, SliceOutcome, add_measures
from inorder.model.errors import GuaranteeError, InorderError, MassRefusalError
from inorder.model.partitioning import Place

logger = logging.getLogger("inorder.pipeline")

FIGURES: Final = ("read", "applied", "identical", "stale", "ignored", "rejected", "replayed")


class Listener(Protocol):
    """Follows a run; called from threads of the engine, one call after the other per partition."""

    def applied(self, outcome: SliceOutcome) -> None:
        """A slice was applied; the outcomes of several slices of a partition may arrive as one."""

    def spent(self, phases: Mapping[str, float]) -> None:
        """The seconds that were spent in each phase since the last call."""

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        """Nothing of a partition is applied any more; the others go on."""

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        """What reads these partitions failed, and is started again; none where the run itself could not begin."""

    def waits(self, place: Place, error: MassRefusalError) -> None:
        """A partition waits for its table; its next outcome says that it goes on."""


class _NullListener:
    def applied(self, outcome: SliceOutcome) -> None: ...

    def spent(self, phases: Mapping[str, float]) -> None: ...

    def stopped(self, place: Place, error: GuaranteeError) -> None: ...

    def restarted(self, places: Collection[Place], error: InorderError) -> None: ...

    def waits(self, place: Place, error: MassRefusalError) -> None: ...


NULL_LISTENER: Final[Listener] = _NullListener()


class CompositeListener:
    """Forwards every call to several listeners."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def applied(self, outcome: SliceOutcome) -> None:
        for listener in self._listeners:
            listener.applied(outcome)

    def spent(self, phases: Mapping[str, float]) -> None:
        for listener in self._listeners:
            listener.spent(phases)

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        for listener in self._listeners:
            listener.stopped(place, error)

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        for listener in self._listeners:
            listener.restarted(places, error)

    def waits(self, place: Place, error: MassRefusalError) -> None:
        for listener in self._listeners:
            listener.waits(place, error)


class LoggingListener:
    """Logs every outcome, as a warning where records were not applied, and forwards it. Each engine has one."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._waiting: set[Place] = set()

    def applied(self, outcome: SliceOutcome) -> None:
        place = {"topic": outcome.topic, "partition": outcome.partition, "next_offset": outcome.next_offset}
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("pipeline.slice_applied", extra=place | {name: getattr(outcome, name) for name in FIGURES})
        if outcome.rejected or outcome.stale:
            keys = list(outcome.stale_keys)
            fields = place | {"rejected": outcome.rejected, "stale": outcome.stale, "stale_keys": keys}
            logger.warning("pipeline.records_not_applied", extra=fields)
        if (outcome.topic, outcome.partition) in self._waiting:
            self._waiting.discard((outcome.topic, outcome.partition))
            logger.info("pipeline.partition_goes_on", extra=place)
        self._listener.applied(outcome)

    def spent(self, phases: Mapping[str, float]) -> None:
        self._listener.spent(phases)

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        self._listener.stopped(place, error)

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        self._listener.restarted(places, error)

    def waits(self, place: Place, error: MassRefusalError) -> None:
        self._waiting.add(place)
        fields = {"topic": place[0], "partition": place[1], "error": str(error)}
        logger.error("pipeline.partition_waits", extra=fields)
        self._listener.waits(place, error)


def add_outcomes(earlier: SliceOutcome, later: SliceOutcome) -> SliceOutcome:
    """Two outcomes of one partition as one."""
    sums = {name: getattr(earlier, name) + getattr(later, name) for name in FIGURES}
    stale_keys = tuple(dict.fromkeys((*earlier.stale_keys, *later.stale_keys)))[:STALE_KEYS]
    return replace(later, **sums, stale_keys=stale_keys, measures=add_measures(earlier.measures, later.measures))


@dataclass
class RunTotals:
    """A listener that sums up a run; any thread may read it."""

    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sums: Counter[str] = field(default_factory=Counter)
    _phases: Counter[str] = field(default_factory=Counter)
    _last: float | None = None
    _waiting: set[Place] = field(default_factory=set)

    def applied(self, outcome: SliceOutcome) -> None:
        with self._lock:
            self._sums.update({name: getattr(outcome, name) for name in FIGURES})
            self._waiting.discard((outcome.topic, outcome.partition))
            self._last = self.clock()

    def spent(self, phases: Mapping[str, float]) -> None:
        with self._lock:
            self._phases.update(phases)

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        """Not summed up."""

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        """Not summed up."""

    def waits(self, place: Place, error: MassRefusalError) -> None:  # noqa: ARG002 - the log has it
        with self._lock:
            self._waiting.add(place)

    def totals(self) -> dict[str, int]:
        """The sums in records, all of `FIGURES`."""
        with self._lock:
            return {name: self._sums[name] for name in FIGURES}

    def as_dict(self) -> dict[str, Any]:
        """The sums, the seconds per phase, the age of the last slice in seconds, and the partitions that wait."""
        with self._lock:
            age = None if self._last is None else round(self.clock() - self._last, 3)
            phases = {name: round(seconds, 3) for name, seconds in sorted(self._phases.items())}
            waiting = [f"{topic}[{number}]" for topic, number in sorted(self._waiting)]
            sums = {name: self._sums[name] for name in FIGURES}
            return sums | {"phase_seconds": phases, "last_slice_age": age, "waiting": waiting}
