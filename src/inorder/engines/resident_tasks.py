"""Long-lived Spark tasks from their launch to their end: those that consume partitions, and services such as relays.

Each task is a Spark job of its own, restarted by itself when the environment fails it. One job for all tasks would not
do: Spark gives up a job when one of its tasks has failed too often, and the healthy tasks would end with it. So each
task has its own backoff, and none waits for another.

A task runs in one of Spark's Python workers. It keeps no state that outlives it: its successor begins at the pointers.
An error ends the task and reaches the driver as a row; the driver decides whether to restart the task. The task ends
when its connection to the driver is closed (`driver_channel.py`).
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import TaskContext
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from inorder import gc_tuning
from inorder.engines.driver_channel import PORTS, DriverAddress, DriverConnection, DriverServer, TaskReport
from inorder.engines.faults import PartitionFaults
from inorder.engines.holds import Holds
from inorder.engines.in_process import apply_all, begin_at
from inorder.engines.placement import Assignment, CountWatch, TaskPlacement
from inorder.engines.progress import NULL_LISTENER, Listener, LoggingListener, add_outcomes
from inorder.engines.session import (
    STOP_BUDGET_SECONDS,
    Backoff,
    DecommissionWatch,
    raise_gravest,
    spark_errors,
    worker_hint,
)
from inorder.engines.slice_task import OUTCOME_SCHEMA, Task, error_row, split_results
from inorder.engines.slice_work import SliceOutcome, SliceWork, SliceWorker, TopicSource
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
"""What the driver gets of all partitions together at most: 8,000 cost it more than a core."""
DESCRIPTION_LENGTH = 200
"""Of a job in Spark's UI, however many partitions a task has."""
WATCH_SECONDS = 0.05
CHECK_SECONDS = 2.0
"""How often the driver checks for new partitions and another number of slots."""
IDLE_SECONDS = 0.5
"""How often a task without partitions looks whether Spark has cancelled it; an assignment wakes it."""
DRIVER_PORT = "spark.inorder.driver.port"

Totals = Mapping[str, int]
OnTotals = Callable[[int, Totals], None]
"""Called with the index of a service task and what it has counted since it began."""


class TaskPlan(Protocol):
    """What the tasks of a launch do."""

    @property
    def name(self) -> str:
        """For logs."""

    @property
    def once(self) -> bool:
        """Whether a task that ends is done; else it is restarted."""

    @property
    def shares(self) -> Sequence[Sequence[Place]]:
        """The partitions of each task at the launch; as many as there are tasks."""

    def task(self, index: int, address: DriverAddress) -> Task:
        """The function that the task runs; it connects to the driver at the address."""


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
        """With `once`, of partitions that would wait; the others are read on."""
        self._spark = spark
        self._plan = plan
        self._faults = faults
        self._listener = LoggingListener(listener)
        self._on_totals = on_totals
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._reports: Counter[int] = Counter()
        self._group = f"inorder-{uuid.uuid4()}"
        self._has_places = any(plan.shares)
        self._placement = TaskPlacement(plan.shares)
        self._leaving = DecommissionWatch(spark)
        self._wanted: set[int] = set()
        self._threads: dict[int, threading.Thread] = {}
        self._server = DriverServer(*driver_host(spark), self, driver_port(spark))

    def start(self) -> None:
        self.resize(len(self._plan.shares))

    @property
    def count(self) -> int:
        return len(self._wanted)

    def resize(self, count: int) -> None:
        """Starts more tasks, or ends some: first those that wait for a slot."""
        with self._lock:
            here = self._placement.here
            kept = sorted(self._wanted, key=lambda index: (index not in here, index))[:count]
            retired = self._wanted.difference(kept)
            free = (index for index in itertools.count() if not self._is_taken(index))
            new = [next(free) for _ in range(count - len(kept))]
            self._wanted = {*kept, *new}
            for index in retired:
                self._placement.retire(index)
        for index in retired:
            self._server.end(index)
            self._cancel(index)
        for index in new:
            thread = threading.Thread(target=self._keep_running, args=(index,), name=f"resident-{index}", daemon=True)
            self._threads[index] = thread
            thread.start()

    def _is_taken(self, index: int) -> bool:
        thread = self._threads.get(index)
        return index in self._wanted or (thread is not None and thread.is_alive())

    def tend(self) -> None:
        """Moves partitions where tasks have come or gone; to be called often."""
        decommissioned = self._leaving.look()
        with self._lock:
            leaving = [index for index in decommissioned if self._placement.ask_to_leave(index)]
            moved = self._placement.decide()
        for index, assignment in moved.items():
            fields = {"pipeline": self._plan.name, "task": index, "partitions": describe_places(assignment.places)}
            logger.info("pipeline.task_assigned", extra=fields)
            self._server.assign(index, assignment)
        for index in leaving:
            logger.info("pipeline.task_moves", extra={"pipeline": self._plan.name, "task": index})
            self._server.end(index)

    def is_running(self) -> bool:
        """Whether tasks are still running and none has failed for good."""
        if self.failures or (self._has_places and not self._placement.places):
            return False
        return any(thread.is_alive() for thread in list(self._threads.values()))

    def stop(self) -> None:
        """Lets each task finish its current slice, within the budget; then Spark cancels the rest."""
        self._stopping.set()
        self._server.request_stop()
        with self._lock:
            waiting = self._wanted.difference(self._placement.here)
        for index in waiting:  # for a slot, perhaps for ever
            self._cancel(index)
        if not self._join(STOP_BUDGET_SECONDS):
            logger.warning("pipeline.tasks_cancelled", extra={"pipeline": self._plan.name})
            for index in self._threads:
                self._cancel(index)
            self._join(CANCEL_SECONDS)
        self._server.close()

    def _cancel(self, index: int) -> None:
        with spark_errors():
            self._spark.sparkContext.cancelJobGroup(f"{self._group}-{index}")

    def _join(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads.values())

    def _keep_running(self, index: int) -> None:
        backoff = Backoff()
        while self._goes_on(index):
            before, places = self._reports[index], self._placement.places_of(index)
            error = self._run_task(index)
            if not self._goes_on(index) or (error is None and self._plan.once and not self._has_places):
                return
            if error is None and self._placement.is_leaving(index):
                continue
            error = error or TransientError("The task ended before it was asked to.", hint="It is restarted.")
            if isinstance(error, MassRefusalError) and self._plan.once:  # such a run does not wait
                self.unfinished.append(error)
                self._drop([error.place] if error.place else self._placement.places)
                continue
            is_absorbed = self._faults.absorb(error)
            self._drop(self._faults.stopped)
            if not isinstance(error, TransientError) and not is_absorbed:
                self.failures.append(error)
                return
            pause = backoff.after(progress=self._reports[index] > before)
            with self._lock:
                self._placement.wait_for(index, pause)
            if self._goes_on(index):
                fields = {"task": describe_places(places), "pause_seconds": pause, "error": str(error)}
                logger.warning("pipeline.task_restart", extra=fields)
                self._listener.restarted([place for place in places if place not in self._faults.stopped], error)
            self._stopping.wait(pause)

    def _goes_on(self, index: int) -> bool:
        is_done = self._has_places and not self._placement.places
        return index in self._wanted and not is_done and not self._stopping.is_set()

    def _drop(self, places: Iterable[Place]) -> None:
        with self._lock:
            self._placement.drop(set(places))

    def _run_task(self, index: int) -> InorderError | None:
        """Runs a task from its start to its end; returns how it failed, if it did."""
        task = self._plan.task(index, self._server.address)
        works_on = describe_places(self._placement.places_of(index)) or f"task {index}"
        try:
            with spark_errors():
                return self._run_job(index, task, _shorten(f"inorder {self._plan.name}: {works_on}"))
        except InorderError as error:
            return error

    def _run_job(self, index: int, task: Task, description: str) -> InorderError | None:
        self._spark.sparkContext.setJobGroup(f"{self._group}-{index}", description, interruptOnCancel=True)
        # One row in one partition makes one task.
        job = self._spark.range(0, 1, 1, 1).mapInArrow(task, OUTCOME_SCHEMA)
        try:
            _, errors = split_results(job.collect())
        except PythonException as error:  # a bug in the task, or a node without inorder
            text = str(error).strip().splitlines() or [type(error).__name__]
            return PermanentError(f"A task failed: {text[-1]}", hint=worker_hint(text[-1]))
        return errors[0] if errors else None

    # What the tasks say.

    def joined(self, index: int, attempt: int) -> Assignment | None:
        with self._lock:
            if index not in self._wanted:
                return None
            self._leaving.join(index, attempt)
            return self._placement.join(index)

    def left(self, index: int) -> None:
        with self._lock:
            self._leaving.leave(index)
            self._placement.leave(index)

    def expected(self, places: Collection[Place]) -> Mapping[Place, int]:
        expected = self._faults.expected()
        return {place: expected[place] for place in places if place in expected}

    def reported(self, index: int, report: TaskReport) -> None:
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
            if report.follows is not None:
                self._placement.follows(index, report.follows)
            if report.ended:
                self._placement.drop(report.ended)


def describe_places(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}[{number}]" for topic, number in places)


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
    once: bool

    @property
    def name(self) -> str:
        return self.work.name

    def task(self, index: int, address: DriverAddress) -> Task:
        return resident_task(TaskOrder(index, self.work, self.source, address, self.once, self.report_seconds))

    @property
    def report_seconds(self) -> float:
        """The interval between two reports of a task; tasks come and go, and their number has no bound but this."""
        return max(REPORT_SECONDS, sum(map(len, self.shares)) / REPORTS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """What one task needs to consume partitions, which the driver names; it is pickled."""

    index: int
    work: SliceWork
    source: TopicSource
    address: DriverAddress
    once: bool
    report_seconds: float = REPORT_SECONDS


def resident_task(order: TaskOrder) -> Task:
    """The function for `mapInArrow`; it ignores its input, and its output is at most an error."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gc_tuning.relax()
        for _ in batches:
            pass
        try:
            consume(order)
        except InorderError as error:
            yield error_row(error)

    return run


def consume(order: TaskOrder) -> None:
    """Applies slices of the partitions that the driver assigns, until it closes the connection.

    Reading begins at the pointers.
    """
    with closing(DriverConnection(order.address, order.index, attempt_id())) as driver:
        if not driver.check():
            return
        with closing(order.work.open()) as worker:
            while driver.is_open:
                assignment = driver.assignment
                driver.report(TaskReport((), {}, follows=assignment.number))
                if assignment.places:
                    _read(order, assignment.places, driver, worker)
                while driver.assignment is assignment and driver.wait(IDLE_SECONDS):
                    pass


def _read(order: TaskOrder, places: Collection[Place], driver: DriverConnection, worker: SliceWorker) -> None:
    """Reads partitions while they are assigned; with `once`, at most to their end."""
    assignment, once = driver.assignment, order.once
    reporter = _Reporter(driver, order.report_seconds)
    # What waits is forgotten with the assignment: its records are read again, and refused again.
    holds, unread = Holds(reporter, once=once), set(places) if once else None
    must_read = True
    while must_read:
        begin = begin_at(worker, order.source, places)
        reader = order.source.open(
            begin.offsets, headers=order.work.needs_headers, reports_ends=once, epochs=begin.epochs
        )
        holds.read_again()
        with closing(reader), closing(reporter):
            must_read = apply_all(
                reader,
                worker,
                reporter,
                ids=begin.ids,
                expected=driver.expected,
                goes_on=lambda: driver.check() and driver.assignment is assignment,
                holds=holds,
                unread=unread,
            )
    if unread is not None:
        driver.report(TaskReport((), {}, ended=[place for place in places if place not in unread]))
        if not unread:
            raise_gravest([*holds.errors])


def attempt_id() -> int:
    """Spark's id of the task that runs in this process; -1 outside of Spark."""
    task = TaskContext.get()
    return -1 if task is None else task.taskAttemptId()


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

    @property
    def shares(self) -> Sequence[Sequence[Place]]:
        return [()] * self.count

    def task(self, index: int, address: DriverAddress) -> Task:
        return service_task(self.service, index, address)


def service_task(service: ServiceTask, index: int, address: DriverAddress) -> Task:
    """The function for `mapInArrow`; it ignores its input, and its output is at most an error."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            with closing(DriverConnection(address, index, attempt_id())) as driver:
                service(driver.check, lambda totals: driver.report(TaskReport((), {}, totals)))
        except InorderError as error:
            yield error_row(error)

    return run


def run_service(
    spark: SparkSession,
    plan: ServiceTaskPlan,
    stop: threading.Event,
    on_totals: OnTotals,
    count: Callable[[], int] | None = None,
) -> None:
    """Blocks until `stop` is set; raises the gravest error that ended a task for good.

    `count` returns how many tasks are of use now.
    """
    faults = PartitionFaults(plan.name, "stop", NULL_LISTENER)
    tasks, watch = ResidentTasks(spark, plan, faults, on_totals=on_totals), CountWatch(plan.count)
    tasks.start()
    try:
        check_at = time.monotonic() + CHECK_SECONDS
        while tasks.is_running() and not stop.wait(WATCH_SECONDS):
            tasks.tend()
            if count is not None and time.monotonic() >= check_at:
                if watch.look(count()):
                    tasks.resize(watch.count)
                check_at = time.monotonic() + CHECK_SECONDS
    finally:
        tasks.stop()
    raise_gravest(tasks.failures)
