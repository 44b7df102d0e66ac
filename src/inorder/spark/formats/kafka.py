"""The sink `inorder.kafka`: rows as records of Kafka, in one transaction a task.

`inorder/kafka/batch_log.py` has the protocol and its failure table. In short:

| write                                 | delivery                                                                  |
|---------------------------------------|---------------------------------------------------------------------------|
| stream (option `name` is required)    | exactly once for each name and lane                                       |
| batch with a `name`                   | exactly once, however often a job that brings the same rows is run        |
| batch without one                     | at least once: a task or a job that is run again sends its rows again     |

Readers with `read_committed` see what a task has sent of a lane as a whole or not at all.

**Order** is that of the rows in their Spark partition, and of batches one after the other. `by_key` brings rows of one
key into one Spark partition; in a batch `sortWithinPartitions` can follow. A stream cannot be sorted, but rows of a key
that come from one partition of its source stay in order.

**What must hold** for exactly once: a lane is whole in one Spark partition, and a batch that is run again has the same
rows with the same lanes. `by_key` makes such lanes. So does `col("partition").alias("lane")`, without a shuffle, where
a stream has one topic of Kafka as its source.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from inorder.model.errors import ConfigurationError, PermanentError, ValidationError
from inorder.ports.batch_log import BatchId, BatchLog, Sent
from inorder.ports.outbox_store import OutboxRow
from inorder.spark.formats.columns import BYTES, HEADERS, MOMENT, WHOLE_NUMBER, Column
from inorder.spark.formats.lanes import LANE, LanedRows, by_lane, send
from inorder.spark.formats.options import KnownOptions, Options
from inorder.spark.formats.sink import Sink
from inorder.spark.formats.whole import require_apart
from inorder.spark.slice_task import objects, record_headers

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
"""Where Spark tells its tasks which batch of which query they are of; a query's id stays with its checkpoint."""
BATCH_WRITE: Final = "batch"
ROWS_AT_ONCE: Final = 10_000


class KafkaFormat(Sink):
    """Spark's side of the format; the log is made where the settings are known."""

    known_options = KnownOptions(
        "inorder.kafka",
        frozenset({"name", "topic"}),
        {"bootstrap.servers": ("kafka", "bootstrap.servers")},
        takes_kafka=True,
    )
    known_columns = (
        Column("topic", ("string",), is_needed=False),
        Column("key", BYTES, is_needed=False),
        Column("value", BYTES),
        Column("headers", HEADERS, is_needed=False),
        Column("partition", WHOLE_NUMBER, is_needed=False),
        Column("timestamp", MOMENT, is_needed=False),
        Column(LANE, WHOLE_NUMBER, is_needed=False),
    )

    @abstractmethod
    def log(self, options: Options, name: str) -> BatchLog:
        """What the records are sent to, under a name."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called on the driver, once a write."""
        options = self.checked(schema, overwrite)
        topic, name = _topic(options, schema), options.get("name")
        if name is None:
            # Attempts of one task must fence each other, and never those of another write.
            return _KafkaWriter(self.log(options, f"unnamed.{uuid4().hex}"), topic, None)
        _require_lanes(schema)
        return _KafkaWriter(self.log(options, name), topic, BatchId(BATCH_WRITE, 0))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's
        """Called on the driver, several times a batch."""
        options = self.checked(schema, overwrite)
        name = options.require("name", "the progress of a stream is kept under it, so it stays the same for ever")
        _require_lanes(schema)
        return _KafkaStreamWriter(self.log(options, name), _topic(options, schema))


def _require_lanes(schema: StructType) -> None:
    if LANE not in schema.names:
        raise ConfigurationError(
            f"The data has no column {LANE!r}, so nobody could tell what was sent when a batch is run again.",
            hint="Write inorder.spark.by_key(df, 8) as the last step before the sink, or select"
            " col('partition').alias('lane') where one topic of Kafka is the source and nothing shuffles.",
        )


def _topic(options: Options, schema: StructType) -> str | None:
    """The topic of all rows, or None where each has its own."""
    topic, has_column = options.get("topic"), "topic" in schema.names
    if topic is not None and has_column:
        raise ConfigurationError(
            f"Rows have a column 'topic', and the option says {topic!r}.", hint="Leave one of the two out."
        )
    return None if has_column else options.require("topic", "the data has no column of that name")


@dataclass(frozen=True)
class Carried(WriterCommitMessage):
    """What one task tells the driver."""

    sent: Mapping[int, Sent]
    """By lane."""


class _KafkaWriter(DataSourceArrowWriter):
    def __init__(self, log: BatchLog, topic: str | None, batch: BatchId | None) -> None:
        self._log = log
        self._topic = topic
        self._batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        # Without a name nobody asks for lanes, and the attempts of a task need but one.
        lane = _task().partitionId() if self._batch is None else None
        return Carried(send(self._log, self._batch, chunks(iterator, self._topic, lane)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _check(messages)


class _KafkaStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, log: BatchLog, topic: str | None) -> None:
        self._log = log
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Carried(send(self._log, batch_of(_task()), chunks(iterator, self._topic)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's
        _check(messages)


def _check(messages: list[WriterCommitMessage | None]) -> None:
    require_apart(LANE, (message.sent for message in messages if isinstance(message, Carried)))


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise PermanentError("This is no task of Spark.", hint="Write with a session's DataFrame.")
    return task


def batch_of(task: TaskContext) -> BatchId:
    """Which batch of which query a task belongs to."""
    query, number = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if not query or number is None:
        raise PermanentError(
            "Spark does not say which batch this is.", hint=f"inorder reads {BATCH_ID} and {QUERY_ID}, as of Spark 4.2."
        )
    return BatchId(query, int(number))


def chunks(batches: Iterable[pa.RecordBatch], topic: str | None, lane: int | None = None) -> LanedRows:
    """The rows of a task as records, in their order, by the column `lane` unless all are of one lane."""
    before = 0
    for records in batches:
        for first in range(0, records.num_rows, ROWS_AT_ONCE):
            part = records.slice(first, ROWS_AT_ONCE)
            for of_lane, found in by_lane(part) if lane is None else ((lane, part),):
                yield of_lane, rows(found, topic, before)
                before += found.num_rows


def rows(records: pa.RecordBatch, topic: str | None, first: int = 0) -> list[OutboxRow]:
    """The rows of an Arrow batch as records."""
    count, has = records.num_rows, frozenset(records.schema.names)
    topics = [topic] * count if topic is not None else objects(records.column("topic"))
    if None in topics:
        raise ValidationError(
            "topic", f"row {first + topics.index(None)} of the Spark partition has none.", hint="Give each row one."
        )
    nothing = [None] * count
    return list(
        map(
            OutboxRow,
            range(first, first + count),
            topics,
            _bytes(records, "key") if "key" in has else nothing,
            _bytes(records, "value"),
            record_headers(records) if "headers" in has else [()] * count,
            records.column("partition").to_pylist() if "partition" in has else nothing,
            _milliseconds(records) if "timestamp" in has else nothing,
        )
    )


def _bytes(records: pa.RecordBatch, name: str) -> list[Any]:
    return objects(records.column(name).cast(pa.binary()))


def _milliseconds(records: pa.RecordBatch) -> list[int | None]:
    times = records.column("timestamp").cast(pa.int64()).to_pylist()
    return [None if time_us is None else time_us // 1000 for time_us in times]
