"""Jobs in your own Spark application: the same as `inorder pipeline run`, on your session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from inorder.app import App
from inorder.engines.progress import NULL_LISTENER, Listener
from inorder.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Job = Literal["upsert", "replicate", "relay"]


def run(
    spark: SparkSession,
    settings: Settings,
    job: Job,
    *,
    engine: Literal["micro-batch", "resident"] | None = None,
    once: bool = False,
    stop: threading.Event | None = None,
    listener: Listener = NULL_LISTENER,
) -> dict[str, Any]:
    """Runs a job until `stop` is set, or to the end of what its topics hold; returns its totals.

    The session stays as it is and lives on: the job has one of its own on the same context. `micro-batch` needs Spark's
    Kafka connector on the class path.
    """
    given = settings if engine is None else settings.model_copy(update=_with_engine(settings, engine))
    with App(given, spark=spark) as app:
        jobs: dict[Job, Callable[[], dict[str, Any]]] = {
            "upsert": lambda: app.run_upsert(once=once, stop=over, listener=listener),
            "replicate": lambda: app.run_replicate(once=once, stop=over, listener=listener),
            "relay": lambda: app.run_relay(once=once, stop=over),
        }
        over = stop or threading.Event()
        return jobs[job]()


def _with_engine(settings: Settings, engine: str) -> dict[str, Any]:
    return {"pipeline": settings.pipeline.model_copy(update={"engine": engine})}
