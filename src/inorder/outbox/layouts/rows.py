"""Decoding rows of every layout. Any program may have written them: what is wrong is recorded, never raised.

Column functions take the value from the driver, the name of the column, and the list of `flaws` found so far. Text may
come as bytes: SQLite stores any value in any column, so its layouts select bytes, and the check is here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import orjson

from inorder.model.errors import PermanentError, last_line
from inorder.model.message import OutboxRow, RecordHeaders, from_text, partition_flaw, topic_flaw


def text_of(value: Any, column: str, flaws: list[str]) -> str | None:
    """Text or null; bytes that are not UTF-8 are a flaw, and decoded with replacement characters."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        # SQLite keeps numbers in such a column, too; `bytes` of one would be as many zeros.
        flaws.append(f"{column} is a {type(value).__name__} and not text")
        return str(value)
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        flaws.append(f"{column} is not UTF-8 text ({error.reason} at byte {error.start})")
        return bytes(value).decode(errors="replace")


def topic_of(value: Any, column: str, flaws: list[str], *, prefix: str = "") -> str:
    """A topic; a row without one, or with one that Kafka cannot have, has a flaw."""
    already, name = len(flaws), text_of(value, column, flaws)
    if not name:
        flaws.append(f"{column} is {'null' if name is None else 'empty'}")
        return ""
    topic = f"{prefix}{name}"
    if len(flaws) == already and (flaw := topic_flaw(topic)):
        flaws.append(f"{column}: {flaw}")
    return topic


def text_bytes_of(value: Any, column: str, flaws: list[str]) -> bytes | None:
    """The UTF-8 bytes of a text column; other bytes are a flaw, and kept for inspection."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    text = text_of(value, column, flaws)
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else (text or "").encode()


# `OutboxRow(…)` without the parsing of its arguments, which takes a third less time: decoding is the hottest function
# of the relay after the driver's own.
_new: Callable[[type[OutboxRow], tuple[Any, ...]], OutboxRow] = tuple.__new__


Decode = Callable[[Sequence[Any]], OutboxRow]


def decode_rows(decode: Decode, found: Sequence[Sequence[Any]]) -> list[OutboxRow]:
    """Rows of any content, decoded. One that makes `decode` itself fail has a flaw, and the others are read."""
    try:
        return list(map(decode, found))
    except Exception:  # noqa: BLE001 - whatever it is, it must not end the relay
        return [_decode_one(decode, row) for row in found]


def _decode_one(decode: Decode, row: Sequence[Any]) -> OutboxRow:
    try:
        return decode(row)
    except Exception as error:  # noqa: BLE001 - as above
        flaw = f"it cannot be read ({last_line(error)})"
    try:  # Every layout selects the id, then topic and key: with these its key can be parked.
        return decode((*row[:_ORDERED_BY], *(None for _ in row[_ORDERED_BY:])))._replace(flaw=flaw)
    except Exception:  # noqa: BLE001 - as above
        return OutboxRow(row[0], "", None, None, (), None, None, flaw)


_ORDERED_BY = 3
"""How many columns decide what a row must stay in order with."""


def native_row(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, topic, key, value, headers, partition, timestamp."""
    id, topic, key, value, headers, partition, timestamp = row
    is_plain = headers is None and partition is None and timestamp is None
    if is_plain and topic.__class__ is str and topic and not topic_flaw(topic):
        return _new(OutboxRow, (id, topic, key, value, (), None, None, "", None))
    flaws: list[str] = []
    if topic.__class__ is not str or topic_flaw(topic):
        topic = topic_of(topic, "topic", flaws)
    found = () if headers is None else _headers(headers, flaws)
    if partition is not None and (flaw := partition_flaw(partition)):
        flaws.append(f"partition: {flaw}")
    if timestamp is not None and timestamp < 0:
        flaws.append(f"timestamp: {timestamp} is before 1970")
    return _new(OutboxRow, (id, topic, key, value, found, partition, timestamp, "; ".join(flaws), None))


def _headers(stored: Any, flaws: list[str]) -> RecordHeaders:
    already = len(flaws)
    text = stored if stored.__class__ is str else text_of(stored, "headers", flaws)
    if len(flaws) > already:
        return ()
    try:
        found = from_text(text)
    except PermanentError as error:
        flaws.append(error.message)
        return ()
    if text is not None and "\\u0000" in text:
        _refuse_nul((name for name, _ in found), "headers", flaws)
    return found


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
    _refuse_nul(names, "kafka_header_keys", flaws)
    if len(flaws) > already:
        return ()
    return tuple(
        (name, None if item is None else item.encode())
        for name, item in zip(names, texts, strict=True)
        if name is not None
    )


def _refuse_nul(names: Iterable[str | None], column: str, flaws: list[str]) -> None:
    """The client takes names as C strings and would cut such a name off."""
    if any(name is not None and "\0" in name for name in names):
        flaws.append(f"{column} has a name that holds a NUL")


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
    topic = topic_of(aggregate_type, "aggregatetype", flaws, prefix=TOPIC_PREFIX)
    key = text_bytes_of(aggregate_id, "aggregateid", flaws)
    value = payload.encode() if isinstance(payload, str) else payload
    headers = (("id", _event_id(event_id, flaws)),)
    return OutboxRow(seq, topic, key, value, headers, None, None, "; ".join(flaws))


def _event_id(stored: Any, flaws: list[str]) -> bytes | None:
    """The UUID as text; databases without that type store it as text or as 16 bytes."""
    if isinstance(stored, bytes) and len(stored) == _UUID_BYTES:
        return str(UUID(bytes=stored)).encode()
    return text_bytes_of(stored, "id", flaws)


_BINARY = (bytes, type(None))


def binary_of(value: Any, column: str, flaws: list[str]) -> bytes | None:
    """Bytes or null; SQLite keeps numbers in such a column too, which are a flaw, and shown as text."""
    if value is None or isinstance(value, bytes | bytearray | memoryview):
        return None if value is None else bytes(value)
    if isinstance(value, str):
        return value.encode(errors="backslashreplace")
    flaws.append(f"{column} is a {type(value).__name__} and not bytes")
    return str(value).encode()


def deimos_row(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, topic, key, message, partition_key.

    Deimos writes the key a second time as the partition key where none was chosen; such a row has no partition key.
    """
    id, topic, key, message, partition_key = row
    are_bytes = key.__class__ in _BINARY and message.__class__ in _BINARY
    if partition_key is None and are_bytes and topic.__class__ is str and not topic_flaw(topic):
        return _new(OutboxRow, (id, topic, key, message, (), None, None, "", None))
    flaws: list[str] = []
    name = topic_of(topic, "topic", flaws)
    key, message = binary_of(key, "key", flaws), binary_of(message, "message", flaws)
    routed = text_bytes_of(partition_key, "partition_key", flaws)
    return OutboxRow(
        id, name, key, message, (), None, None, "; ".join(flaws), partition_key=None if routed == key else routed
    )


def trendyol_row(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, topic, key, value, header."""
    id, topic, key, value, header = row
    flaws: list[str] = []
    if topic.__class__ is not str or topic_flaw(topic):
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
    _refuse_nul(found, "header", flaws)
    try:
        return tuple([(name, value.encode()) for name, value in found.items()])
    except AttributeError:  # some values are not texts
        pass
    if any(isinstance(value, dict | list) for value in found.values()):
        flaws.append("header is not a flat JSON object")  # before it is read again: the other reader is recursive
        return ()
    found = _as_written(stored)
    return tuple((name, None if value is None else value.encode()) for name, value in found.items())


def _as_written(stored: Any) -> dict[str, Any]:
    """Numbers and booleans become their JSON text, as in the original."""
    found: dict[str, Any] = json.loads(stored, parse_int=str, parse_float=str)
    return {name: json.dumps(value) if isinstance(value, bool) else value for name, value in found.items()}
