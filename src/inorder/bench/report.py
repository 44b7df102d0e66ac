"""What a benchmark has to say: figures of both sides, their ratio, and whether what they carried is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inorder.bench.figures import Drain, ratio_of
from inorder.testing.checker import Verdict


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared."""

    drain: Drain
    latency_ms: Mapping[str, float | int]
    """From the moment a record was due to the moment it was seen."""
    more: Mapping[str, Any]
    """Figures that only this side has."""

    def as_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {**self.drain.as_dict(), "latency_ms": dict(self.latency_ms), **self.more}


@dataclass(frozen=True, slots=True)
class Check:
    """What was read back after a phase."""

    records: int
    distinct: int
    verdict: Verdict

    def __add__(self, other: Check) -> Check:
        """Both as one."""
        return Check(self.records + other.records, self.distinct + other.distinct, self.verdict + other.verdict)

    def as_dict(self) -> dict[str, int]:
        """The figures by name."""
        return {
            "records": self.records,
            "distinct": self.distinct,
            "lost": self.verdict.lost,
            "duplicated": self.verdict.duplicated,
            "out_of_order": self.verdict.out_of_order,
            "phantom": self.verdict.phantom,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The object that `--json` prints."""

    bench: str
    rows: int
    peer: str
    ours: Side
    peer_result: Side
    checks: Mapping[str, Check]
    machine: Mapping[str, Any]

    @property
    def ratio(self) -> float | None:
        """Our drain rate over the peer's."""
        return ratio_of(self.ours.drain.records_per_second, self.peer_result.drain.records_per_second)

    @property
    def warm_ratio(self) -> float | None:
        """Our rate over the peer's where a backlog appeared before a process at work."""
        ours, peer = (side.more.get("warm", {}).get("records_per_second") for side in (self.ours, self.peer_result))
        return ratio_of(ours, peer)

    @property
    def holds(self) -> bool:
        """Whether everything that was read back is whole and in order; a figure is worth nothing otherwise."""
        return all(check.verdict.holds for check in self.checks.values())

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "bench": self.bench,
            "rows": self.rows,
            "peer": self.peer,
            "ours": self.ours.as_dict(),
            "peer_result": self.peer_result.as_dict(),
            "ratio": self.ratio,
            "warm_ratio": self.warm_ratio,
            "checks": {name: check.as_dict() for name, check in self.checks.items()} | {"hold": self.holds},
            "machine": dict(self.machine),
        }
