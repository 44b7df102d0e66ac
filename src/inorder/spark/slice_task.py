"""What a task of a micro-batch does: an Arrow batch of its partition is a slice or several, each one transaction.

The task ends with the first error: what follows in its partition must not pass what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from inorder.garbage import look_for_cycles_less_often, set_aside_what_stays
from inorder.model.errors import GuaranteeError, InorderError
from inorder.model.message import RecordHeaders
from inorder.ports.partition_reader import Place
from inorder.ports.slice_work import Slice, SliceWork, SliceWorker, portions
from inorder.spark.outcome_rows import error_row, outcome_row

RECORD_COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "timestamp")

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Expected: TypeAlias = Callable[[], dict[Place, int]]
"""Tells a task the pointers that the driver saw committed; called once, in the task."""

_open_workers: dict[SliceWork, SliceWorker] = {}
"""The workers of this process; Spark reuses its processes, so a connection serves many batches."""


def slice_task(work: SliceWork, expected: Expected) -> Task:
    """The function for `mapInArrow`."""

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        look_for_cycles_less_often()
        set_aside_what_stays()
        return applied(batches, work, expected)

    return apply


def applied(batches: Iterable[pa.RecordBatch], work: SliceWork, expected: Expected) -> Iterator[pa.RecordBatch]:
    """Applies slice after slice and yields a row for each; an error is the last row."""
    try:
        pointers = expected()
        for records in batches:
            for batch in portions(slice_of(records)) if records.num_rows else ():
                place = batch.topic, batch.partition
                outcome = worker_of(work).apply(batch, pointers.get(place, 0))
                pointers[place] = outcome.next_offset
                yield outcome_row(outcome)
    except InorderError as error:
        yield error_row(error)


def slice_of(records: pa.RecordBatch) -> Slice:
    """The slice in an Arrow batch of Kafka records; all must be of one partition."""
    return Slice(
        *_place_of(records),
        offsets=records.column("offset").to_pylist(),
        keys=objects(records.column("key")),
        values=objects(records.column("value")),
        timestamps=objects(records.column("timestamp").cast(pa.int64())),
        headers=record_headers(records) if "headers" in records.schema.names else (),
    )


def _place_of(records: pa.RecordBatch) -> Place:
    topics, partitions = (records.column(name).unique().to_pylist() for name in ("topic", "partition"))
    if len(topics) != 1 or len(partitions) != 1:
        raise GuaranteeError(
            f"One task was given partitions {sorted(partitions)} of {', '.join(sorted(topics))} at once.",
            hint="Remove any shuffle or repartition between Kafka and the table.",
        )
    return topics[0], partitions[0]


def worker_of(work: SliceWork) -> SliceWorker:
    """The worker of this process, opened when it is first asked for."""
    if work not in _open_workers:
        _open_workers[work] = work.open()
    return _open_workers[work]


def objects(column: pa.Array) -> list[Any]:
    """A column as Python objects; by way of NumPy, which is several times faster than `to_pylist`."""
    objects: list[Any] = column.to_numpy(zero_copy_only=False).tolist() if not column.null_count else column.to_pylist()
    return objects


def record_headers(records: pa.RecordBatch) -> list[RecordHeaders]:
    """The headers of each record."""
    return [
        tuple((header["key"], header["value"]) for header in found or ())
        for found in records.column("headers").to_pylist()
    ]
