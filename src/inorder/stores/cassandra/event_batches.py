"""Rows of the table `journal` as the protocol carries them, in batches of one partition.

The driver would encode every value of every row anew. What the events of one append share is encoded once here, in the
order of the statement `insert_event`.

Columns without a value are left unset, because a null is written as a tombstone that readers pay for. A row is then not
written over as a whole, and need not be: whoever writes it again writes the same. Only a row of a former life could
have more columns, if it had the same number and the same millisecond and a paused replicator wrote it after the purge.
So the first append of a life, the one that a purge may be so close to, writes its nulls.

All rows of a batch are of one partition of the store, so it is one mutation there, and limits of batches are not met.
What shares a request with others is decided elsewhere (`writes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, Final, NamedTuple

from cassandra.query import UNSET_VALUE, PreparedStatement

from inorder.journal.codec.columns import to_columns
from inorder.journal.codec.metadata import to_column
from inorder.journal.replication.statements import InsertEvents
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset
from inorder.stores.cassandra.writes import Values, Write

BASE_MICROS: Final = 1 << 52
"""In the year 2112: no clock of today writes later."""
BATCH_ROWS: Final = 200
BATCH_BYTES: Final = 64 * 1024
"""Of payloads; a larger one goes alone."""

_INT: Final = Struct(">i").pack
_BIGINT: Final = Struct(">q").pack
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_BINARY: Final = b"binary"


def batches(insert: PreparedStatement, key: Key, statement: InsertEvents, *, begins: bool = False) -> Iterator[Write]:
    """The rows of one segment; `UnicodeEncodeError` for half a character, which Cassandra could not hold.

    `begins`: the first append of them is the first of a journal's life.
    """
    batch, size = list[Values](), 0
    first = statement.events[0].partition_offset if begins else None
    for values, length, place in _rows(key, statement):
        if batch and (size + length > BATCH_BYTES or len(batch) == BATCH_ROWS):
            yield Write(insert, batch)
            batch, size = [], 0
        batch.append(_with_nulls(values) if place is first else values)
        size += length
    yield Write(insert, batch)


def _with_nulls(values: list[Any]) -> list[Any]:
    return [None if value is UNSET_VALUE else value for value in values]


def _rows(key: Key, statement: InsertEvents) -> Iterator[tuple[list[Any], int, PartitionOffset]]:
    """The values of each row, how long its payload is, and the place of its append."""
    place, shared = None, _NOTHING
    for record in statement.events:
        if place is None or record.partition_offset is not place:  # the first of an append
            place, shared = record.partition_offset, _shared(key, statement, record)
        before, sender, metadata, after = shared
        event = record.event
        payload, number = event.payload, _BIGINT(event.seq_nr)
        if type(payload) is bytes and not event.tags:
            row = [*before, number, *sender, UNSET_VALUE, metadata, _BINARY, UNSET_VALUE, payload, *after]
            yield row, len(payload), place
        else:
            own = _own(event)
            tags, *columns = own
            row = [*before, number, *sender, tags, metadata, *columns, *after]
            yield row, sum(map(_length, own)), place


class _Shared(NamedTuple):
    """What the rows of an append have in common, in the order of the statement."""

    before: Sequence[bytes] = ()
    sender: Sequence[Any] = ()
    metadata: bytes = b""
    after: Sequence[Any] = ()


_NOTHING: Final = _Shared()


def _shared(key: Key, statement: InsertEvents, record: EventRecord) -> _Shared:
    sender = (
        _BIGINT((record.timestamp - _EPOCH) // _MILLISECOND),
        UNSET_VALUE if statement.record_id is None else statement.record_id.bytes,
        _INT(record.partition_offset.partition),
        _BIGINT(record.offset),
        _text(record.origin),
        _text(record.version),
    )
    return _Shared(
        (key.id.encode(), key.topic.encode(), _BIGINT(statement.segment)),
        sender,
        to_column(record.metadata).encode(),
        (_map(record.headers), _BIGINT(BASE_MICROS + record.offset)),
    )


def _own(event: Event) -> list[Any]:
    payload = to_columns(event.payload)
    binary = UNSET_VALUE if payload.binary is None else payload.binary
    return [_set(event.tags), _text(payload.type), _text(payload.text), binary]


def _length(value: Any) -> int:
    return 0 if value is UNSET_VALUE else len(value)


def _text(text: str | None) -> Any:
    return UNSET_VALUE if text is None else text.encode()


def _set(tags: frozenset[str]) -> Any:
    return _INT(len(tags)) + _sized(sorted(tags)) if tags else UNSET_VALUE


def _map(headers: Mapping[str, str]) -> Any:
    texts = [text for pair in headers.items() for text in pair]
    return _INT(len(headers)) + _sized(texts) if headers else UNSET_VALUE


def _sized(texts: Iterable[str]) -> bytes:
    return b"".join(_INT(len(data)) + data for data in (text.encode() for text in texts))
