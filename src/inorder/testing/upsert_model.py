"""What a table must hold, by the plainest reading of the rules: one record after the other, no slices, no versions.

It shares no code with the pipeline, so that the two can be held against each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

Record: TypeAlias = tuple[bytes | None, bytes | None]
"""The key and the value of a Kafka record."""

ModelRow: TypeAlias = dict[str, Any]

TYPES: dict[str, type] = {"enabled": bool, "data": str}
"""Of the messages that the model knows, which are those of the seed."""


def table_after(
    records: Iterable[Record],
    *,
    mode: str = "upsert",
    nulls: str = "ignore",
    deletes: str = "tombstone",
    before: Iterable[int] = (),
) -> dict[int, tuple[Any, ...]]:
    """The rows after all records; `before` are the keys of rows that were there, empty."""
    rows: dict[int, ModelRow] = {key: {} for key in before}
    for key, value in records:
        if value is None:
            if key is not None and key.isdigit() and mode != "insert" and deletes == "tombstone":
                rows.pop(int(key), None)
        elif (document := _valid(key, value)) is not None:
            _apply(rows, document.pop("id"), _asked(document, nulls), mode)
    return {key: tuple(row.get(name) for name in TYPES) for key, row in rows.items()}


def _apply(rows: dict[int, ModelRow], key: int, asked: ModelRow, mode: str) -> None:
    if not asked or (mode == "insert" and key in rows) or (mode == "update" and key not in rows):
        return
    rows.setdefault(key, {}).update(asked)


def _asked(document: ModelRow, nulls: str) -> ModelRow:
    known = {name: value for name, value in document.items() if name in TYPES and value != ""}
    return known if nulls == "write" else {name: value for name, value in known.items() if value is not None}


def _valid(key: bytes | None, value: bytes) -> ModelRow | None:
    try:
        document = json.loads(value)
    except ValueError:
        return None
    if not isinstance(document, dict) or type(document.get("id")) is not int:
        return None
    if key is not None and key != str(document["id"]).encode():
        return None
    fields = {name: document[name] for name in TYPES if document.get(name) not in (None, "")}
    return document if all(type(found) is TYPES[name] for name, found in fields.items()) else None
