"""What `inorder bench relay` has to say: both sides of every case, their ratios, and whether ours was whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inorder.bench.figures import Spread, ratio_of, ratio_of_medians, spread_of, told_of
from inorder.bench.options import RelaySetting
from inorder.bench.report import Check
from inorder.bench.trial import Cpu, DrainTrial, LiveTrial, checked

QUANTILES = ("p50", "p95", "p99", "max")


@dataclass(frozen=True, slots=True)
class CpuSpread:
    """Processor seconds for a million records."""

    relay: Spread | None
    database: Spread | None

    @classmethod
    def of(cls, readings: Sequence[Cpu]) -> CpuSpread:
        """Over several trials."""
        return cls(
            spread_of(reading.per_million(reading.relay) for reading in readings),
            spread_of(reading.per_million(reading.database) for reading in readings),
        )

    @property
    def total(self) -> float | None:
        """Relay and database together; a side without a database has the relay's alone."""
        known = [spread.median for spread in (self.relay, self.database) if spread is not None]
        return sum(known) if known else None

    def as_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {"relay": told_of(self.relay), "database": told_of(self.database)}


@dataclass(frozen=True, slots=True)
class DrainCase:
    """One backlog, drained by both sides as often as was asked."""

    rows: int
    keys: int
    headers: int
    ours: Sequence[DrainTrial]
    peer: Sequence[DrainTrial]

    @property
    def ratio(self) -> float | None:
        """Our median rate over the peer's."""
        return ratio_of_medians(rate_of(self.ours), rate_of(self.peer))

    def as_dict(self) -> dict[str, Any]:
        """The case as JSON has it."""
        return {
            "case": "drain",
            "rows": self.rows,
            "keys": self.keys,
            "headers": self.headers,
            "ours": _drained(self.ours),
            "peer": _drained(self.peer),
            "ratio": self.ratio,
            "cpu_ratio": ratio_of(cpu_of(self.ours).total, cpu_of(self.peer).total),
        }


@dataclass(frozen=True, slots=True)
class LiveCase:
    """Live records, carried by both sides as often as was asked."""

    rate: int
    seconds: float
    ours: Sequence[LiveTrial]
    peer: Sequence[LiveTrial]

    def ratio(self, quantile: str) -> float | None:
        """Our median latency over the peer's; below 1 ours is sooner."""
        return ratio_of_medians(latency_spread(self.ours, quantile), latency_spread(self.peer, quantile))

    def as_dict(self) -> dict[str, Any]:
        """The case as JSON has it."""
        return {
            "case": "latency",
            "rate": self.rate,
            "seconds": self.seconds,
            "ours": _carried(self.ours),
            "peer": _carried(self.peer),
            "ratio": {quantile: self.ratio(quantile) for quantile in QUANTILES},
        }


@dataclass(frozen=True, slots=True)
class RelayReport:
    """The object that `--json` prints."""

    peer: str
    setting: RelaySetting
    repeats: int
    drains: Sequence[DrainCase]
    lives: Sequence[LiveCase]
    notes: Sequence[str]
    machine: Mapping[str, Any]

    @property
    def checks(self) -> dict[str, Check]:
        """What was read back of each side, over all cases."""
        return {
            "ours": checked([trial for case in self.cases for trial in case.ours]),
            "peer": checked([trial for case in self.cases for trial in case.peer]),
        }

    @property
    def cases(self) -> list[DrainCase | LiveCase]:
        """All of them, drains first."""
        return [*self.drains, *self.lives]

    @property
    def holds(self) -> bool:
        """Whether all that we carried is whole and in order; what the peer did is told, and is not our promise."""
        return self.checks["ours"].verdict.holds

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "bench": "relay",
            "peer": self.peer,
            "relay": self.setting.as_dict(),
            "repeats": self.repeats,
            "cases": [case.as_dict() for case in self.cases],
            "checks": {name: check.as_dict() for name, check in self.checks.items()} | {"hold": self.holds},
            "notes": list(self.notes),
            "machine": dict(self.machine),
        }


def rate_of(trials: Sequence[DrainTrial]) -> Spread | None:
    """Records a second."""
    return spread_of(trial.drain.records_per_second for trial in trials)


def startup_of(trials: Sequence[DrainTrial]) -> Spread | None:
    """Seconds from the start of the process to its first visible record."""
    return spread_of(trial.drain.startup_seconds for trial in trials)


def latency_spread(trials: Sequence[LiveTrial], quantile: str) -> Spread | None:
    """One quantile of the latency, in milliseconds, over several trials."""
    return spread_of(trial.latency.get(quantile) for trial in trials)


def cpu_of(trials: Sequence[DrainTrial | LiveTrial]) -> CpuSpread:
    """What the trials cost."""
    return CpuSpread.of([trial.cpu for trial in trials])


def _drained(trials: Sequence[DrainTrial]) -> dict[str, Any]:
    return {
        "records_per_second": told_of(rate_of(trials)),
        "startup_seconds": told_of(startup_of(trials)),
        "cpu_seconds_per_million": cpu_of(trials).as_dict(),
        "is_whole": all(trial.is_whole for trial in trials),
        "checks": checked(trials).as_dict(),
        "trials": [trial.as_dict() for trial in trials],
    }


def _carried(trials: Sequence[LiveTrial]) -> dict[str, Any]:
    return {
        "latency_ms": {quantile: told_of(latency_spread(trials, quantile)) for quantile in QUANTILES},
        "cpu_seconds": {
            "relay": told_of(spread_of(trial.cpu.relay for trial in trials)),
            "database": told_of(spread_of(trial.cpu.database for trial in trials)),
        },
        "checks": checked(trials).as_dict(),
        "trials": [trial.as_dict() for trial in trials],
    }
