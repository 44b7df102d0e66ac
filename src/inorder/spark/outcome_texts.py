"""The outcome rows of a micro-batch as text, and how the driver gets them: over the connection that it has already.

`DataFrame.collect` opens a server, a thread and a connection for each call. Where Python and Spark talk over Unix
domain sockets, as in our session, Spark 4.2 also keeps the path of each such server until the process ends
(`File.deleteOnExit`): by estimate 100 MB a day at the pace of our batches. A few short texts need none of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import orjson
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import DataFrame, Row

from inorder.spark.slice_task import Task

TEXT_SCHEMA: Final = "outcome string"


def as_texts(task: Task) -> Task:
    """A task that tells each of its rows as text."""

    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in task(batches):
            yield pa.RecordBatch.from_pydict({"outcome": [orjson.dumps(row).decode() for row in rows.to_pylist()]})

    return tell


def collected(batch: DataFrame) -> list[Row]:
    """Runs a batch of such tasks, and returns their rows in the order of partitions and of slices in each."""
    return [Row(**orjson.loads(row.getString(0))) for row in batch._jdf.collectAsList()]
