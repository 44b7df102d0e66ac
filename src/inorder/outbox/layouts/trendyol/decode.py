"""Rows of the trendyol layout."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from inorder.model.message import RecordHeaders
from inorder.outbox.layouts import reading
from inorder.ports.outbox_store import OutboxRow

# As in the native layout: a third less time for the row that is like most rows.
_new: Callable[[type[OutboxRow], tuple[Any, ...]], OutboxRow] = tuple.__new__


def decode(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, topic, key, value, header."""
    id, topic, key, value, header = row
    if header is None and topic.__class__ is str and topic and key.__class__ is str and value.__class__ is str:
        return _new(OutboxRow, (id, topic, key.encode(), value.encode(), (), None, None, "", None))
    flaws: list[str] = []
    name = reading.topic(topic, "topic", flaws)
    key_sent, value_sent = reading.text_bytes(key, "key", flaws), reading.text_bytes(value, "value", flaws)
    return OutboxRow(id, name, key_sent, value_sent, _headers(header, flaws), None, None, "; ".join(flaws))


def _headers(stored: Any, flaws: list[str]) -> RecordHeaders:
    """A JSON object of texts; where the original reads nothing out of it there are no headers."""
    if not stored:
        return ()
    try:
        found = orjson.loads(stored)
    except orjson.JSONDecodeError as error:
        flaws.append(f"header is not a JSON object ({error})")
        return ()
    if found is None:
        return ()
    if not isinstance(found, dict):
        flaws.append("header is not a JSON object")
        return ()
    if not all(value is None or isinstance(value, str) for value in found.values()):
        found = _as_written(stored)
    if any(isinstance(value, dict | list) for value in found.values()):
        flaws.append("header is not a flat JSON object")
        return ()
    return tuple((name, None if value is None else value.encode()) for name, value in found.items())


def _as_written(stored: Any) -> dict[str, Any]:
    """Numbers and truth values become the text that stands there, as with the original."""
    found: dict[str, Any] = json.loads(stored, parse_int=str, parse_float=str)
    return {name: json.dumps(value) if isinstance(value, bool) else value for name, value in found.items()}
