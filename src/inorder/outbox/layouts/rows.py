"""Decoding rows of every layout. Any program may have written them: what is wrong is recorded, never raised.

Column functions take the value from the driver, the name of the column, and the list of `flaws` found so far. Text may
come as bytes: SQLite stores any value in any column, so its layouts select bytes, and the check is here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import orjson

from inorder.model.errors import PermanentError
from inorder.model.message import RESERVED, OutboxRow, RecordHeaders, from_text, is_reserved


def text_of(value: Any, column: str, flaws: list[str]) -> str | None:
    """Text or null; bytes that are not UTF-8 are a flaw, and decoded with replacement characters."""
    if value is None or isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        flaws.append(f"{column} is not UTF-8 text ({error.reason} at byte {error.start})")
        return bytes(value).decode(errors="replace")


def name_of(value: Any, column: str, flaws: list[str]) -> str:
    """A name; a row without one has a flaw."""
    name = text_of(value, column, flaws)
    if not name:
        flaws.append(f"{column} is {'null' if name is None else 'empty'}")
    return name or ""


# Topics that were found to be without a flaw. Rows come by the hundred thousand and their topics are few, so that the
# checks of a topic cost one lookup a row.
_checked: set[str] = set()
_MOST_CHECKED = 10_000


def topic_of(value: Any, column: str, flaws: list[str]) -> str:
    """A topic; a row without one, or with one that is reserved for inorder, has a flaw."""
    already = len(flaws)
    name = name_of(value, column, flaws)
    if is_reserved(name):
        flaws.append(f"{column} {name!r} {RESERVED}")
    if len(flaws) == already and len(_checked) < _MOST_CHECKED:
        _checked.add(name)
    return name


def text_bytes_of(value: Any, column: str, flaws: list[str]) -> bytes | None:
    """The UTF-8 bytes of a text column; other bytes are a flaw, and kept for inspection."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    text_of(value, column, flaws)
    return bytes(value)


# `OutboxRow(…)` without the parsing of its arguments, which takes a third less time: decoding is the hottest function
# of the relay after the driver's own.
_new: Callable[[type[OutboxRow], tuple[Any, ...]], OutboxRow] = tuple.__new__


def native_row(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, topic, key, value, headers, partition, timestamp."""
    id, topic, key, value, headers, partition, timestamp = row
    flaws: list[str] = []
    if topic.__class__ is not str or topic not in _checked:
        topic = topic_of(topic, "topic", flaws)
    found = () if headers is None else _headers(headers, flaws)
    return _new(OutboxRow, (id, topic, key, value, found, partition, timestamp, "; ".join(flaws), None))


def _headers(stored: Any, flaws: list[str]) -> RecordHeaders:
    already = len(flaws)
    text = stored if stored.__class__ is str else text_of(stored, "headers", flaws)
    if len(flaws) > already:
        return ()
    try:
        return from_text(text)
    except PermanentError as error:
        flaws.append(error.message)
        return ()


def goharvest_row(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values."""
    id, topic, key, value, header_keys, header_values = row
    flaws: list[str] = []
    return OutboxRow(
        id,
        topic_of(topic, "kafka_topic", flaws),
        text_bytes_of(key, "kafka_key", flaws),
        text_bytes_of(value, "kafka_value", flaws),
        _decode_headers(header_keys, header_values, flaws),
        None,
        None,
        "; ".join(flaws),
    )


def _decode_headers(keys: Any, values: Any, flaws: list[str]) -> RecordHeaders:
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
    """An array of texts: native on PostgreSQL, a JSON array elsewhere."""
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


TOPIC_PREFIX = "outbox.event."

_UUID_BYTES = 16


def debezium_row(row: Sequence[Any]) -> OutboxRow:
    """Columns: seq, aggregatetype, aggregateid, payload, id.

    The record is the one that Debezium's outbox event router sends by default: topic `outbox.event.<aggregatetype>`,
    key `aggregateid`, value `payload`, and the event's `id` as a header; a null payload is a tombstone.
    """
    seq, aggregate_type, aggregate_id, payload, event_id = row
    flaws: list[str] = []
    route = name_of(aggregate_type, "aggregatetype", flaws)
    key = text_bytes_of(aggregate_id, "aggregateid", flaws)
    value = payload.encode() if isinstance(payload, str) else payload
    headers = (("id", _event_id(event_id, flaws)),)
    return OutboxRow(seq, f"{TOPIC_PREFIX}{route}" if route else "", key, value, headers, None, None, "; ".join(flaws))


def _event_id(stored: Any, flaws: list[str]) -> bytes | None:
    """The UUID as text; databases without that type store it as text or as 16 bytes."""
    if isinstance(stored, bytes) and len(stored) == _UUID_BYTES:
        return str(UUID(bytes=stored)).encode()
    return text_bytes_of(stored, "id", flaws)


def deimos_row(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, topic, key, message, partition_key.

    Deimos writes the key a second time as the partition key where none was chosen; such a row has no partition key.
    """
    id, topic, key, message, partition_key = row
    if partition_key is None and topic.__class__ is str and topic in _checked:
        return _new(OutboxRow, (id, topic, key, message, (), None, None, "", None))
    flaws: list[str] = []
    name = topic_of(topic, "topic", flaws)
    routed = text_bytes_of(partition_key, "partition_key", flaws)
    return OutboxRow(
        id, name, key, message, (), None, None, "; ".join(flaws), partition_key=None if routed == key else routed
    )


def trendyol_row(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, topic, key, value, header."""
    id, topic, key, value, header = row
    flaws: list[str] = []
    if topic.__class__ is not str or topic not in _checked:
        topic = topic_of(topic, "topic", flaws)
    key = key.encode() if key.__class__ is str else text_bytes_of(key, "key", flaws)
    value = value.encode() if value.__class__ is str else text_bytes_of(value, "value", flaws)
    headers = _trendyol_headers(header, flaws) if header else ()
    return _new(OutboxRow, (id, topic, key, value, headers, None, None, "; ".join(flaws), None))


def _trendyol_headers(stored: Any, flaws: list[str]) -> RecordHeaders:
    """A JSON object of texts; `null` means no headers, as in the original."""
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
    except AttributeError:  # some values are not texts
        found = _as_written(stored)
    if any(isinstance(value, dict | list) for value in found.values()):
        flaws.append("header is not a flat JSON object")
        return ()
    return tuple((name, None if value is None else value.encode()) for name, value in found.items())


def _as_written(stored: Any) -> dict[str, Any]:
    """Numbers and booleans become their JSON text, as in the original."""
    found: dict[str, Any] = json.loads(stored, parse_int=str, parse_float=str)
    return {name: json.dumps(value) if isinstance(value, bool) else value for name, value in found.items()}
