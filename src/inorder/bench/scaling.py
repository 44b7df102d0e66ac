"""`inorder bench pipeline --workers 1,2 --partitions 1,2,4`: how the job `upsert` scales on a standalone Spark.

Each point has a topic and a table of its own with the same backlog, and a fresh application. Its rate counts from the
first commit that was seen to the last. The workers are processes of this machine, with one core each: what they share
with the broker, the database and each other is the first limit that such a curve shows, and the report says how many
cores there were.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from inorder.bench.figures import DrainRate, drain_of
from inorder.bench.load import Load
from inorder.bench.options import DRAIN_CAP_SECONDS, START_CAP_SECONDS
from inorder.bench.pipeline import fill, stored_rows
from inorder.bench.place import BenchPlace
from inorder.bench.report import ReadBackCheck, check_table, machine_line, show_verdict
from inorder.bench.watching import watch
from inorder.embedded import SparkCluster
from inorder.kafka.admin import ensure_topic

_PIPELINE = """\
[pipeline]
engine = "{engine}"
master = "{master}"
create_tables = true
[pipeline.upsert]
topic = "{name}"
table = "{name}"
"""
_MOVED = "SELECT coalesce(sum(next_offset), 0)::bigint FROM inorder_pointer WHERE pipeline = %s"
_COUNTED = """
SELECT coalesce(sum(records_applied + records_identical + records_stale + records_ignored), 0)::bigint
       + coalesce(sum(records_rejected), 0)::bigint
FROM inorder_pointer WHERE pipeline = %s
"""


@dataclass(frozen=True, slots=True)
class ScalingOptions:
    """Which points are measured, each with a backlog of so many rows."""

    workers: tuple[int, ...]
    partitions: tuple[int, ...]
    rows: int
    keys: int
    engine: str


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """A number of workers and partitions, and how fast the backlog was caught up with."""

    workers: int
    partitions: int
    drain: DrainRate
    check: ReadBackCheck

    @property
    def name(self) -> str:
        return f"{self.workers} workers, {self.partitions} partitions"

    def as_dict(self) -> dict[str, Any]:
        figures = {"workers": self.workers, "partitions": self.partitions, **self.drain.as_dict()}
        return {**figures, "check": self.check.as_dict()}


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """The object that `--json` prints."""

    options: ScalingOptions
    points: Sequence[ScalingPoint]
    machine: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        """Whether everything that was read back is whole and in order."""
        return all(point.check.verdict.holds for point in self.points)

    def as_dict(self) -> dict[str, Any]:
        return {
            "bench": "pipeline scaling",
            "engine": self.options.engine,
            "rows": self.options.rows,
            "keys": self.options.keys,
            "points": [point.as_dict() for point in self.points],
            "machine": dict(self.machine),
        }


def bench_scaling(place: BenchPlace, options: ScalingOptions) -> list[ScalingPoint]:
    """Measures each point after the other; the workers are started once for all numbers of partitions."""
    points = []
    for workers in options.workers:
        place.say(f"Starting Spark with {workers} workers of one core …")
        with SparkCluster(place.folder / f"spark-{workers}", workers) as cluster:
            points += [_measure(place, options, cluster.url, workers, partitions) for partitions in options.partitions]
    return points


def _measure(place: BenchPlace, options: ScalingOptions, master: str, workers: int, partitions: int) -> ScalingPoint:
    name = f"scaling_{workers}_{partitions}"
    load = Load(options.rows, options.keys, has_partials=True)
    ensure_topic(place.kafka, name, partitions)
    fill(place, name, load, 0, load.rows)
    service = place.service("pipeline", "run", "upsert", config=_config(place, options, master, name))
    place.say(f"Catching up with {workers} workers and {partitions} partitions …")

    def ask(statement: str) -> int:
        found = place.watching.execute(statement, (f"upsert:{name}",)).fetchone()
        return int(found[0]) if found else 0

    started = time.monotonic()
    with place.running(service) as running:
        cap = START_CAP_SECONDS + DRAIN_CAP_SECONDS
        looks = watch(lambda: ask(_MOVED), lambda moved: moved >= load.rows, running.check, cap)
    check = check_table(load, stored_rows(place, name), ask(_COUNTED))
    return ScalingPoint(workers, partitions, drain_of(looks, load.rows, started), check)


def _config(place: BenchPlace, options: ScalingOptions, master: str, name: str) -> Path:
    return place.write_config(f"{name}.toml", _PIPELINE.format(engine=options.engine, master=master, name=name))


def show_scaling(console: Console, report: ScalingReport) -> None:
    """The curve, a line for each point."""
    table = Table(box=None, pad_edge=False)
    for heading in ("workers", "partitions", "per second", "seconds", "startup s"):
        table.add_column(heading, justify="right")
    for point in report.points:
        rate = point.drain.records_per_second
        cells = (point.workers, point.partitions, "-" if rate is None else f"{rate:,.0f}")
        times = (f"{point.drain.seconds:.2f}", f"{point.drain.startup_seconds:.1f}")
        table.add_row(*map(str, cells), *times)
    console.print(table, highlight=False)
    rows = f"{report.options.rows:,} rows of {report.options.keys:,} keys a point, engine {report.options.engine}."
    console.print(f"{rows} {machine_line(report.machine)}", highlight=False)
    show_verdict(console, {point.name: point.check for point in report.points}, report.holds)
