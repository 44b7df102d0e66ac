"""A task of a micro-batch: it applies each Arrow batch of its partition as one or more slices, each one transaction.

The task ends with the first error: records behind a failed one must not overtake it.

Outcomes and errors return to the driver as rows. So the driver sees the original error and its text rather than Spark's
wrapping of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import Row

from inorder import gc_tuning
from inorder.engines.slice_work import Slice, SliceOutcome, SliceWork, SliceWorker, apply_at, portions
from inorder.model import errors
from inorder.model.errors import GuaranteeError, InorderError, MassRefusalError
from inorder.model.message import RecordHeaders
from inorder.model.partitioning import Place

RECORD_COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "timestamp")

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Ids: TypeAlias = Mapping[str, str | None]
"""Kafka's ids of the topics, by name, as the driver saw them when it began."""
Expected: TypeAlias = Callable[[], dict[Place, int | None]]
"""Returns the pointers that the driver saw committed, None for a partition that waits; called once, in the task."""

_open_workers: dict[SliceWork, SliceWorker] = {}
"""The workers of this process. Spark reuses its processes, so a connection serves many batches."""


NO_IDS: Final[Ids] = {}


def slice_task(work: SliceWork, expected: Expected, ids: Ids = NO_IDS, *, once: bool = False) -> Task:
    """The function for `mapInArrow`; with `once` no partition waits."""

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gc_tuning.relax()
        gc_tuning.freeze_once()
        return apply_batches(batches, work, expected, ids, once=once)

    return apply


def apply_batches(
    batches: Iterable[pa.RecordBatch], work: SliceWork, expected: Expected, ids: Ids = NO_IDS, *, once: bool = False
) -> Iterator[pa.RecordBatch]:
    """Applies slice after slice and yields a row for each; an error is the last row.

    Records of a partition that waits are dropped: they are read again from its pointer.
    """
    try:
        pointers = expected()
        for records in batches:
            for batch in portions(slice_of(records)) if records.num_rows else ():
                place = batch.topic, batch.partition
                if (pointer := pointers.get(place, 0)) is None:
                    continue
                waited = math.inf if once else 0.0
                known = replace(batch, topic_id=ids.get(batch.topic), waited_seconds=waited)
                outcome = apply_at(worker_of(work), known, pointer)
                pointers[place] = outcome.next_offset
                yield outcome_row(outcome)
    except InorderError as error:
        yield error_row(error)


def slice_of(records: pa.RecordBatch) -> Slice:
    """The slice in an Arrow batch of Kafka records, which must all be of one partition."""
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
            f"One task received partitions {sorted(partitions)} of {', '.join(sorted(topics))} at once.",
            hint="Remove any shuffle or repartition between Kafka and the table.",
        )
    return topics[0], partitions[0]


def worker_of(work: SliceWork) -> SliceWorker:
    """The worker of this process, opened at the first call."""
    if work not in _open_workers:
        _open_workers[work] = work.open()
    return _open_workers[work]


def objects(column: pa.Array) -> list[Any]:
    """A column as Python objects, through NumPy, which is several times faster than `to_pylist`."""
    objects: list[Any] = column.to_numpy(zero_copy_only=False).tolist() if not column.null_count else column.to_pylist()
    return objects


def record_headers(records: pa.RecordBatch) -> list[RecordHeaders]:
    return [
        tuple((header["key"], header["value"]) for header in found or ())
        for found in records.column("headers").to_pylist()
    ]


# The rows that tasks return.

_ARROW_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in ("next_offset", "read", "applied", "identical", "stale")),
        *((name, pa.int64()) for name in ("ignored", "rejected", "replayed")),
        *((name, pa.string()) for name in ("stale_keys", "measures", "error", "message", "hint")),
    ]
)
_SPARK_TYPES: Final = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint"}
OUTCOME_SCHEMA: Final = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in _ARROW_SCHEMA)

_NOTHING: Final = SliceOutcome("", 0, next_offset=0, read=0)


def outcome_row(outcome: SliceOutcome) -> pa.RecordBatch:
    return _row(outcome, dict.fromkeys(("error", "message", "hint")))


def error_row(error: InorderError) -> pa.RecordBatch:
    place = error.place if isinstance(error, GuaranteeError | MassRefusalError) else None
    outcome = _NOTHING if place is None else replace(_NOTHING, topic=place[0], partition=place[1])
    return _row(outcome, {"error": type(error).__name__, "message": error.message, "hint": error.hint})


def outcome_of(row: Row) -> SliceOutcome | InorderError:
    fields: dict[str, Any] = row.asDict()
    error, message, hint = fields.pop("error"), fields.pop("message"), fields.pop("hint")
    if error is None:
        return SliceOutcome(**fields | {name: orjson.loads(fields[name]) for name in ("stale_keys", "measures")})
    kind: type[InorderError] = getattr(errors, error)
    found = kind(message, hint=hint)
    if isinstance(found, GuaranteeError | MassRefusalError) and fields["topic"]:
        found.place = fields["topic"], fields["partition"]
    return found


def split_results(rows: Iterable[Row]) -> tuple[list[SliceOutcome], list[InorderError]]:
    """Outcomes and errors, each in the order of the rows."""
    results = [outcome_of(row) for row in rows]
    return (
        [result for result in results if isinstance(result, SliceOutcome)],
        [result for result in results if isinstance(result, InorderError)],
    )


def _row(outcome: SliceOutcome, error: dict[str, str | None]) -> pa.RecordBatch:
    texts = {name: orjson.dumps(getattr(outcome, name)).decode() for name in ("stale_keys", "measures")}
    return pa.RecordBatch.from_pylist([asdict(outcome) | texts | error], schema=_ARROW_SCHEMA)
