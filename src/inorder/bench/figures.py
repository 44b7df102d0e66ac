"""From samples and latencies to the few figures of a report."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Sample:
    """A count at a moment of the monotonic clock."""

    at: float
    count: int


@dataclass(frozen=True, slots=True)
class DrainRate:
    """A backlog carried from its first visible record to its last."""

    records_per_second: float | None
    """None where everything became visible between two samples: too little to rate."""
    seconds: float
    startup_seconds: float

    def as_dict(self) -> dict[str, float | None]:
        rate = self.records_per_second
        return {
            "records_per_second": None if rate is None else round(rate, 1),
            "seconds": round(self.seconds, 3),
            "startup_seconds": round(self.startup_seconds, 3),
        }


def drain_of(looks: Sequence[Sample], rows: int, started: float) -> DrainRate:
    """The rate of a drain of `rows` records that started at a moment, from samples.

    What the first sample shows was carried before it, at an unknown pace, so it does not count. A transactional topic
    counts the markers of its transactions too; the last sample shows how many, and they are subtracted evenly.
    """
    moved = [
        look for before, look in zip((Sample(started, 0), *looks), looks, strict=False) if look.count > before.count
    ]
    if not moved:
        return DrainRate(None, 0.0, 0.0)
    first, last = moved[0], moved[-1]
    seconds = last.at - first.at
    records = (last.count - first.count) * rows / last.count
    return DrainRate(records / seconds if seconds > 0 else None, seconds, first.at - started)


def sent_of(rows: int, started: float, began: float, ended: float) -> DrainRate:
    """The rate of a sender by its own clock, from its first call to its last acknowledgement.

    It takes a fraction of a second: samples from outside would be too coarse, and would take cores from it.
    """
    return DrainRate(rows / (ended - began), ended - began, began - started)


@dataclass(frozen=True, slots=True)
class TrialSpread:
    """The same figure out of several trials."""

    median: float
    low: float
    high: float
    trials: int

    def as_dict(self) -> dict[str, float | int]:
        figures = {"median": self.median, "min": self.low, "max": self.high}
        return {**{name: round(value, 3) for name, value in figures.items()}, "trials": self.trials}


def spread_of(values: Iterable[float | None]) -> TrialSpread | None:
    """Median, least and greatest of what could be measured; None where nothing could."""
    known = [value for value in values if value is not None]
    return TrialSpread(median(known), min(known), max(known), len(known)) if known else None


def spread_dict(spread: TrialSpread | None) -> dict[str, float | int] | None:
    return None if spread is None else spread.as_dict()


def spread_text(spread: TrialSpread | None, digits: int) -> str:
    """A spread as text: median (least..greatest)."""
    if spread is None:
        return "-"
    middle = f"{spread.median:,.{digits}f}"
    return middle if spread.trials == 1 else f"{middle} ({spread.low:,.{digits}f}..{spread.high:,.{digits}f})"


def difference(now: float | None, before: float | None) -> float | None:
    """What was added since; None where one of them is unknown."""
    return None if now is None or before is None else now - before


def percentile(ordered: Sequence[float], quantile: float) -> float:
    """The smallest value that is not exceeded by this share of the values, which are in order."""
    return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]


def latency_of(milliseconds: Sequence[float]) -> dict[str, float | int]:
    """p50, p95, p99 and the maximum, with the number of values behind them."""
    ordered = sorted(milliseconds)
    if not ordered:
        return {"count": 0}
    named = {f"p{quantile * 100:.0f}": round(percentile(ordered, quantile), 2) for quantile in QUANTILES}
    return {**named, "max": round(ordered[-1], 2), "count": len(ordered)}


def ratio_of(ours: float | None, peer: float | None) -> float | None:
    """Ours over the peer's; None where one of them could not be rated."""
    return round(ours / peer, 3) if ours is not None and peer else None


def ratio_of_medians(ours: TrialSpread | None, peer: TrialSpread | None) -> float | None:
    """Our median over the peer's; None where one of them could not be measured."""
    return ratio_of(ours.median if ours else None, peer.median if peer else None)


# Processor time and memory of a process and everything that it started, as Linux counts them.

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the table of processes."""

    pid: int
    parent: int
    seconds: float
    """Its own time, and that of its children which have ended."""
    name: str = ""
    pages: int = 0
    """Of memory that it has, shared ones too."""

    @classmethod
    def parse(cls, stat: str, ticks_per_second: int) -> Process:
        """From `/proc/PID/stat`; the name in it may hold anything, brackets and blanks too."""
        head, _, tail = stat.rpartition(")")
        pid, _, name = head.partition(" (")
        fields = tail.split()
        ticks = sum(int(field) for field in fields[11:15])
        return cls(int(pid), int(fields[1]), ticks / ticks_per_second, name, int(fields[21]))


def tree_seconds(processes: list[Process], root: int) -> float:
    """The time of `root` and of all its living descendants."""
    by_parent: dict[int, list[Process]] = {}
    for process in processes:
        by_parent.setdefault(process.parent, []).append(process)
    waiting = [process for process in processes if process.pid == root]
    total = 0.0
    while waiting:
        process = waiting.pop()
        total += process.seconds
        waiting += by_parent.get(process.pid, [])
    return total


def tree_pages(processes: list[Process], root: int) -> dict[str, int]:
    """The pages of a Spark application whose driver is `root`: of the driver, its JVM, and what the JVM started."""
    found = {process.pid: process for process in processes}
    pages = {"driver": 0, "jvm": 0, "tasks": 0}
    for process in processes:
        above, names = process, list[str]()
        while above.pid != root and above.parent in found:
            above = found[above.parent]
            names.append(above.name)
        if above.pid == root:
            part = "tasks" if "java" in names else "jvm" if process.name == "java" else "driver"
            pages[part] += process.pages
    return pages


def memory_megabytes(pid: int | None) -> dict[str, float]:
    """What a Spark application holds at this moment, by its parts; empty where the system does not report it."""
    processes = list(_running()) if pid is not None else []
    size = os.sysconf("SC_PAGE_SIZE") / 1_000_000
    return {part: round(pages * size, 1) for part, pages in tree_pages(processes, pid).items()} if pid else {}


def cpu_seconds(pid: int | None) -> float | None:
    """What a process and its descendants have used so far; None where the system does not report it."""
    processes = list(_running()) if pid is not None else []
    return tree_seconds(processes, pid) if pid is not None and processes else None


def _running() -> Iterator[Process]:
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    for entry in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            yield Process.parse(entry.read_text(errors="replace"), ticks_per_second)
