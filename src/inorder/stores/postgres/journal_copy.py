"""Rows of the table `journal` in PostgreSQL's binary COPY format, made by hand because they are the bulk of the work.

What the events of one append share (id, segment, place, time, origin, metadata …) is spelt once and repeated as it is.
What is left for an event is its number, its tags and its payload.

    PGCOPY\\n 0xff \\r\\n 0x00   flags   length of an extension        then for each row
    number of columns (int16)   for each column its length (int32, -1 is NULL) and that many bytes
    -1 (int16)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Final

from inorder.journal.codec.columns import to_columns
from inorder.journal.codec.metadata import to_column
from inorder.journal.replication.statements import InsertEvents
from inorder.model.journal import Event, EventRecord, Key
from inorder.model.message import json_bytes

COLUMNS: Final = (
    "topic", "id", "segment", "timestamp", "meta_record_id", "partition", "offset", "origin", "version", "metadata",
    "headers", "seq_nr", "tags", "payload_type", "payload_txt", "payload_bin",
)  # fmt: skip
"""Those of an append first, then those of an event."""

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
_NULL: Final = b"\xff\xff\xff\xff"
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_COUNT: Final = Struct(">h").pack(len(COLUMNS))
_LENGTH: Final = Struct(">i")
_INTEGER: Final = Struct(">ii")
_BIGINT: Final = Struct(">iq")
_ARRAY: Final = Struct(">iii")
_DIMENSION: Final = Struct(">ii")
_TEXT_OID: Final = 25


def copied(rows: Iterable[tuple[Key, InsertEvents]]) -> bytes:
    """All rows as COPY takes them; `UnicodeEncodeError` for half a character, which PostgreSQL could not hold."""
    parts = [_SIGNATURE]
    for key, statement in rows:
        _add(parts, key, statement)
    parts.append(_END)
    return b"".join(parts)


def _add(parts: list[bytes], key: Key, statement: InsertEvents) -> None:
    place, shared = None, b""
    for record in statement.events:
        if record.partition_offset is not place:  # the first of an append
            place, shared = record.partition_offset, b"".join(_shared(key, statement, record))
        event = record.event
        payload = event.payload
        if type(payload) is bytes and not event.tags:
            parts += (shared, _PLAIN.pack(8, event.seq_nr, _PLAIN_COLUMNS, len(payload)), payload)
        else:
            parts.append(shared)
            parts += _own(event)


def _shared(key: Key, statement: InsertEvents, record: EventRecord) -> Iterator[bytes]:
    yield _COUNT
    yield _text(key.topic)
    yield _text(key.id)
    yield _BIGINT.pack(8, statement.segment)
    yield _BIGINT.pack(8, (record.timestamp - _EPOCH) // _MICROSECOND)
    yield _NULL if statement.record_id is None else _sized(statement.record_id.bytes)
    yield _INTEGER.pack(4, record.partition_offset.partition)
    yield _BIGINT.pack(8, record.offset)
    yield _text(record.origin)
    yield _text(record.version)
    yield _text(to_column(record.metadata))
    yield _jsonb(record.headers)


def _own(event: Event) -> Iterator[bytes]:
    payload = to_columns(event.payload)
    yield _BIGINT.pack(8, event.seq_nr)
    yield _tags(event.tags)
    yield _text(payload.type)
    yield _text(payload.text)
    yield _NULL if payload.binary is None else _sized(payload.binary)


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _text(text: str | None) -> bytes:
    return _NULL if text is None else _sized(text.encode())


def _jsonb(headers: Mapping[str, str]) -> bytes:
    """NULL where there are none; a version byte leads the others."""
    return _sized(b"\1" + json_bytes(dict(headers))) if headers else _NULL


def _tags(tags: frozenset[str]) -> bytes:
    texts = [_text(tag) for tag in sorted(tags)]
    dimension = _DIMENSION.pack(len(texts), 1) if texts else b""
    return _sized(_ARRAY.pack(1 if texts else 0, 0, _TEXT_OID) + dimension + b"".join(texts))


_PLAIN_COLUMNS: Final = _tags(frozenset()) + _text("binary") + _NULL
_PLAIN: Final = Struct(f">iq{len(_PLAIN_COLUMNS)}si")
"""Number, no tags, type, no text and the length of the bytes: most events are like this."""
