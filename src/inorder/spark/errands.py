"""Errands on Spark: long-lived tasks that do something else than reading partitions, such as relays.

They share launch, restart and stop with the resident tasks (`resident_crew.py`): each is a Spark job of its own, begun
again when the environment fails it, and told to end by a line that closes. An errand must bear being run twice at once,
since Spark may take one for lost that lives on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession

from inorder.model.errors import InorderError
from inorder.spark.faults import raise_gravest
from inorder.spark.outcome_rows import error_row
from inorder.spark.resident_channel import Address, Line, Report
from inorder.spark.resident_crew import Crew, OnTotals
from inorder.spark.slice_task import Task

_WATCH_SECONDS = 0.05

Totals = Mapping[str, int]


class Errand(Protocol):
    """What a task does; it travels pickled."""

    def __call__(self, goes_on: Callable[[], bool], tell: Callable[[Totals], None]) -> None:
        """Works for as long as `goes_on` says, which is cheap to ask; `tell` takes what it has counted so far."""


@dataclass(frozen=True, slots=True)
class ErrandDuty:
    """The same errand for each of some tasks."""

    name: str
    errand: Errand
    seats: int
    once: bool = False

    def task(self, seat: int, address: Address) -> Task:
        """Runs the errand."""
        return errand_task(self.errand, seat, address)

    def place(self, seat: int) -> str:
        """Its number."""
        return f"{self.name} {seat}"


def errand_task(errand: Errand, seat: int, address: Address) -> Task:
    """The function for `mapInArrow`; its input says nothing, its output is at most an error."""

    def serve(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            with closing(Line(address, seat)) as line:
                errand(line.look, lambda totals: line.report(Report((), {}, totals)))
        except InorderError as error:
            yield error_row(error)

    return serve


def run_errand(spark: SparkSession, duty: ErrandDuty, stop: threading.Event, on_totals: OnTotals) -> None:
    """Blocks until `stop` is set; raises the gravest error that ended a task for good."""
    crew = Crew(spark, duty, {}, on_totals=on_totals)
    crew.start()
    try:
        while crew.is_at_work() and not stop.wait(_WATCH_SECONDS):
            pass
    finally:
        crew.stop()
    raise_gravest(crew.failures)
