"""Long-lived Spark tasks from their launch to their end: those that consume partitions, and services such as relays.

Each task is a Spark job of its own, restarted by itself when the environment fails it. One job for all tasks would not
do: Spark gives up a job when one of its tasks has failed too often, and the healthy tasks would end with it. So each
task has its own backoff, and none waits for another.

A task runs in one of Spark's Python workers. It keeps no state that outlives it: its successor begins at the pointers.
An error ends the task and reaches the driver as a row; the driver decides whether to restart the task. The task ends
when its connection to the driver is closed (`driver_channel.py`).
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from inorder import gc_tuning
from inorder.engines.driver_channel import PORTS, DriverAddress, DriverConnection, DriverServer, TaskReport
from inorder.engines.faults import PartitionFaults
from inorder.engines.holds import Holds
from inorder.engines.in_process import apply_all, begin_at
from inorder.engines.progress import NULL_LISTENER, Listener, LoggingListener, add_outcomes
from inorder.engines.session import STOP_BUDGET_SECONDS, Backoff, raise_gravest, spark_errors, worker_hint
from inorder.engines.slice_task import OUTCOME_SCHEMA, Task, error_row, split_results
from inorder.engines.slice_work import SliceOutcome, SliceWork, TopicSource
from inorder.model.errors import (
    ConfigurationError,
    GuaranteeError,
    InorderError,
    MassRefusalError,
    PermanentError,
    TransientError,
)
from inorder.model.partitioning import Place

logger = logging.getLogger("inorder.pipeline")

CANCEL_SECONDS = 2.0
"""How long a cancelled job may take to end; Spark kills its Python worker meanwhile."""
REPORT_SECONDS = 0.05
"""The shortest interval between two reports: at hundreds of small slices per second, one each would cost too much."""
REPORTS_PER_SECOND = 1_000
"""What the driver gets from all tasks together at most: 8,000 cost it more than a core."""
DESCRIPTION_LENGTH = 200
"""Of a job in Spark's UI, however many partitions a task has."""
_WATCH_SECONDS = 0.05
DRIVER_PORT = "spark.inorder.driver.port"

Totals = Mapping[str, int]
OnTotals = Callable[[int, Totals], None]
"""Called with the index of a service task and what it has counted since it began."""


class TaskPlan(Protocol):
    """Which tasks to run, and how many."""

    @property
    def name(self) -> str:
        """For logs."""

    @property
    def count(self) -> int:
        """The number of tasks; they have the indexes 0 to count - 1."""

    @property
    def once(self) -> bool:
        """Whether a task that ends is done; else it is restarted."""

    def task(self, index: int, address: DriverAddress, without: Collection[Place] = ()) -> Task | None:
        """The function that the task runs; it connects to the driver at the address.

        It leaves the partitions of `without` alone; None if nothing else is left.
        """

    def describe(self, index: int) -> str:
        """What the task works on, for logs and Spark's UI."""

    def places(self, index: int) -> Collection[Place]:
        """The partitions that the task reads."""


class ResidentTasks:
    """The tasks of one plan on the driver's side; `faults` is updated while they work."""

    def __init__(
        self,
        spark: SparkSession,
        plan: TaskPlan,
        faults: PartitionFaults,
        listener: Listener = NULL_LISTENER,
        on_totals: OnTotals = lambda _index, _totals: None,
    ) -> None:
        self.failures: list[InorderError] = []
        self.unfinished: list[InorderError] = []
        """Of tasks that ended with `once` although partitions of them wait; the other tasks go on."""
        self._spark = spark
        self._plan = plan
        self._faults = faults
        self._listener = LoggingListener(listener)
        self._on_totals = on_totals
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._reports = [0] * plan.count
        self._group = f"inorder-{uuid.uuid4()}"
        self._server = DriverServer(*driver_host(spark), self._expected, self._on_report, driver_port(spark))
        self._threads = [
            threading.Thread(target=self._keep_running, args=(index,), name=f"resident-{index}", daemon=True)
            for index in range(plan.count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def is_running(self) -> bool:
        """Whether tasks are still running and none has failed for good."""
        return not self.failures and any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Lets each task finish its current slice, within the budget; then Spark cancels the rest."""
        self._stopping.set()
        self._server.request_stop()
        if not self._join(STOP_BUDGET_SECONDS):
            logger.warning("pipeline.tasks_cancelled", extra={"pipeline": self._plan.name})
            with spark_errors():
                self._spark.sparkContext.cancelJobGroup(self._group)
            self._join(CANCEL_SECONDS)
        self._server.close()

    def _join(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _keep_running(self, index: int) -> None:
        backoff = Backoff()
        while not self._stopping.is_set():
            before = self._reports[index]
            error = self._run_task(index)
            if error is None and self._plan.once:
                return
            error = error or TransientError("The task ended before it was asked to.", hint="It is restarted.")
            if isinstance(error, MassRefusalError) and self._plan.once:  # such a run does not wait
                self.unfinished.append(error)
                return
            is_absorbed = self._faults.absorb(error)
            if self._plan.task(index, self._server.address, self._faults.stopped) is None:
                return
            if not isinstance(error, TransientError) and not is_absorbed:
                self.failures.append(error)
                return
            pause = backoff.after(progress=self._reports[index] > before)
            if not self._stopping.is_set():
                fields = {"task": self._plan.describe(index), "pause_seconds": pause, "error": str(error)}
                logger.warning("pipeline.task_restart", extra=fields)
                self._listener.restarted(
                    [place for place in self._plan.places(index) if place not in self._faults.stopped], error
                )
            self._stopping.wait(pause)

    def _run_task(self, index: int) -> InorderError | None:
        """Runs a task from its start to its end; returns how it failed, if it did."""
        task = self._plan.task(index, self._server.address, self._faults.stopped)
        if task is None:
            return None
        try:
            with spark_errors():
                return self._run_job(task, _shorten(f"inorder {self._plan.name}: {self._plan.describe(index)}"))
        except InorderError as error:
            return error

    def _run_job(self, task: Task, description: str) -> InorderError | None:
        self._spark.sparkContext.setJobGroup(self._group, description, interruptOnCancel=True)
        # One row in one partition makes one task.
        job = self._spark.range(0, 1, 1, 1).mapInArrow(task, OUTCOME_SCHEMA)
        try:
            _, errors = split_results(job.collect())
        except PythonException as error:  # a bug in the task, or a node without inorder
            text = str(error).strip().splitlines() or [type(error).__name__]
            return PermanentError(f"A task failed: {text[-1]}", hint=worker_hint(text[-1]))
        return errors[0] if errors else None

    def _expected(self, index: int) -> Mapping[Place, int]:
        expected = self._faults.expected()
        return {place: expected[place] for place in self._plan.places(index) if place in expected}

    def _on_report(self, index: int, report: TaskReport) -> None:
        with self._lock:
            self._reports[index] += 1
            for outcome in report.outcomes:
                self._faults.expect({(outcome.topic, outcome.partition): outcome.next_offset})
                self._listener.applied(outcome)
            for topic, number, message, hint in report.waits:
                self._listener.waits((topic, number), MassRefusalError(message, hint=hint))
            self._listener.spent(report.phases)
            if report.totals:
                self._on_totals(index, report.totals)


def _shorten(text: str) -> str:
    return text if len(text) <= DESCRIPTION_LENGTH else f"{text[: DESCRIPTION_LENGTH - 1]}…"


def driver_host(spark: SparkSession) -> tuple[str, str]:
    """The name by which tasks reach the driver, and the address at which it listens."""
    settings = spark.sparkContext.getConf()
    host = settings.get("spark.driver.host") or "127.0.0.1"
    return host, settings.get("spark.driver.bindAddress") or host


def driver_port(spark: SparkSession) -> int:
    """The first of the ports at which tasks may reach the driver; 0 for any."""
    text = spark.sparkContext.getConf().get(DRIVER_PORT) or "0"
    if not text.isdecimal() or int(text) > 65_535 - PORTS:
        raise ConfigurationError(f"{DRIVER_PORT} is {text!r}.", hint="Set a port number, or remove the property.")
    return int(text)


# Tasks that consume partitions.


@dataclass(frozen=True, slots=True)
class SliceTaskPlan:
    """A `TaskPlan` that shares partitions out among tasks."""

    work: SliceWork
    source: TopicSource
    shares: tuple[tuple[Place, ...], ...]
    """The partitions of each task."""
    once: bool

    @property
    def name(self) -> str:
        return self.work.name

    @property
    def count(self) -> int:
        return len(self.shares)

    @property
    def report_seconds(self) -> float:
        """The interval between two reports of a task."""
        return max(REPORT_SECONDS, self.count / REPORTS_PER_SECOND)

    def task(self, index: int, address: DriverAddress, without: Collection[Place] = ()) -> Task | None:
        places = tuple(place for place in self.shares[index] if place not in without)
        if not places:
            return None
        assignment = TaskAssignment(index, places, self.work, self.source, address, self.once, self.report_seconds)
        return resident_task(assignment)

    def describe(self, index: int) -> str:
        return ", ".join(f"{topic}[{number}]" for topic, number in self.shares[index])

    def places(self, index: int) -> Collection[Place]:
        return self.shares[index]


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """What one task consumes; it is pickled."""

    index: int
    places: tuple[Place, ...]
    work: SliceWork
    source: TopicSource
    address: DriverAddress
    once: bool
    report_seconds: float = REPORT_SECONDS


def resident_task(assignment: TaskAssignment) -> Task:
    """The function for `mapInArrow`; it ignores its input, and its output is at most an error."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gc_tuning.relax()
        for _ in batches:
            pass
        try:
            consume(assignment)
        except InorderError as error:
            yield error_row(error)

    return run


def consume(assignment: TaskAssignment) -> None:
    """Applies slices until the driver closes the connection or, with `once`, until all partitions are read to the end.

    Reading begins at the pointers.
    """
    with (
        closing(DriverConnection(assignment.address, assignment.index)) as driver,
        closing(assignment.work.open()) as worker,
    ):
        if not driver.check():
            return
        reporter, once = _Reporter(driver, assignment.report_seconds), assignment.once
        holds, unread = Holds(reporter, once=once), set(assignment.places) if once else None
        must_read = True
        while must_read:
            begin = begin_at(worker, assignment.source, assignment.places)
            reader = assignment.source.open(
                begin.offsets, headers=assignment.work.needs_headers, reports_ends=once, epochs=begin.epochs
            )
            holds.read_again()
            with closing(reader), closing(reporter):
                must_read = apply_all(
                    reader,
                    worker,
                    reporter,
                    ids=begin.ids,
                    expected=driver.expected,
                    goes_on=driver.check,
                    holds=holds,
                    unread=unread,
                )
        if once:
            raise_gravest([*holds.errors])


class _Reporter:
    """Sums up what was done since the last report, and sends it when the next one is due."""

    def __init__(self, driver: DriverConnection, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._seconds = seconds
        self._clock = clock
        self._outcomes: dict[Place, SliceOutcome] = {}
        self._phases: Counter[str] = Counter()
        self._due = clock()

    def applied(self, outcome: SliceOutcome) -> None:
        place = outcome.topic, outcome.partition
        before = self._outcomes.get(place)
        self._outcomes[place] = outcome if before is None else add_outcomes(before, outcome)

    def spent(self, phases: Mapping[str, float]) -> None:
        self._phases.update(phases)
        if self._outcomes and self._clock() >= self._due:
            self.close()

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        """The task ends with the error, and the driver decides."""

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        """The driver restarts tasks."""

    def waits(self, place: Place, error: MassRefusalError) -> None:
        """Reports it at once."""
        self.close()
        self._driver.report(TaskReport((), {}, waits=[(*place, error.message, error.hint)]))

    def close(self) -> None:
        """Sends what is not reported yet."""
        if self._outcomes:
            self._driver.report(TaskReport(list(self._outcomes.values()), self._phases))
            self._outcomes, self._phases = {}, Counter()
            self._due = self._clock() + self._seconds


# Tasks that run a service, such as a relay.


class ServiceTask(Protocol):
    """A long-running function; it is pickled. Two may run at once: Spark may replace a task that is still alive."""

    def __call__(self, goes_on: Callable[[], bool], report: Callable[[Totals], None], /) -> None:
        """Runs while `goes_on()`, which is cheap, is true; passes what it has counted since it began to `report`."""


@dataclass(frozen=True, slots=True)
class ServiceTaskPlan:
    """A `TaskPlan` that runs the same service in each of `count` tasks."""

    name: str
    service: ServiceTask
    count: int
    once: bool = False

    def task(self, index: int, address: DriverAddress, without: Collection[Place] = ()) -> Task:  # noqa: ARG002 - no partitions
        return service_task(self.service, index, address)

    def describe(self, index: int) -> str:
        return f"{self.name} {index}"

    def places(self, index: int) -> Collection[Place]:  # noqa: ARG002 - no partitions
        return ()


def service_task(service: ServiceTask, index: int, address: DriverAddress) -> Task:
    """The function for `mapInArrow`; it ignores its input, and its output is at most an error."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            with closing(DriverConnection(address, index)) as driver:
                service(driver.check, lambda totals: driver.report(TaskReport((), {}, totals)))
        except InorderError as error:
            yield error_row(error)

    return run


def run_service(spark: SparkSession, plan: ServiceTaskPlan, stop: threading.Event, on_totals: OnTotals) -> None:
    """Blocks until `stop` is set; raises the gravest error that ended a task for good."""
    faults = PartitionFaults(plan.name, "stop", NULL_LISTENER)
    tasks = ResidentTasks(spark, plan, faults, on_totals=on_totals)
    tasks.start()
    try:
        while tasks.is_running() and not stop.wait(_WATCH_SECONDS):
            pass
    finally:
        tasks.stop()
    raise_gravest(tasks.failures)
