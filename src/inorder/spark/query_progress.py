"""What Spark tells of a running query, handed on to the listener of the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from inorder.pipeline.progress import Listener

logger = logging.getLogger("inorder.pipeline")

_WHOLE = "triggerExecution"  # the sum of the other phases


class QueryProgress(StreamingQueryListener):
    """Turns the durations of each batch of one query into the phases of a run."""

    def __init__(self, run_id: str, listener: Listener) -> None:
        self._run_id = run_id
        self._listener = listener

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        progress = event.progress
        if str(progress.runId) != self._run_id:
            return
        phases = {name: milliseconds / 1000 for name, milliseconds in progress.durationMs.items() if name != _WHOLE}
        logger.debug("pipeline.batch batch=%d rows=%d phases=%s", progress.batchId, progress.numInputRows, phases)
        self._listener.spent(phases)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Said by the engine already."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do is nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Said by the engine already."""


@contextmanager
def listening(spark: SparkSession, query: StreamingQuery, listener: Listener) -> Iterator[None]:
    """Hears of a query for as long as the block lasts."""
    heard = QueryProgress(str(query.runId), listener)
    spark.streams.addListener(heard)
    try:
        yield
    finally:
        try:
            spark.streams.removeListener(heard)
        except Py4JError as error:  # the JVM is gone, and the listener with it
            logger.debug("pipeline.listener_lost %s", error)
