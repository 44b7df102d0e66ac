"""A slice work on the engine that the settings name."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from inorder.engines.progress import Listener
from inorder.engines.slice_work import SliceWork
from inorder.model.errors import TransientError
from inorder.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    """What the engines have in common."""

    def run(self, stop: threading.Event, once: bool = False, listener: Listener = ...) -> None:
        """Blocks until `stop` is set or, with `once`, until what the topics hold at the start is applied."""


RunEngine = Callable[[SliceWork, threading.Event], None]
"""Runs an engine on a work until the event is set, or to the end of what its topics hold."""


def run_work(
    settings: Settings,
    work: SliceWork,
    *,
    once: bool,
    stop: threading.Event,
    listener: Listener,
    drive: Callable[[RunEngine], None] | None = None,
) -> None:
    """Runs a work on Spark until `stop` is set, or once; the session is ours and ends with it.

    `drive` may run the engine several times, on other works (`wiring/generation_gate.py`).
    """
    from inorder.embedded import spark_jars
    from inorder.engines.session import LOCAL_MASTER, spark_session

    jars = spark_jars() if settings.pipeline.engine == "micro-batch" else ()
    spark = spark_session(f"inorder {work.name}", jars=jars, master=settings.pipeline.master or LOCAL_MASTER)

    def run_engine(reading: SliceWork, over: threading.Event) -> None:
        engine_of(spark, settings, reading).run(over, once, listener)

    try:
        run_engine(work, stop) if drive is None else drive(run_engine)
    finally:
        spark.stop()


def engine_of(spark: SparkSession, settings: Settings, work: SliceWork) -> Engine:
    """The engine of `pipeline.engine`."""
    from inorder.engines.partition_reader import KafkaSource

    source = KafkaSource(dict(settings.kafka.properties))
    match settings.pipeline.engine:
        case "micro-batch":
            from inorder.engines.micro_batch import MicroBatch
            from inorder.engines.session import java_properties

            return MicroBatch(spark, work, source, java_properties(settings.kafka.properties))
        case "resident":
            from inorder.engines.resident import Resident

            return Resident(spark, work, source)


# An engine that is stopped when what it should read has changed, to be begun anew with that.


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


# Split from inorder.pipeline.job.

log = logging.getLogger("inorder.pipeline")

LOOK_SECONDS = 0.5


RETRY_SECONDS = 1.0


def follow(
    reading_now: Callable[[], SliceWork],
    name: str,
    stop: threading.Event,
    run_engine: RunEngine,
    *,
    look: float = LOOK_SECONDS,
) -> None:
    """Runs the engine on what is to be read now, and anew when that is something else."""
    reading: SliceWork | None = None
    while (wanted := _asked(reading_now, name, stop)) is not None and wanted != reading:
        reading = wanted
        log.info("pipeline.generation pipeline=%s topics=%s", name, ",".join(reading.topics))
        with until_changed(partial(_has_changed, reading_now, reading), stop, look) as over:
            run_engine(reading, over)


def _asked(reading_now: Callable[[], SliceWork], name: str, stop: threading.Event) -> SliceWork | None:
    """What to read, as soon as the database tells; None if it is to stop."""
    while not stop.is_set():
        try:
            return reading_now()
        except TransientError as error:
            log.warning("pipeline.generation_not_asked pipeline=%s reason=%s", name, error)
            stop.wait(RETRY_SECONDS)
    return None


def _has_changed(reading_now: Callable[[], SliceWork], reading: SliceWork) -> bool:
    try:
        return reading_now() != reading
    except TransientError as error:
        log.debug("pipeline.generation_not_asked %s", error)  # the engine meets the same trouble, and tells it
        return False
