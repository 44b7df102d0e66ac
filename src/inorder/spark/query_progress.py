"""What Spark tells of a running query, handed on to the listener of the run.

We look. A listener of Spark's own would be called, but in Python it asks the JVM for a hundred fields one by one, after
each batch, and took a twelfth of the processor that a stream of small batches needs.
"""

from __future__ import annotations

import logging

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from inorder.pipeline.progress import Listener

logger = logging.getLogger("inorder.pipeline")

_WHOLE = "triggerExecution"  # the sum of the other phases
_WORK = "addBatch"


class QueryProgress:
    """Turns the durations of each batch of a query into the phases of a run."""

    def __init__(self, query: StreamingQuery, listener: Listener) -> None:
        self._query = query
        self._listener = listener
        self._last = -1

    def look(self) -> None:
        """Tells the last batch, once."""
        progress = self._query.lastProgress
        if progress is not None and progress.batchId > self._last and _WORK in progress.durationMs:
            self._last = progress.batchId
            self._tell(progress)

    def _tell(self, progress: StreamingQueryProgress) -> None:
        phases = {name: milliseconds / 1000 for name, milliseconds in progress.durationMs.items() if name != _WHOLE}
        logger.debug("pipeline.batch batch=%d rows=%d phases=%s", progress.batchId, progress.numInputRows, phases)
        self._listener.spent(phases)
