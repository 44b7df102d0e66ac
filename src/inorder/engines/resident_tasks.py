"""The tasks of one launch, each a Spark job of its own, begun again by itself when the environment fails it.

One job a task, and not one for all: Spark gives a job up when one of its tasks has failed too often, and the healthy
ones would go with it. So each has its own back-off, and nobody waits for anybody.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from inorder import gc_tuning
from inorder.engines.driver_channel import Address, Line, Report, Switchboard
from inorder.engines.in_process import apply_all, starts
from inorder.engines.progress import NOBODY, Listener, summed, tell
from inorder.engines.session import STOP_BUDGET_SECONDS, Pauses, raise_gravest, spark_errors
from inorder.engines.slice_task import OUTCOME_SCHEMA, Task, error_row, sorted_out
from inorder.engines.slice_work import SliceOutcome, SliceWork, TopicSource
from inorder.kafka.admin import Place
from inorder.model.errors import InorderError, PermanentError, TransientError

logger = logging.getLogger("inorder.pipeline")

OnTotals = Callable[[int, Mapping[str, int]], None]
"""Hears what the task in a seat has counted since it began."""

CANCEL_SECONDS = 2.0
"""How long a job may take to end that was cancelled; Spark kills its worker meanwhile."""


class Duty(Protocol):
    """What a crew is for."""

    @property
    def name(self) -> str:
        """For logs."""

    @property
    def seats(self) -> int:
        """How many tasks it takes."""

    @property
    def once(self) -> bool:
        """Whether a task that ends is done; else it is begun again."""

    def task(self, seat: int, address: Address) -> Task:
        """What the task in a seat does; it calls the driver at the address."""

    def place(self, seat: int) -> str:
        """What the task in a seat works on, for logs."""


@dataclass(frozen=True, slots=True)
class SliceDuty:
    """Partitions, shared out."""

    work: SliceWork
    source: TopicSource
    shares: tuple[tuple[Place, ...], ...]
    """The partitions of each task."""
    once: bool

    @property
    def name(self) -> str:
        """Of the pipeline."""
        return self.work.name

    @property
    def seats(self) -> int:
        """One a share."""
        return len(self.shares)

    def task(self, seat: int, address: Address) -> Task:
        """Reads and applies its share."""
        return resident_task(Order(seat, self.shares[seat], self.work, self.source, address, self.once))

    def place(self, seat: int) -> str:
        """The partitions."""
        return ", ".join(f"{topic}[{number}]" for topic, number in self.shares[seat])


class Crew:
    """Resident tasks from their launch to their end; `expected` is kept up to date while they work."""

    def __init__(
        self,
        spark: SparkSession,
        duty: Duty,
        expected: dict[Place, int],
        listener: Listener = NOBODY,
        on_totals: OnTotals = lambda _seat, _totals: None,
    ) -> None:
        self.failures: list[InorderError] = []
        self._spark = spark
        self._duty = duty
        self._expected = expected
        self._listener = listener
        self._on_totals = on_totals
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._reports = [0] * duty.seats
        self._group = f"inorder-{uuid.uuid4()}"
        host, bind = driver_host(spark)
        self._switchboard = Switchboard(host, bind, self._seen, self._on_report)
        self._threads = [
            threading.Thread(target=self._keep_at_work, args=(seat,), name=f"resident-{seat}", daemon=True)
            for seat in range(duty.seats)
        ]

    def start(self) -> None:
        """Launches all tasks."""
        for thread in self._threads:
            thread.start()

    def is_at_work(self) -> bool:
        """Whether tasks are still at work and none has failed for good."""
        return not self.failures and any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Lets each task finish the slice in hand, within the budget; then Spark ends what is left."""
        self._over.set()
        self._switchboard.hang_up()
        if not self._joined(STOP_BUDGET_SECONDS):
            logger.warning("pipeline.tasks_cancelled pipeline=%s", self._duty.name)
            with spark_errors():
                self._spark.sparkContext.cancelJobGroup(self._group)
            self._joined(CANCEL_SECONDS)
        self._switchboard.close()

    def _joined(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _keep_at_work(self, seat: int) -> None:
        pauses = Pauses()
        while not self._over.is_set():
            before = self._reports[seat]
            error = self._serve(seat)
            if error is None and self._duty.once:
                return
            error = error or TransientError("The task ended before it was told to.", hint="It is begun again.")
            if not isinstance(error, TransientError):
                self.failures.append(error)
                return
            pause = pauses.after(progress=self._reports[seat] > before)
            if not self._over.is_set():
                place = self._duty.place(seat)
                logger.warning("pipeline.task_restart places=%s pause=%.1fs reason=%s", place, pause, error)
            self._over.wait(pause)

    def _serve(self, seat: int) -> InorderError | None:
        """One life of a task; how it failed, if it did."""
        task = self._duty.task(seat, self._switchboard.address)
        try:
            with spark_errors():
                return self._run_job(task, f"resident task {seat} of {self._duty.name}")
        except InorderError as error:
            return error

    def _run_job(self, task: Task, words: str) -> InorderError | None:
        self._spark.sparkContext.setJobGroup(self._group, words, interruptOnCancel=True)
        # One row in one partition: Spark's way to say one task.
        job = self._spark.range(0, 1, 1, 1).mapInArrow(task, OUTCOME_SCHEMA)
        try:
            _, errors = sorted_out(job.collect())
        except PythonException as error:  # a fault of our own in the task, or a node without inorder
            text = str(error).strip().splitlines() or [type(error).__name__]
            return PermanentError(
                f"A task failed: {text[-1]}", hint="The log of Spark's executors has the whole of it."
            )
        return errors[0] if errors else None

    def _seen(self) -> Mapping[Place, int]:
        with self._lock:
            return dict(self._expected)

    def _on_report(self, seat: int, report: Report) -> None:
        with self._lock:
            self._reports[seat] += 1
            for outcome in report.outcomes:
                place = outcome.topic, outcome.partition
                self._expected[place] = max(outcome.next_offset, self._expected.get(place, 0))
                tell(self._listener, outcome)
            self._listener.spent(report.phases)
            if report.totals:
                self._on_totals(seat, report.totals)


def driver_host(spark: SparkSession) -> tuple[str, str]:
    """The name under which tasks reach the driver, and the address at which it listens."""
    settings = spark.sparkContext.getConf()
    host = settings.get("spark.driver.host") or "127.0.0.1"
    return host, settings.get("spark.driver.bindAddress") or host


# What a resident task does: it reads its partitions from the pointers on and applies slice after slice until the end.
#
# It runs in a Python worker of Spark's. Nothing that it knows outlives it: whoever takes its partitions next asks the
# pointers. An error ends it and goes to the driver as a row, which decides whether it is begun again.

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
        gc_tuning.relax()
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


# Errands on Spark: long-lived tasks that do something else than reading partitions, such as relays.
#
# They share launch, restart and stop with the resident tasks (`resident_crew.py`): each is a Spark job of its own,
# begun again when the environment fails it, and told to end by a line that closes. An errand must bear being run
# twice at once, since Spark may take one for lost that lives on.

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
