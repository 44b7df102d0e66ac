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
    flaws: list[str] = []
    if topic.__class__ is not str or not topic:
        topic = reading.topic(topic, "topic", flaws)
    key = key.encode() if key.__class__ is str else reading.text_bytes(key, "key", flaws)
    value = value.encode() if value.__class__ is str else reading.text_bytes(value, "value", flaws)
    headers = _headers(header, flaws) if header else ()
    return _new(OutboxRow, (id, topic, key, value, headers, None, None, "; ".join(flaws), None))


def _headers(stored: Any, flaws: list[str]) -> RecordHeaders:
    """A JSON object of texts; where the original reads nothing out of it there are no headers."""
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
    try:
        return tuple([(name, value.encode()) for name, value in found.items()])
    except AttributeError:  # not all of them are texts
        found = _as_written(stored)
    if any(isinstance(value, dict | list) for value in found.values()):
        flaws.append("header is not a flat JSON object")
        return ()
    return tuple((name, None if value is None else value.encode()) for name, value in found.items())


def _as_written(stored: Any) -> dict[str, Any]:
    """Numbers and truth values become the text that stands there, as with the original."""
    found: dict[str, Any] = json.loads(stored, parse_int=str, parse_float=str)
    return {name: json.dumps(value) if isinstance(value, bool) else value for name, value in found.items()}
