"""What a Spark task does: each Arrow batch of its Kafka partition is a slice, applied in its own transaction.

Errors go back to the driver as rows, so that it sees our error and its text rather than Spark's wrapping of
them. The task ends with the first one: what follows in its partition must not pass what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import Row

from inorder.model import errors
from inorder.model.errors import GuaranteeError, InorderError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import Slice, SliceOutcome, apply_slice
from inorder.ports.table_store import TableStore, TableStores

RECORD_COLUMNS: Final = ("partition", "offset", "key", "value", "timestamp")

_ARROW_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in ("next_offset", "read", "applied", "identical", "stale")),
        *((name, pa.int64()) for name in ("ignored", "rejected", "replayed")),
        *((name, pa.string()) for name in ("error", "message", "hint")),
    ]
)
_SPARK_TYPES: Final = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint"}
OUTCOME_SCHEMA: Final = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in _ARROW_SCHEMA)

_NOTHING: Final = SliceOutcome("", 0, next_offset=0, read=0)

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_open_stores: dict[TableStores, TableStore] = {}
"""The stores of this worker process; Spark reuses its workers, so a connection serves many batches."""


def slice_task(stores: TableStores, mapping: TableMapping, expected: Mapping[int, int]) -> Task:
    """The function for `mapInArrow`; `expected` are the pointers the driver saw committed."""
    pointers = dict(expected)

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return applied(batches, stores, mapping, pointers)

    return apply


def applied(
    batches: Iterable[pa.RecordBatch], stores: TableStores, mapping: TableMapping, expected: dict[int, int]
) -> Iterator[pa.RecordBatch]:
    """Applies batch after batch and yields a row for each; an error is the last row."""
    for records in batches:
        if not records.num_rows:
            continue
        try:
            batch = slice_of(mapping.topic, records)
            outcome = apply_slice(_store(stores), mapping, batch, expected.get(batch.partition, 0))
        except InorderError as error:
            yield _row(_NOTHING, error)
            return
        expected[batch.partition] = outcome.next_offset
        yield _row(outcome)


def slice_of(topic: str, records: pa.RecordBatch) -> Slice:
    """The slice in an Arrow batch of Kafka records; all must be of one partition."""
    partitions = records.column("partition").unique()
    if len(partitions) != 1:
        raise GuaranteeError(
            f"One task was given partitions {sorted(partitions.to_pylist())} of {topic} at once.",
            hint="Remove any shuffle or repartition between Kafka and the table.",
        )
    return Slice(
        topic,
        partitions[0].as_py(),
        offsets=records.column("offset").to_pylist(),
        keys=_objects(records.column("key")),
        values=_objects(records.column("value")),
        timestamps=_objects(records.column("timestamp").cast(pa.int64())),
    )


def outcome_of(row: Row) -> SliceOutcome | InorderError:
    """The outcome or the error that a task sent."""
    fields: dict[str, Any] = row.asDict()
    error, message, hint = fields.pop("error"), fields.pop("message"), fields.pop("hint")
    if error is None:
        return SliceOutcome(**fields)
    kind: type[InorderError] = getattr(errors, error)
    return kind(message, hint=hint)


def _store(stores: TableStores) -> TableStore:
    if stores not in _open_stores:
        _open_stores[stores] = stores()
    return _open_stores[stores]


def _objects(column: pa.Array) -> list[Any]:
    """A column as Python objects; by way of NumPy, which is several times faster than `to_pylist`."""
    objects: list[Any] = column.to_numpy(zero_copy_only=False).tolist() if not column.null_count else column.to_pylist()
    return objects


def _row(outcome: SliceOutcome, error: InorderError | None = None) -> pa.RecordBatch:
    told: dict[str, str | None] = dict.fromkeys(("error", "message", "hint"))
    if error is not None:
        told = {
            "error": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
        }
    return pa.RecordBatch.from_pylist([asdict(outcome) | told], schema=_ARROW_SCHEMA)
