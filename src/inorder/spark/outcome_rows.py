"""How outcomes and errors come back from Spark's tasks: as rows.

Errors travel as rows too, so that the driver sees our error and its text rather than Spark's wrapping of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

import orjson
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import Row

from inorder.model import errors
from inorder.model.errors import InorderError
from inorder.ports.slice_work import SliceOutcome

_ARROW_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in ("next_offset", "read", "applied", "identical", "stale")),
        *((name, pa.int64()) for name in ("ignored", "rejected", "replayed")),
        *((name, pa.string()) for name in ("measures", "error", "message", "hint")),
    ]
)
_SPARK_TYPES: Final = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint"}
OUTCOME_SCHEMA: Final = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in _ARROW_SCHEMA)

_NOTHING: Final = SliceOutcome("", 0, next_offset=0, read=0)


def outcome_row(outcome: SliceOutcome) -> pa.RecordBatch:
    """An outcome, to be sent to the driver."""
    return _row(outcome, dict.fromkeys(("error", "message", "hint")))


def error_row(error: InorderError) -> pa.RecordBatch:
    """An error, to be sent to the driver."""
    return _row(_NOTHING, {"error": type(error).__name__, "message": error.message, "hint": error.hint})


def outcome_of(row: Row) -> SliceOutcome | InorderError:
    """The outcome or the error that a task sent."""
    fields: dict[str, Any] = row.asDict()
    error, message, hint = fields.pop("error"), fields.pop("message"), fields.pop("hint")
    if error is None:
        return SliceOutcome(**fields | {"measures": orjson.loads(fields["measures"])})
    kind: type[InorderError] = getattr(errors, error)
    return kind(message, hint=hint)


def sorted_out(rows: Iterable[Row]) -> tuple[list[SliceOutcome], list[InorderError]]:
    """Outcomes and errors apart, each in the order in which they came."""
    results = [outcome_of(row) for row in rows]
    return (
        [result for result in results if isinstance(result, SliceOutcome)],
        [result for result in results if isinstance(result, InorderError)],
    )


def _row(outcome: SliceOutcome, told: dict[str, str | None]) -> pa.RecordBatch:
    measures = {"measures": orjson.dumps(outcome.measures).decode()}
    return pa.RecordBatch.from_pylist([asdict(outcome) | measures | told], schema=_ARROW_SCHEMA)
