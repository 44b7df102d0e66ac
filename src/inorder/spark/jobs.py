"""Jobs in your own Spark application: the same as `inorder pipeline run`, on your session."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from inorder.app import App
from inorder.engines.progress import NULL_LISTENER, Listener
from inorder.settings import Settings
from inorder.spark.application import Job, run_application, run_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    spark: SparkSession,
    settings: Settings,
    job: Job | Sequence[Job],
    *,
    engine: Literal["micro-batch", "resident"] | None = None,
    once: bool = False,
    stop: threading.Event | None = None,
    listener: Listener = NULL_LISTENER,
) -> dict[str, Any]:
    """Runs a job until `stop` is set, or to the end of what its topics hold; returns its totals.

    The session stays as it is and lives on: the job has one of its own on the same context. `micro-batch` needs Spark's
    Kafka connector on the class path. Of several jobs, one that fails is started again alone (`application.py`), and
    totals are by job; `stop` is set where Spark itself was stopped.
    """
    from inorder.engines.session import refuse_connect

    refuse_connect(spark)  # before anything is opened or installed
    given = settings if engine is None else settings.model_copy(update=_with_engine(settings, engine))
    over = stop or threading.Event()
    if isinstance(job, str):
        with App(given, spark=spark) as app:
            return run_one(app, job, once=once, stop=over, listener=listener)
    names: list[str] = list(job)
    heard = dict.fromkeys(names, listener)
    finished = run_application(given, names, spark=spark, once=once, stop=over, listeners=heard)
    finished.raise_gravest()
    return dict(finished.totals)


def _with_engine(settings: Settings, engine: str) -> dict[str, Any]:
    return {"pipeline": settings.pipeline.model_copy(update={"engine": engine})}
