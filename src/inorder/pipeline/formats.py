"""The sinks `inorder.table` and `inorder.kafka`.

**`inorder.table`** takes records of Kafka, filtered or rewritten by you, and applies them with the slice code of
`upsert`. A task groups its rows by (topic, partition) and applies them slice after slice, each in one transaction that
also moves the pointer (`inorder/pipeline/slice.py`). So a batch or a task that Spark runs again changes nothing.

What must hold:

1. Each Kafka partition is whole in one Spark partition, in the order of its offsets (`inorder/engines/formats.py` says
   how that is ensured, and what happens where it does not hold).
2. `topic`, `partition` and `offset` are those of Kafka. Rows may be missing, which leaves holes; values may differ.
3. Records of a row are in one Kafka partition. Where the rows have a column `key`, a record without one is a dead
   letter as in the job `upsert`; but no survey has created the pointers, so partition 0 of a topic counts as its only
   one until another one has been written. Without the column, keys are unknown and nothing is refused.

The sinks do not wait out failures of the environment: Spark retries a task up to `spark.task.maxFailures` times.

**`inorder.kafka`** sends rows as records to Kafka, one transaction per task and lane. A *lane* is the part of a batch
to which a row belongs, named by a column of the row. `inorder/pipeline/stores/batch_log.py` has the protocol and its
failure table. In short:

| write                                 | delivery                                                                  |
|---------------------------------------|---------------------------------------------------------------------------|
| stream (option `name` is required)    | exactly once for each name and lane                                       |
| batch with a `name`                   | exactly once, however often a job with the same rows is run               |
| batch without a `name`                | at least once: a task or a job that is run again sends its rows again     |

Readers with `read_committed` see what a task has sent of a lane as a whole or not at all.

*Order* is that of the rows in their Spark partition, and of batches one after the other. `by_key` brings rows of one
key into one Spark partition; in a batch, `sortWithinPartitions` can follow. A stream cannot be sorted, but rows of a
key that come from one partition of its source stay in order.

*What must hold* for exactly once: a lane is whole in one Spark partition, and a batch that is run again has the same
rows with the same lanes. `by_key` makes such lanes. So does `col("partition").alias("lane")`, without a shuffle, where
a stream has one topic of Kafka as its source.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # the same
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.functions import hash as hash_of
from pyspark.sql.functions import lit, pmod
from pyspark.sql.types import StructType

from inorder.engines.formats import (
    ANYTHING,
    BYTES,
    HEADERS,
    KAFKA_PARTITION,
    MOMENT,
    WHOLE_NUMBER,
    Column,
    Distribution,
    FormatOptions,
    KnownOptions,
    Sink,
    check_columns,
    in_order,
    require_apart,
    sorted_rows,
    types_of,
)
from inorder.engines.session import raise_gravest
from inorder.engines.slice_task import (
    OUTCOME_SCHEMA,
    Task,
    error_row,
    objects,
    outcome_of,
    outcome_row,
    record_headers,
    slice_of,
    worker_of,
)
from inorder.engines.slice_work import Slice, SliceOutcome, SliceWork, SliceWorker, portions
from inorder.model.errors import ConfigurationError, GuaranteeError, InorderError, PermanentError, ValidationError
from inorder.model.message import RESERVED, OutboxRow, is_reserved
from inorder.model.names import suggest
from inorder.model.partitioning import Place
from inorder.pipeline.job import UpsertWork
from inorder.pipeline.stores.batch_log import BatchId, BatchLog, Part, Sent

COORDINATES: Final = KAFKA_PARTITION.order
LANE: Final = "lane"
MOST_LANES: Final = 64
"""In one task; each lane is a producer with a transaction."""
BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
"""Local properties with the batch and the query of a task; the id of a query is stored in its checkpoint."""
BATCH_WRITE: Final = "batch"
ROWS_AT_ONCE: Final = 10_000

LanedRows = Iterable[tuple[int, list[OutboxRow]]]
"""Rows with their lane, in order."""


# The sink `inorder.table`.


class TableFormat(Sink):
    """Spark's side of the format; `work` is implemented where the settings are known."""

    known_options = KnownOptions(
        "inorder.table", frozenset({"table", "whole_partitions"}), {"url": ("database", "url")}
    )
    known_columns = (
        Column("topic", ("string",)),
        Column("partition", WHOLE_NUMBER),
        Column("offset", WHOLE_NUMBER),
        Column("value", BYTES),
        Column("key", BYTES, is_needed=False),
        Column("timestamp", MOMENT, is_needed=False),
        # Columns of Spark's Kafka source; ignored.
        Column("timestampType", ANYTHING, is_needed=False),
        Column("headers", HEADERS, is_needed=False),
    )

    @abstractmethod
    def work(self, options: FormatOptions) -> SliceWork: ...

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called on the driver, once per write."""
        return _TableWriter(*self._parts(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's
        """Called on the driver, several times per batch."""
        return _TableStreamWriter(*self._parts(schema, overwrite))

    def _parts(self, schema: StructType, overwrite: bool) -> tuple[SliceWork, Distribution]:
        options = self.check(schema, overwrite)
        work = self.work(options)
        if "key" not in schema.fieldNames() and isinstance(work, UpsertWork):
            work = work.without_keys()
        return work, self.distribution(schema, options, KAFKA_PARTITION)


@dataclass(frozen=True)
class TaskOutcomes(WriterCommitMessage):
    """The result that one task returns to the driver."""

    outcomes: tuple[SliceOutcome, ...]

    @property
    def places(self) -> frozenset[str]:
        """The Kafka partitions that the task had records of."""
        return frozenset(f"{outcome.topic}[{outcome.partition}]" for outcome in self.outcomes)


class _SliceApplier:
    """The part that both writers share."""

    def __init__(self, work: SliceWork, distribution: Distribution) -> None:
        self._work = work
        self._distribution = distribution

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutcomes:
        batches = sorted_rows(KAFKA_PARTITION, self._distribution, iterator)
        return TaskOutcomes(tuple(apply_slices(worker_of(self._work), self._work.topics, batches)))


class _TableWriter(_SliceApplier, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _check_partitions(messages)


class _TableStreamWriter(_SliceApplier, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's
        _check_partitions(messages)


# The same for a DataFrame at hand, as in your own `foreachBatch`: outcomes and errors return as rows.

BATCH_SCHEMA: Final = f"task int, {OUTCOME_SCHEMA}"
_BATCH: Final = "upsert_batch"


def apply_frame(df: DataFrame, work: UpsertWork, tasks: int | None) -> list[SliceOutcome]:
    """Applies the records of a DataFrame; raises the gravest error of its tasks when all have ended.

    They are shuffled into so many tasks; None promises that each Kafka partition is whole in one already.
    """
    check_columns(_BATCH, types_of(df.schema), TableFormat.known_columns)
    if "key" not in df.columns:
        work = work.without_keys()
    placed = df if tasks is None else in_order(df, tasks)
    rows = placed.mapInArrow(_batch_task(work), BATCH_SCHEMA).collect()
    places: dict[int, set[str]] = {}
    outcomes: list[SliceOutcome] = []
    errors: list[InorderError] = []
    for row in rows:
        found = outcome_of(Row(**{name: row[name] for name in row.__fields__ if name != "task"}))
        if isinstance(found, InorderError):
            errors.append(found)
        else:
            outcomes.append(found)
            places.setdefault(row["task"], set()).add(f"{found.topic}[{found.partition}]")
    raise_gravest(errors)
    require_apart(KAFKA_PARTITION.what, places.values())
    return outcomes


def _batch_task(work: UpsertWork) -> Task:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = _task().partitionId()
        try:
            for outcome in apply_slices(worker_of(work), work.topics, (batch for batch in batches if batch.num_rows)):
                yield _numbered(number, outcome_row(outcome))
        except InorderError as error:
            yield _numbered(number, error_row(error))

    return run


def _numbered(task: int, row: pa.RecordBatch) -> pa.RecordBatch:
    columns = [pa.array([task] * row.num_rows, pa.int32()), *row.columns]
    return pa.RecordBatch.from_arrays(columns, names=["task", *row.schema.names])


def _check_partitions(messages: list[WriterCommitMessage | None]) -> None:
    require_apart(KAFKA_PARTITION.what, (message.places for message in messages if isinstance(message, TaskOutcomes)))


def apply_slices(
    worker: SliceWorker, topics: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[SliceOutcome]:
    """Applies slice after slice; stops at the first error, since later records must not overtake it."""
    pointers: dict[Place, int] = {}
    for batch in slices(batches):
        place = batch.topic, batch.partition
        if batch.topic not in topics:
            raise ConfigurationError(
                f"No table is fed by topic {batch.topic!r}{suggest(batch.topic, list(topics))}",
                hint=f"The settings have {', '.join(topics)}. Filter other topics out, or give them a table.",
            )
        for portion in portions(batch):
            # An application cannot make one partition wait; its query fails, and is started again.
            decided = replace(portion, waited_seconds=math.inf)
            outcome = worker.apply(decided, pointers.get(place, 0))
            pointers[place] = outcome.next_offset
            yield outcome


def slices(batches: Iterable[pa.RecordBatch]) -> Iterator[Slice]:
    """The slices in Arrow batches; refuses a partition whose offsets fall from one batch to the next."""
    ends: dict[Place, int] = {}
    for records in batches:
        for batch in map(slice_of, by_place(to_kafka_columns(records))):
            place = batch.topic, batch.partition
            if batch.offsets[0] < ends.get(place, 0):
                raise GuaranteeError(
                    f"Out of order: offset {batch.offsets[0]} came after {ends[place] - 1} in {place[0]}[{place[1]}].",
                    hint="Write inorder.spark.in_order(df) as the last step before the sink.",
                )
            ends[place] = batch.next_offset
            yield batch


def to_kafka_columns(records: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of a slice: text as bytes, null for missing columns; refuses a row without its coordinates."""
    for name in COORDINATES:
        if records.column(name).null_count:
            raise GuaranteeError(
                f"A row has no {name}, so its position in the topic is unknown.",
                hint="Keep topic, partition and offset as Spark's Kafka source has them.",
            )
    nothing = pa.nulls(records.num_rows)
    columns: dict[str, Any] = {name: records.column(name) for name in COORDINATES}
    for name in ("key", "value", "timestamp"):
        column = records.column(name) if name in records.schema.names else nothing
        columns[name] = column if name == "timestamp" else column.cast(pa.binary())
    return pa.RecordBatch.from_pydict(columns)


def by_place(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Splits rows by Kafka partition, in their order."""
    rows: dict[Place, list[int]] = {}
    for row, place in enumerate(
        zip(*(records.column(name).to_pylist() for name in KAFKA_PARTITION.columns), strict=True)
    ):
        rows.setdefault(place, []).append(row)
    if len(rows) == 1:
        yield records
    else:
        yield from map(records.take, map(pa.array, rows.values()))


# Lanes.


def by_key(df: DataFrame, lanes: int) -> DataFrame:
    """The same rows with a column `lane`, each lane and so each key whole in one Spark partition.

    It is the last step before the sink `inorder.kafka`, except for `sortWithinPartitions`. Without a column `key`, rows
    are distributed by their value.
    """
    column = "key" if "key" in df.columns else "value"
    # Spark computes the partition of a row by the same formula, so a Spark partition has one lane.
    return df.repartition(lanes, column).withColumn(LANE, pmod(hash_of(column), lit(lanes)))


def send(log: BatchLog, batch: BatchId | None, rows: LanedRows) -> dict[int, Sent]:
    """Sends the rows of one task, each lane in its own transaction."""
    parts: dict[int, Part] = {}
    try:
        for lane, some in rows:
            if lane not in parts:
                _check_number(parts)
                parts[lane] = log.open(lane, batch, {row.topic for row in some})
            parts[lane].add(some)
        return {lane: part.commit() for lane, part in parts.items()}
    except BaseException:
        for part in parts.values():
            part.abort()
        raise


def _check_number(parts: dict[int, Part]) -> None:
    if len(parts) >= MOST_LANES:
        raise ConfigurationError(
            f"A Spark partition has more than {MOST_LANES} lanes, and each is a transaction.",
            hint="A lane is a part of the data, not a row: write inorder.spark.by_key(df, 8).",
        )


def by_lane(records: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Splits rows by lane, in their order."""
    column = records.column(LANE)
    if column.null_count:
        raise ValidationError(LANE, "a row has no lane.", hint="Each row needs one: inorder.spark.by_key(df, 8).")
    found = column.unique().to_pylist()
    for lane in found:
        yield lane, records if len(found) == 1 else records.filter(pc.equal(column, lane))


# The sink `inorder.kafka`.


class KafkaFormat(Sink):
    """Spark's side of the format; `log` is implemented where the settings are known."""

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
    def log(self, options: FormatOptions, name: str) -> BatchLog:
        """The log that records are sent to under a name."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called on the driver, once per write."""
        options = self.check(schema, overwrite)
        topic, name = _topic(options, schema), options.get("name")
        if name is None:
            # Attempts of one task must fence each other, but never those of another write.
            return _KafkaWriter(self.log(options, f"unnamed.{uuid4().hex}"), topic, None)
        _require_lanes(schema)
        return _KafkaWriter(self.log(options, name), topic, BatchId(BATCH_WRITE, 0))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's
        """Called on the driver, several times per batch."""
        options = self.check(schema, overwrite)
        name = options.require("name", "the progress of a stream is stored under it, so it must never change")
        _require_lanes(schema)
        return _KafkaStreamWriter(self.log(options, name), _topic(options, schema))


def _require_lanes(schema: StructType) -> None:
    if LANE not in schema.names:
        raise ConfigurationError(
            f"The data has no column {LANE!r}, so it would be unknown what was sent when a batch is run again.",
            hint="Write inorder.spark.by_key(df, 8) as the last step before the sink, or select"
            " col('partition').alias('lane') where one topic of Kafka is the source and nothing shuffles.",
        )


def _topic(options: FormatOptions, schema: StructType) -> str | None:
    """The topic of all rows, or None where each has its own."""
    topic, has_column = options.get("topic"), "topic" in schema.names
    if topic is not None and has_column:
        raise ConfigurationError(
            f"Rows have a column 'topic', and the option says {topic!r}.", hint="Remove one of the two."
        )
    return None if has_column else options.require("topic", "the data has no column of that name")


@dataclass(frozen=True)
class SentLanes(WriterCommitMessage):
    """The result that one task returns to the driver."""

    sent: Mapping[int, Sent]
    """By lane."""


class _KafkaWriter(DataSourceArrowWriter):
    def __init__(self, log: BatchLog, topic: str | None, batch: BatchId | None) -> None:
        self._log = log
        self._topic = topic
        self._batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        # Without a name, lanes are not needed, and the attempts of a task share one.
        lane = _task().partitionId() if self._batch is None else None
        return SentLanes(send(self._log, self._batch, chunks(iterator, self._topic, lane)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _check_lanes(messages)


class _KafkaStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, log: BatchLog, topic: str | None) -> None:
        self._log = log
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return SentLanes(send(self._log, batch_of(_task()), chunks(iterator, self._topic)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's
        _check_lanes(messages)


def _check_lanes(messages: list[WriterCommitMessage | None]) -> None:
    require_apart(LANE, (message.sent for message in messages if isinstance(message, SentLanes)))


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise PermanentError("This code does not run in a Spark task.", hint="Write a DataFrame with the format.")
    return task


def batch_of(task: TaskContext) -> BatchId:
    """The batch and query of a task."""
    query, number = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if not query or number is None:
        raise PermanentError(
            "Spark does not name the batch of this task.",
            hint=f"inorder reads the properties {BATCH_ID} and {QUERY_ID} of Spark 4.2.",
        )
    return BatchId(query, int(number))


def chunks(batches: Iterable[pa.RecordBatch], topic: str | None, lane: int | None = None) -> LanedRows:
    """The rows of a task as records, in their order, by the column `lane` or all of one `lane`."""
    before = 0
    for records in batches:
        for first in range(0, records.num_rows, ROWS_AT_ONCE):
            part = records.slice(first, ROWS_AT_ONCE)
            for of_lane, found in by_lane(part) if lane is None else ((lane, part),):
                yield of_lane, rows(found, topic, before)
                before += found.num_rows


def rows(records: pa.RecordBatch, topic: str | None, first: int = 0) -> list[OutboxRow]:
    count, has = records.num_rows, frozenset(records.schema.names)
    topics = [topic] * count if topic is not None else objects(records.column("topic"))
    if None in topics:
        raise ValidationError(
            "topic", f"row {first + topics.index(None)} of the Spark partition has no topic.", hint="Give each row one."
        )
    if found := next(filter(is_reserved, set(topics)), None):
        raise ValidationError("topic", f"{found!r} {RESERVED}.", hint="Choose another name.")
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
