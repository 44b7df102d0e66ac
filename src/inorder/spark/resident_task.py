"""What a resident task does: it reads its partitions from the pointers on and applies slice after slice until the end.

It runs in a Python worker of Spark's. Nothing that it knows outlives it: whoever takes its partitions next asks the
pointers. An error ends it and goes to the driver as a row, which decides whether it is begun again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from inorder.garbage import look_for_cycles_less_often
from inorder.model.errors import InorderError
from inorder.pipeline.attending import apply_all, starts
from inorder.pipeline.progress import summed
from inorder.ports.partition_reader import Place, TopicSource
from inorder.ports.slice_work import SliceOutcome, SliceWork
from inorder.spark.outcome_rows import error_row
from inorder.spark.resident_channel import Address, Line, Report
from inorder.spark.slice_task import Task

REPORT_SECONDS = 0.05
"""Reports are not closer than this: at some hundred small slices a second they would cost more than they tell."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a task is to do; it travels pickled."""

    seat: int
    places: tuple[Place, ...]
    work: SliceWork
    source: TopicSource
    address: Address
    once: bool


def resident_task(order: Order) -> Task:
    """The function for `mapInArrow`; its input says nothing, its output is at most an error."""

    def serve(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        look_for_cycles_less_often()
        for _ in batches:
            pass
        try:
            attend(order)
        except InorderError as error:
            yield error_row(error)

    return serve


def attend(order: Order) -> None:
    """Works until the driver hangs up or, with `once`, until all partitions have been read to their end."""
    with closing(Line(order.address, order.seat)) as line, closing(order.work.open()) as worker:
        if not line.look():
            return
        begin = starts(worker, order.places)
        reader = order.source.open(begin, headers=order.work.needs_headers, tells_ends=order.once)
        unread = set(order.places) if order.once else None
        with closing(reader), closing(_Journal(line)) as journal:
            apply_all(reader, worker, journal, expected=line.expected, goes_on=line.look, unread=unread)


class _Journal:
    """What was done since the last report, and when the next one is due."""

    def __init__(self, line: Line, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = line
        self._clock = clock
        self._outcomes: dict[Place, SliceOutcome] = {}
        self._phases: Counter[str] = Counter()
        self._due = clock()

    def note(self, outcome: SliceOutcome) -> None:
        """A slice was applied."""
        place = outcome.topic, outcome.partition
        before = self._outcomes.get(place)
        self._outcomes[place] = outcome if before is None else summed(before, outcome)

    def spent(self, reading: float, applying: float) -> None:
        """So many seconds have gone; reports when it is time."""
        self._phases.update({"read": reading, "apply": applying})
        if self._outcomes and self._clock() >= self._due:
            self.close()

    def close(self) -> None:
        """Reports what is left."""
        if self._outcomes:
            self._line.report(Report(list(self._outcomes.values()), self._phases))
            self._outcomes, self._phases = {}, Counter()
            self._due = self._clock() + REPORT_SECONDS
