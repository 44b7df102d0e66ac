"""Rows of the goharvest layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from inorder.model.message import RecordHeaders
from inorder.outbox.layouts import reading
from inorder.ports.outbox_store import OutboxRow


def decode(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values."""
    id, topic, key, value, header_keys, header_values = row
    flaws: list[str] = []
    return OutboxRow(
        id,
        reading.topic(topic, "kafka_topic", flaws),
        reading.text_bytes(key, "kafka_key", flaws),
        reading.text_bytes(value, "kafka_value", flaws),
        _headers(header_keys, header_values, flaws),
        None,
        None,
        "; ".join(flaws),
    )


def _headers(keys: Any, values: Any, flaws: list[str]) -> RecordHeaders:
    if not keys and not values:
        return ()
    already = len(flaws)
    names = _array(keys, "kafka_header_keys", flaws)
    texts = _array(values, "kafka_header_values", flaws)
    if len(flaws) == already and len(names) != len(texts):
        flaws.append(f"kafka_header_keys has {len(names)} items and kafka_header_values {len(texts)}")
    if len(flaws) == already and None in names:
        flaws.append(f"kafka_header_keys has a null at position {names.index(None)}")
    if len(flaws) > already:
        return ()
    return tuple(
        (name, None if item is None else item.encode())
        for name, item in zip(names, texts, strict=True)
        if name is not None
    )


def _array(stored: Any, column: str, flaws: list[str]) -> list[str | None]:
    """An array of texts: PostgreSQL has them, elsewhere the text of the column is a JSON array."""
    items = stored if isinstance(stored, list) else _parsed(stored, column, flaws)
    if not all(item is None or isinstance(item, str) for item in items):
        flaws.append(f"{column} is not a flat array of texts")
        return []
    return items


def _parsed(stored: Any, column: str, flaws: list[str]) -> list[Any]:
    if stored is None:
        return []
    try:
        items = orjson.loads(stored)
    except orjson.JSONDecodeError as error:
        flaws.append(f"{column} is not a JSON array ({error})")
        return []
    if not isinstance(items, list):
        flaws.append(f"{column} is not a JSON array")
        return []
    return items
