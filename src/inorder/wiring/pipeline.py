"""A slice work on the engine that the settings name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from inorder.pipeline.progress import Listener
from inorder.ports.slice_work import SliceWork
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
    from inorder.spark.session import LOCAL_MASTER, spark_session

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
    from inorder.kafka.partition_reader import KafkaSource

    source = KafkaSource(dict(settings.kafka.properties))
    match settings.pipeline.engine:
        case "micro-batch":
            from inorder.spark.java_client import java_properties
            from inorder.spark.micro_batch import MicroBatch

            return MicroBatch(spark, work, source, java_properties(settings.kafka.properties))
        case "resident":
            from inorder.spark.resident import Resident

            return Resident(spark, work, source)
