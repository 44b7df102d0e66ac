"""The sink `inorder.table`: records of Kafka, filtered or rewritten by you, applied by the slice code of `upsert`.

A task groups its rows by (topic, partition) and applies them slice after slice, each in one transaction that also moves
the pointer (`inorder/pipeline/slice.py`). So a batch or a task that Spark runs again changes nothing.

What must hold:

1. Each Kafka partition is whole in one Spark partition, in the order of its offsets (`whole.py` says how that is made
   sure, and what happens where it does not hold).
2. `topic`, `partition` and `offset` are those of Kafka. Rows may be missing, which leaves holes; values
   may be others.

Nothing waits out a failure of the environment here: Spark tries a task as often as `spark.task.maxFailures` says.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from inorder.model.errors import ConfigurationError, GuaranteeError
from inorder.ports.partition_reader import Place
from inorder.ports.slice_work import Slice, SliceOutcome, SliceWork, SliceWorker, portions
from inorder.spark.formats.columns import ANYTHING, BYTES, HEADERS, MOMENT, WHOLE_NUMBER, Column
from inorder.spark.formats.options import KnownOptions, Options, nearest
from inorder.spark.formats.sink import Sink
from inorder.spark.formats.whole import KAFKA_PARTITION, Spread, require_apart, sorted_rows
from inorder.spark.slice_task import slice_of, worker_of

COORDINATES: Final = KAFKA_PARTITION.order


class TableFormat(Sink):
    """Spark's side of the format; `work` is made where the settings are known."""

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
        # Of Spark's Kafka source; nothing is done with them.
        Column("timestampType", ANYTHING, is_needed=False),
        Column("headers", HEADERS, is_needed=False),
    )

    @abstractmethod
    def work(self, options: Options) -> SliceWork:
        """What applies the slices."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called on the driver, once a write."""
        return _TableWriter(*self._parts(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's
        """Called on the driver, several times a batch."""
        return _TableStreamWriter(*self._parts(schema, overwrite))

    def _parts(self, schema: StructType, overwrite: bool) -> tuple[SliceWork, Spread]:
        options = self.checked(schema, overwrite)
        return self.work(options), self.spread(schema, options, KAFKA_PARTITION)


@dataclass(frozen=True)
class Applied(WriterCommitMessage):
    """What one task tells the driver."""

    outcomes: tuple[SliceOutcome, ...]

    @property
    def places(self) -> frozenset[str]:
        """The Kafka partitions of which it had records."""
        return frozenset(f"{outcome.topic}[{outcome.partition}]" for outcome in self.outcomes)


class _Applying:
    """What both writers do."""

    def __init__(self, work: SliceWork, spread: Spread) -> None:
        self._work = work
        self._spread = spread

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Applied:
        """Applies the rows of one task."""
        batches = sorted_rows(KAFKA_PARTITION, self._spread, iterator)
        return Applied(tuple(applied(worker_of(self._work), self._work.topics, batches)))


class _TableWriter(_Applying, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _check(messages)


class _TableStreamWriter(_Applying, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's
        _check(messages)


def _check(messages: list[WriterCommitMessage | None]) -> None:
    require_apart(KAFKA_PARTITION.what, (message.places for message in messages if isinstance(message, Applied)))


def applied(worker: SliceWorker, topics: tuple[str, ...], batches: Iterable[pa.RecordBatch]) -> Iterator[SliceOutcome]:
    """Applies slice after slice; stops at the first error, since nothing behind it may pass it."""
    pointers: dict[Place, int] = {}
    for batch in slices(batches):
        place = batch.topic, batch.partition
        if batch.topic not in topics:
            raise ConfigurationError(
                f"No table is fed by topic {batch.topic!r}{nearest(batch.topic, list(topics))}",
                hint=f"The settings have {', '.join(topics)}. Filter other topics out, or give them a table.",
            )
        for portion in portions(batch):
            outcome = worker.apply(portion, pointers.get(place, 0))
            pointers[place] = outcome.next_offset
            yield outcome


def slices(batches: Iterable[pa.RecordBatch]) -> Iterator[Slice]:
    """The slices in Arrow batches; a partition whose offsets fall from one batch to the next is refused."""
    ends: dict[Place, int] = {}
    for records in batches:
        for batch in map(slice_of, by_place(as_kafka_has_them(records))):
            place = batch.topic, batch.partition
            if batch.offsets[0] < ends.get(place, 0):
                raise GuaranteeError(
                    f"Out of order: offset {batch.offsets[0]} came after {ends[place] - 1} in {place[0]}[{place[1]}].",
                    hint="Write inorder.spark.in_order(df) as the last step before the sink.",
                )
            ends[place] = batch.next_offset
            yield batch


def as_kafka_has_them(records: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of a slice: text as bytes, what is not given as null, and no row without its place."""
    for name in COORDINATES:
        if records.column(name).null_count:
            raise GuaranteeError(
                f"A row has no {name}, so nobody knows where it belongs.",
                hint="Keep topic, partition and offset as Spark's Kafka source has them.",
            )
    nothing = pa.nulls(records.num_rows)
    columns: dict[str, Any] = {name: records.column(name) for name in COORDINATES}
    for name in ("key", "value", "timestamp"):
        column = records.column(name) if name in records.schema.names else nothing
        columns[name] = column if name == "timestamp" else column.cast(pa.binary())
    return pa.RecordBatch.from_pydict(columns)


def by_place(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of each Kafka partition by themselves, in their order."""
    rows: dict[Place, list[int]] = {}
    for row, place in enumerate(
        zip(*(records.column(name).to_pylist() for name in KAFKA_PARTITION.columns), strict=True)
    ):
        rows.setdefault(place, []).append(row)
    if len(rows) == 1:
        yield records
    else:
        yield from map(records.take, map(pa.array, rows.values()))
