"""What the benchmark of replication has to say: a line for each store and engine, with the aims beside the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from inorder.bench.display import machine_line, show_verdict
from inorder.bench.figures import latency_of
from inorder.bench.journal_replicate import ReplicateOptions, ReplicateTrial
from inorder.bench.report import Check

EVENTS_PER_SECOND: Mapping[tuple[str, str], float] = {
    ("postgres", "resident"): 60_000,
    ("cassandra", "resident"): 15_000,
}
LATENCY_P50_MS: Mapping[str, float] = {"resident": 20, "micro-batch": 400}
_HEADINGS = (
    "store", "engine", "events a second", "aim", "startup s", "µs job", "µs store", "p50 ms", "aim", "p99 ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplicateReport:
    """The object that `--json` prints."""

    options: ReplicateOptions
    trials: Sequence[ReplicateTrial]
    machine: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        """Whether the stores have every event once, in order."""
        return all(trial.check.verdict.holds for trial in self.trials)

    @property
    def checks(self) -> dict[str, Check]:
        """What was read back, by store and engine."""
        return {f"{trial.store}, {trial.engine}": trial.check for trial in self.trials}

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "bench": "journal-replicate",
            "options": asdict(self.options),
            "trials": [_told(trial) for trial in self.trials],
            "checks": {"hold": self.holds},
            "machine": dict(self.machine),
        }


def show_replicate(console: Console, report: ReplicateReport) -> None:
    """Figures and aims, then the machine and the verdict."""
    table = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in ("store", "engine") else "right")
    for trial in report.trials:
        table.add_row(trial.store, trial.engine, *_cells(_told(trial)))
    console.print(table, highlight=False)
    options = report.options
    console.print(
        f"Appends of {options.batch} events in the backlog, of one at {options.schedule.rate} a second. µs is the"
        " processor time for an event of the backlog.",
        highlight=False,
    )
    console.print(machine_line(report.machine), highlight=False)
    show_verdict(console, report.checks, report.holds)


def _told(trial: ReplicateTrial) -> dict[str, Any]:
    drain = trial.backlog.as_dict()
    return {
        "store": trial.store,
        "engine": trial.engine,
        "events": trial.events,
        "events_per_second": drain["records_per_second"],
        "seconds": drain["seconds"],
        "startup_seconds": drain["startup_seconds"],
        "cpu_us_per_event": {name: None if spent is None else round(spent, 2) for name, spent in trial.cpu_us.items()},
        "latency_ms": latency_of(trial.latency_ms),
        "targets": {
            "events_per_second": EVENTS_PER_SECOND.get((trial.store, trial.engine)),
            "latency_p50_ms": LATENCY_P50_MS.get(trial.engine),
        },
        "check": trial.check.as_dict(),
    }


def _cells(told: Mapping[str, Any]) -> list[str]:
    cpu, latency, targets = told["cpu_us_per_event"], told["latency_ms"], told["targets"]
    return [
        _cell(told["events_per_second"], 0),
        _cell(targets["events_per_second"], 0),
        _cell(told["startup_seconds"], 1),
        _cell(cpu.get("job"), 1),
        _cell(cpu.get("store"), 1),
        _cell(latency.get("p50"), 1),
        _cell(targets["latency_p50_ms"], 0),
        _cell(latency.get("p99"), 1),
    ]


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
