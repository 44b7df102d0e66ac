"""The tasks of one launch, each a Spark job of its own, begun again by itself when the environment fails it.

One job a task, and not one for all: Spark gives a job up when one of its tasks has failed too often, and the healthy
ones would go with it. So each has its own back-off, and nobody waits for anybody.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from inorder.model.errors import InorderError, PermanentError, TransientError
from inorder.pipeline.progress import NOBODY, Listener, tell
from inorder.ports.partition_reader import Place, TopicSource
from inorder.ports.slice_work import SliceWork
from inorder.spark.faults import STOP_BUDGET_SECONDS, Pauses, spark_errors
from inorder.spark.outcome_rows import OUTCOME_SCHEMA, sorted_out
from inorder.spark.resident_channel import Address, Report, Switchboard
from inorder.spark.resident_task import Order, resident_task
from inorder.spark.slice_task import Task

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
