"""A slice work on an engine: started, stopped, and restarted when what it should read has changed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from inorder.engines.faults import OnMovedBack
from inorder.engines.progress import Listener
from inorder.engines.slice_work import DriverCommitted, SliceWork, jittered
from inorder.kafka.java_client import java_properties
from inorder.model.errors import ConfigurationError, InorderError, TransientError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("inorder.pipeline")

LOOK_SECONDS = 0.5
RETRY_SECONDS = 1.0


class Engine(Protocol):
    """What the engines have in common."""

    def run(self, stop: threading.Event, once: bool = False, listener: Listener = ...) -> None:
        """Blocks until `stop` is set or, with `once`, until what the topics hold at the start is applied."""


RunEngine = Callable[[SliceWork, threading.Event], None]
"""Runs an engine on a work until the event is set, or to the end of what its topics hold."""


SUBMITTED = ("submit.py", "inorder-job.py")
"""The files that are given to `spark-submit`; Spark names an application without a name after them."""


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """Which Spark runs a job."""

    master: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of `[pipeline.spark]`."""
    session: SparkSession | None = None
    """The caller's, which is used as it is and never stopped."""
    shared_by: int | None = None
    """Jobs that divide the cores of that session among them, if there are others."""


ANY_SPARK = SparkChoice()


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs slice works on Spark, as `pipeline.engine`, `pipeline.master` and `[pipeline.spark]` say."""

    kind: Literal["micro-batch", "resident"]
    spark: SparkChoice
    properties: Mapping[str, Any] = field(repr=False)
    """Of the Kafka client. Not shown, as they may hold a password."""
    on_moved_back: OnMovedBack = "stop"
    java: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of the Java client that `micro-batch` reads with, over what is translated of `properties`."""
    tasks: int | None = None
    """How many tasks `resident` runs at most."""

    def run(
        self,
        work: SliceWork,
        *,
        once: bool,
        stop: threading.Event,
        listener: Listener,
        drive: Callable[[RunEngine], None] | None = None,
    ) -> None:
        """Runs a work until `stop` is set, or once.

        `drive` may run the engine several times, on other works: see `follow`.
        """
        from inorder.engines.session import open_session

        is_micro_batch, needs_delta = self.kind == "micro-batch", isinstance(work, DriverCommitted)
        if is_micro_batch:
            java_properties(self.properties, self.java)  # refuses before Spark starts
        elif needs_delta:
            raise ConfigurationError(
                f"The engine {self.kind} does not write Delta tables.",
                hint='Set pipeline.engine = "micro-batch", or leave it out.',
            )
        with open_session(
            f"inorder {work.name}",
            self.spark,
            needs_kafka=is_micro_batch,
            needs_delta=needs_delta,
            has_ui=not once,
        ) as spark:

            def run_engine(reading: SliceWork, over: threading.Event) -> None:
                self._on(spark, reading).run(over, once, listener)

            log.info("pipeline.spark", extra=describe(spark))
            run_engine(work, stop) if drive is None else drive(run_engine)

    def _on(self, spark: SparkSession, work: SliceWork) -> Engine:
        from inorder.engines.partition_reader import KafkaSource

        source = KafkaSource(dict(self.properties))
        match self.kind:
            case "micro-batch":
                from inorder.engines.micro_batch import MicroBatch

                java = java_properties(self.properties, self.java)
                return MicroBatch(spark, work, source, java, on_moved_back=self.on_moved_back)
            case "resident":
                from inorder.engines.resident import Resident

                return Resident(spark, work, source, on_moved_back=self.on_moved_back, tasks=self.tasks)


def describe(spark: SparkSession) -> dict[str, str | None]:
    """Where a job runs, for the log."""
    context = spark.sparkContext
    return {
        "master": context.master,
        "application": context.applicationId,
        "ui": context.uiWebUrl,
        "python": context.pythonExec,
    }


def follow(
    reading_now: Callable[[], SliceWork | None],
    name: str,
    stop: threading.Event,
    run_engine: RunEngine,
    *,
    look: float = LOOK_SECONDS,
) -> None:
    """Runs the engine on what is to be read now, and again whenever that has changed.

    `reading_now` returns None while all of it is paused.
    """
    done: SliceWork | None = None
    while (reading := _wait_for_reading(reading_now, name, stop, look)) is not None and reading != done:
        log.info("pipeline.generation", extra={"pipeline": name, "topics": ",".join(reading.topics)})
        with until_changed(partial(_has_changed, reading_now, reading), stop, look) as over:
            run_engine(reading, over)
            done = None if over.is_set() else reading  # it ended by itself


def _wait_for_reading(
    reading_now: Callable[[], SliceWork | None], name: str, stop: threading.Event, look: float
) -> SliceWork | None:
    """What to read, as soon as the database answers and not all is paused; None if the job is to stop."""
    is_paused = False
    while not stop.is_set():
        try:
            if (found := reading_now()) is not None:
                return found
        except TransientError as error:
            log.warning("pipeline.generation_not_read", extra={"pipeline": name, "error": str(error)})
            stop.wait(jittered(RETRY_SECONDS))
            continue
        if not is_paused:
            log.warning("pipeline.paused", extra={"pipeline": name})
        is_paused = True
        stop.wait(look)
    return None


def _has_changed(reading_now: Callable[[], SliceWork | None], reading: SliceWork) -> bool:
    try:
        return reading_now() != reading
    except InorderError as error:
        log.debug("pipeline.generation_not_read", extra={"error": str(error)})  # the engine meets and logs it too
        return False


@contextmanager
def until_changed(
    has_changed: Callable[[], bool], stop: threading.Event, look_seconds: float
) -> Iterator[threading.Event]:
    """An event that is set when the job is to stop, or when a look finds a change; `has_changed` must not raise."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if stop.wait(look_seconds) or (not over.is_set() and has_changed()):
                over.set()

    watcher = threading.Thread(target=watch, name="inorder-watching-topics", daemon=True)
    watcher.start()
    try:
        yield over
    finally:
        over.set()
        watcher.join()
