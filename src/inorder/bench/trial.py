"""One measurement of one side: what it carried, how fast, at what cost, and whether it was whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inorder.bench.figures import Drain
from inorder.bench.report import Check

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Cpu:
    """Processor seconds while so many records were carried; None where the system does not tell."""

    relay: float | None
    database: float | None
    records: int

    def per_million(self, seconds: float | None) -> float | None:
        """The seconds that a million records would take."""
        return None if seconds is None or self.records <= 0 else seconds / self.records * MILLION

    def as_dict(self) -> dict[str, float | None]:
        """The figures by name."""
        named = {"relay": self.relay, "database": self.database}
        return {name: None if value is None else round(value, 2) for name, value in named.items()}


@dataclass(frozen=True, slots=True)
class DrainTrial:
    """A backlog, carried to its end or for as long as the window was open."""

    drain: Drain
    is_whole: bool
    cpu: Cpu
    check: Check

    def as_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {**self.drain.as_dict(), "is_whole": self.is_whole, "cpu_seconds": self.cpu.as_dict()}


@dataclass(frozen=True, slots=True)
class LiveTrial:
    """Live records at a steady rate."""

    since_due: Mapping[str, float | int]
    since_commit: Mapping[str, float | int]
    """Empty where nothing is committed."""
    cpu: Cpu
    check: Check

    @property
    def latency(self) -> Mapping[str, float | int]:
        """What is compared: from the return of COMMIT where there is one."""
        return self.since_commit or self.since_due

    def as_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {
            "due_to_visible_ms": dict(self.since_due),
            "commit_to_visible_ms": dict(self.since_commit),
            "cpu_seconds": self.cpu.as_dict(),
        }


def checked(trials: Sequence[DrainTrial | LiveTrial]) -> Check:
    """Everything that was read back after these trials, as one."""
    first, *rest = (trial.check for trial in trials)
    for check in rest:
        first = first + check
    return first
