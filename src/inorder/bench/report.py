"""Reports: figures of both sides, their ratio, and whether what they carried is whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from inorder.bench.figures import DrainRate, ratio_of
from inorder.bench.load import Load, event_of
from inorder.testing.checker import Event, Row, Verdict, check_delivery, check_rows


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared."""

    drain: DrainRate
    latency_ms: Mapping[str, float | int]
    """From the moment a record was due to the moment it was seen."""
    more: Mapping[str, Any]
    """Figures that only this side has."""

    def as_dict(self) -> dict[str, Any]:
        return {**self.drain.as_dict(), "latency_ms": dict(self.latency_ms), **self.more}


@dataclass(frozen=True, slots=True)
class ReadBackCheck:
    """What was read back after a phase."""

    records: int
    distinct: int
    verdict: Verdict

    def __add__(self, other: ReadBackCheck) -> ReadBackCheck:
        return ReadBackCheck(self.records + other.records, self.distinct + other.distinct, self.verdict + other.verdict)

    def as_dict(self) -> dict[str, int]:
        return {
            "records": self.records,
            "distinct": self.distinct,
            "lost": self.verdict.lost,
            "duplicated": self.verdict.duplicated,
            "out_of_order": self.verdict.out_of_order,
            "phantom": self.verdict.phantom,
        }


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """The object that `--json` prints."""

    bench: str
    rows: int
    peer: str
    ours: Side
    peer_result: Side
    checks: Mapping[str, ReadBackCheck]
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


# The report as text, on stderr.


def show(console: Console, report: PipelineReport) -> None:
    """Both sides beside each other, the ratio, the checks and the machine."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "cold per second", "seconds", "startup s", "warm per second", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("inorder", *_cells(report.ours))
    table.add_row(report.peer, *_cells(report.peer_result))
    console.print(table, highlight=False)
    console.print(_ratio(report), highlight=False)
    for phase, parts in report.ours.more.get("memory_mb", {}).items():
        shown = ", ".join(f"{part} {megabytes:,.0f} MB" for part, megabytes in parts.items())
        console.print(f"Memory of inorder after {phase}: {shown}.", highlight=False)
    console.print(f"{report.rows:,} rows. {machine_line(report.machine)}", highlight=False)
    show_verdict(console, report.checks, report.holds)


def show_verdict(console: Console, checks: Mapping[str, ReadBackCheck], holds: bool) -> None:
    """Whether what was read back is whole, with examples of what is not."""
    for name, check in checks.items():
        for example in check.verdict.examples:
            console.print(f"  {name}: {example}", style="red", highlight=False)
    verdict = "What was read back is whole and in order." if holds else "A guarantee was broken."
    console.print(verdict, style="green" if holds else "bold red", highlight=False)


def machine_line(machine: Mapping[str, Any]) -> str:
    """Where it was measured, and what else went on there."""
    before, after = machine["load_average_before"], machine["load_average_after"]
    return f"{machine['cores']} cores, load average {before} before and {after} after."


def _cells(side: Side) -> list[str]:
    rate, latency = side.drain.records_per_second, side.latency_ms
    quantiles = [f"{latency[name]:,.1f}" if name in latency else "-" for name in ("p50", "p95", "p99")]
    return [
        _rate(rate),
        f"{side.drain.seconds:.2f}",
        f"{side.drain.startup_seconds:.2f}",
        _rate(side.more.get("warm", {}).get("records_per_second")),
        *quantiles,
    ]


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _ratio(report: PipelineReport) -> str:
    if report.ratio is None:
        return "Too few rows to give a rate; use more --rows."
    warm = "" if report.warm_ratio is None else f" Warm it is {report.warm_ratio:.2f} times."
    return f"inorder carries {report.ratio:.2f} times what {report.peer} carries.{warm}"


# One measurement of one side: what it carried, how fast, at what cost, and whether it was whole.

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Cpu:
    """Processor seconds while so many records were carried; None where the system does not report it."""

    relay: float | None
    database: float | None
    records: int

    def per_million(self, seconds: float | None) -> float | None:
        """The seconds that a million records would take."""
        return None if seconds is None or self.records <= 0 else seconds / self.records * MILLION

    def as_dict(self) -> dict[str, float | None]:
        named = {"relay": self.relay, "database": self.database}
        return {name: None if value is None else round(value, 2) for name, value in named.items()}


@dataclass(frozen=True, slots=True)
class DrainTrial:
    """A backlog, carried to its end or for as long as the window was open."""

    drain: DrainRate
    is_whole: bool
    cpu: Cpu
    check: ReadBackCheck

    def as_dict(self) -> dict[str, Any]:
        return {**self.drain.as_dict(), "is_whole": self.is_whole, "cpu_seconds": self.cpu.as_dict()}


@dataclass(frozen=True, slots=True)
class LiveTrial:
    """Live records at a steady rate."""

    since_due: Mapping[str, float | int]
    since_commit: Mapping[str, float | int]
    """Empty where nothing is committed."""
    cpu: Cpu
    check: ReadBackCheck

    @property
    def latency(self) -> Mapping[str, float | int]:
        """What is compared: from the return of COMMIT where there is one."""
        return self.since_commit or self.since_due

    def as_dict(self) -> dict[str, Any]:
        return {
            "due_to_visible_ms": dict(self.since_due),
            "commit_to_visible_ms": dict(self.since_commit),
            "cpu_seconds": self.cpu.as_dict(),
        }


def checked(trials: Sequence[DrainTrial | LiveTrial]) -> ReadBackCheck:
    """Everything that was read back after these trials, as one."""
    first, *rest = (trial.check for trial in trials)
    for check in rest:
        first = first + check
    return first


# What was carried against what should have been, by the checker that knows nothing of us.

Value = bytes | None


def check_values(load: Load, values: Iterable[Value]) -> ReadBackCheck:
    """Compares a load with the values of a topic, in the order of each partition."""
    return _compared(load.events(), events_in(values))


def check_counts(counts: Mapping[int, int], values: Iterable[Value]) -> ReadBackCheck:
    """Compares how many events each key had with the values of a topic."""
    return _compared(_first_places(counts), events_in(values))


def check_begun(values: Iterable[Value]) -> ReadBackCheck:
    """Looks for holes, doubles and disorder in what was carried of a load that was not carried to its end."""
    found = events_in(values)
    reached: dict[int, int] = {}
    for key, place in found:
        reached[key] = max(place, reached.get(key, 0))
    return _compared(_first_places(reached), found)


def events_in(values: Iterable[Value]) -> list[tuple[int, int]]:
    """The events in the values."""
    return [event_of(value or b"{}") for value in values]


def _compared(expected: Iterable[Event], found: list[tuple[int, int]]) -> ReadBackCheck:
    return ReadBackCheck(len(found), len(set(found)), check_delivery(expected, found))


def _first_places(counts: Mapping[int, int]) -> Iterator[Event]:
    return ((key, place) for key, last in counts.items() for place in range(1, last + 1))


def check_table(load: Load, rows: Mapping[int, Row], counted: int) -> ReadBackCheck:
    """Compares the rows that a load leads to with a table, and its size with what the pipeline counted."""
    verdict = check_rows(load.final_rows(), rows)
    sums = Verdict(lost=max(0, load.rows - counted), duplicated=max(0, counted - load.rows))
    return ReadBackCheck(counted, len(rows), verdict + sums)


def check_live(total: int, numbers: Sequence[int]) -> ReadBackCheck:
    """Compares how many live records there were with those that were seen."""
    distinct = len(set(numbers))
    return ReadBackCheck(len(numbers), distinct, Verdict(lost=total - distinct, duplicated=len(numbers) - distinct))
