"""Journals in PostgreSQL, as the replicator writes them: a slice is one transaction.

The row of the partition in `pointer2` is the mutex. A second replicator waits for it, then finds the offset moved. So
what a slice writes and the offset it moves become visible together, and a replicator that was paused changes nothing.

Rows of the table `journal` are written in PostgreSQL's binary COPY format, encoded by hand because they are the bulk of
the work. What the events of one append share (id, segment, place, time, origin, metadata …) is encoded once. What is
left for an event is its number, its tags and its payload.

    PGCOPY\\n 0xff \\r\\n 0x00   flags   length of an extension        then for each row
    number of columns (int16)   for each column its length (int32, -1 is NULL) and that many bytes
    -1 (int16)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel

from inorder.database import sql
from inorder.database.postgres import PostgresConnection, committed, connect, is_usable, postgres_errors
from inorder.journal.codec import describe_fault, is_of_record
from inorder.journal.replication.store_port import JournalChange, Quarantined, ReplicaSlice
from inorder.journal.replication.transition import (
    DeleteEvents,
    DeleteHead,
    InsertEvents,
    InsertHead,
    Statement,
    UpdateHead,
)
from inorder.journal.segments import metajournal_segment
from inorder.journal.stores.ports import FORMER, JournalHead, TopicIncarnation
from inorder.journal.stores.postgres import head_of, quarantine_id
from inorder.journal.stores.rows import (
    encode_metadata,
    encode_payload,
    event_columns,
    header_column,
    quarantined_of,
    reason_column,
    time_column,
)
from inorder.journal.topic_identity import JournalReset, find_difference, moved_error, quarantine_error
from inorder.model.errors import RejectedError
from inorder.model.journal import Event, EventRecord, Key
from inorder.model.message import json_bytes

COLUMNS: Final = (
    "topic", "id", "segment", "timestamp", "meta_record_id", "partition", "offset", "origin", "version", "metadata",
    "headers", "seq_nr", "tags", "payload_type", "payload_txt", "payload_bin",
)  # fmt: skip
"""The columns of an append first, then those of an event."""

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


def encode_copy(rows: Iterable[tuple[Key, InsertEvents]]) -> bytes:
    """All rows in COPY format; raises `UnicodeEncodeError` for a lone surrogate, which PostgreSQL cannot store."""
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
    yield _text(encode_metadata(record.metadata))
    yield _jsonb(record.headers)


def _own(event: Event) -> Iterator[bytes]:
    payload = encode_payload(event.payload)
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
    """NULL if there are none; else a version byte comes first."""
    return _sized(b"\1" + json_bytes(dict(headers))) if headers else _NULL


def _tags(tags: frozenset[str]) -> bytes:
    texts = [_text(tag) for tag in sorted(tags)]
    dimension = _DIMENSION.pack(len(texts), 1) if texts else b""
    return _sized(_ARRAY.pack(1 if texts else 0, 0, _TEXT_OID) + dimension + b"".join(texts))


_PLAIN_COLUMNS: Final = _tags(frozenset()) + _text("binary") + _NULL
_PLAIN: Final = Struct(f">iq{len(_PLAIN_COLUMNS)}si")
"""Number, no tags, type, no text and the length of the bytes: most events are like this."""


_STATEMENTS = sql.load("inorder.journal", "sql/postgres/journal.sql")
_EVENT_COLUMNS = (
    "ids", "segments", "seq_nrs", "timestamps", "record_ids", "partitions", "offsets", "origins", "versions", "tags",
    "metadata", "payload_types", "payload_txts", "payload_bins", "headers",
)  # fmt: skip
_HEAD_COLUMNS = (
    "ids", "segments", "partitions", "offsets", "sizes", "seq_nrs", "deletes_to", "created", "updated", "expires_after",
    "expires_on", "record_ids", "origins",
)  # fmt: skip
_QUARANTINED_COLUMNS = ("ids", "partitions", "offsets", "reasons", "keys", "values", "headers", "timestamps")

_COPY = _STATEMENTS.render("copy_events", columns=", ".join(map(sql.quoted, COLUMNS))).rstrip(";")

Connection = psycopg.Connection[Any]
_Insert = tuple[Key, InsertEvents]


class PostgresReplica:
    """A `JournalReplica` on one connection, and the `Quarantine` of the same store."""

    def __init__(self, url: str, application_name: str = "inorder replicate") -> None:
        self._url = url
        self._application_name = application_name
        self._connection: PostgresConnection | None = None

    def offsets(self, topic: str) -> Mapping[int, int]:
        connection = self._connect()
        with postgres_errors(), connection.transaction():
            rows = connection.execute(_STATEMENTS["offsets"], {"topic": topic}).fetchall()
        return {partition: offset for partition, offset in rows if offset >= 0}

    def incarnation(self, topic: str) -> TopicIncarnation | None:
        connection = self._connect()
        with postgres_errors(), connection.transaction():
            row = connection.execute(_STATEMENTS["incarnation"], {"topic": topic}).fetchone()
        return TopicIncarnation(*row) if row else None

    def adopt(self, topic: str, held: TopicIncarnation) -> TopicIncarnation:
        connection = self._connect()
        bound = {"topic": topic, "topic_id": held.id, "partitions": held.partitions}
        with postgres_errors(), connection.transaction():
            connection.execute(_STATEMENTS["adopt"], bound)
        return self.incarnation(topic) or held

    def reset(self, plan: JournalReset) -> None:
        """One transaction, after all slices that are under way."""
        connection = self._connect()
        topic, number, accepted = {"topic": plan.topic}, plan.after.number, plan.after
        written = {"partitions": list(plan.offsets), "offsets": list(plan.offsets.values())}
        with committed(connection, f"reset of {plan.topic}"), postgres_errors():
            found = connection.execute(_STATEMENTS["lock_offsets"], topic).fetchall()
            if any(offset != plan.seen.get(partition, -1) for partition, offset in found):
                raise moved_error(plan.topic)
            if connection.execute(_STATEMENTS["quarantined"], topic | {"id": None}).fetchone():
                raise quarantine_error(plan.topic)
            connection.execute(_STATEMENTS["set_offsets"], topic | written)
            if plan.retires_all:
                connection.execute(_STATEMENTS["delete_offsets"], topic | {"partitions": list(plan.offsets)})
            if plan.retires_all or plan.retired:
                partitions = None if plan.retires_all else list(plan.retired)
                for name in ("retire_events", "retire_heads", "retire_snapshots"):
                    connection.execute(_STATEMENTS[name], topic | {"former": FORMER, "partitions": partitions})
            values = {"topic_id": accepted.id, "partitions": accepted.partitions, "number": number}
            connection.execute(_STATEMENTS["set_incarnation"], topic | values)

    @contextmanager
    def slice(self, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        """One transaction."""
        connection = self._connect()
        with committed(connection, f"{topic}[{partition}]"):
            if connection.is_pooled:
                with postgres_errors():
                    connection.execute(_STATEMENTS["session"], {"is_local": True})
            yield _Slice(connection, topic, partition)

    def quarantined(self, topic: str | None = None, id: str | None = None) -> list[Quarantined]:
        connection = self._connect()
        with postgres_errors(), connection.transaction():
            bound = {"topic": topic, "id": None if id is None else quarantine_id(id)}
            rows = connection.execute(_STATEMENTS["quarantined"], bound, binary=True).fetchall()
        return [quarantined_of(*row) for row in rows]

    def discard(self, key: Key, offset: int | None = None) -> int:
        connection = self._connect()
        bound = {"topic": key.topic, "id": quarantine_id(key.id), "offset": offset}
        with postgres_errors(), connection.transaction():
            return connection.execute(_STATEMENTS["discard"], bound).rowcount

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> PostgresConnection:
        if not is_usable(self._connection):
            with postgres_errors():
                self._connection = connect(self._url, self._application_name, autocommit=True)
                if not self._connection.is_pooled:
                    self._connection.execute(_STATEMENTS["session"], {"is_local": False})
                self._connection.autocommit = False
                # The lock must show what its last holder committed: no snapshot older than the lock.
                self._connection.isolation_level = IsolationLevel.READ_COMMITTED
        return self._connection


class _Slice:
    """One slice in an open transaction."""

    def __init__(self, connection: Connection, topic: str, partition: int) -> None:
        self._connection = connection
        self._topic = topic
        self._partition = partition
        self._is_careful = False

    def lock_offset(self) -> int | None:
        row = self._execute("lock_offset").fetchone()
        if row is None:
            self._execute("insert_offset")
            row = self._execute("lock_offset").fetchone()
        return int(row[0]) if row and row[0] >= 0 else None

    def parked(self, keys: Sequence[Key]) -> set[Key]:
        by_id = {quarantine_id(key.id): key for key in keys}
        return {by_id[id] for (id,) in self._execute("parked", ids=list(by_id)).fetchall()}

    def heads(self, keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
        by_id = {key.id: key for key in keys}
        rows = self._execute("heads", ids=list(by_id)).fetchall()
        return {by_id[id]: head_of(columns) for id, *columns in rows}

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        inserts: list[_Insert] = []
        for change in changes:
            inserts += self._inserts(change)
        self._insert_events(inserts)
        self._write_heads(changes)
        self._void_snapshots(changes)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """A savepoint."""
        self._is_careful = True
        with postgres_errors(), self._connection.transaction():
            yield

    def free(self, purged: Mapping[Key, int]) -> None:
        if purged:
            self._execute("free", ids=[quarantine_id(key.id) for key in purged])

    def lift(self, key: Key, partition: int, offset: int) -> None:
        self._execute("lift", id=quarantine_id(key.id), at=partition, offset=offset)

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        if records:
            columns = map(list, zip(*map(_quarantined_row, records), strict=True))
            self._execute("insert_quarantined", **dict(zip(_QUARANTINED_COLUMNS, columns, strict=True)))

    def move_offset(self, offset: int, topic_id: str | None = None) -> None:
        moved = self._execute("move_offset", offset=offset, topic_id=topic_id).rowcount
        if moved or topic_id is None:
            return
        row = self._execute("incarnation").fetchone()
        recorded = TopicIncarnation(*row) if row else None
        error = find_difference(
            self._topic, recorded, TopicIncarnation(topic_id, recorded.partitions if recorded else 0)
        )
        if error is not None:
            raise error

    def _inserts(self, change: JournalChange) -> list[_Insert]:
        """The inserts of a journal; its deletes are executed in their order among them."""
        inserts: list[_Insert] = []
        for _, statement in change.statements:
            if isinstance(statement, InsertEvents):
                inserts.append((change.key, statement))
            elif isinstance(statement, DeleteEvents):
                self._insert_events(inserts)
                inserts = []
                span = statement.segments
                self._execute("delete_events", id=change.key.id, first=span.first, last=span.last, to=statement.to)
        return inserts

    def _insert_events(self, inserts: Sequence[_Insert]) -> None:
        if inserts and self._is_careful:
            with _store_errors():
                rows = [row for insert in inserts for row in _event_rows(*insert)]
            self._execute("insert_events", **dict(zip(_EVENT_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))
        elif inserts:
            self._copy_events(inserts)

    def _copy_events(self, inserts: Sequence[_Insert]) -> None:
        """Several times faster than an INSERT, but refuses an event that exists; in `attempt` INSERT is used."""
        with _store_errors(), self._connection.cursor() as cursor:
            rows = encode_copy(inserts)
            with cursor.copy(_COPY) as copy:
                copy.write(rows)

    def _write_heads(self, changes: Sequence[JournalChange]) -> None:
        # First, or a journal that is purged and begins again would keep what only a new row gets: created, origin,
        # size.
        if gone := [change.key.id for change in changes if _is_purged(change)]:
            self._execute("delete_heads", ids=gone)
        rows = [_head_row(change) for change in changes if change.head is not None]
        if rows:
            self._execute("write_heads", **dict(zip(_HEAD_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))

    def _void_snapshots(self, changes: Sequence[JournalChange]) -> None:
        purged = {
            change.key.id: dated.offset
            for change in changes
            for dated in change.statements
            if isinstance(dated.statement, DeleteHead)
        }
        if purged:
            self._execute("lock_snapshots")
            self._execute("void_snapshots", ids=list(purged), offsets=list(purged.values()))

    def _execute(self, name: str, **bound: Any) -> psycopg.Cursor[Any]:
        with _store_errors():
            place = {"topic": self._topic, "partition": self._partition}
            return self._connection.execute(_STATEMENTS[name], {**place, **bound}, binary=True)


@contextmanager
def _store_errors() -> Iterator[None]:
    """`postgres_errors`; what cannot be encoded, as half a character, is refused as PostgreSQL would refuse it."""
    try:
        with postgres_errors():
            yield
    except Exception as error:
        if isinstance(error, RejectedError) or not is_of_record(error):
            raise
        raise RejectedError(f"It cannot be encoded for PostgreSQL: {describe_fault(error)}.") from error


def _is_purged(change: JournalChange) -> bool:
    return any(isinstance(each, DeleteHead) for _, each in change.statements)


def _since_purge(change: JournalChange) -> list[Statement]:
    """The statements of the life that the head belongs to."""
    said = [each for _, each in change.statements]
    gone = [number for number, each in enumerate(said) if isinstance(each, DeleteHead)]
    return said[gone[-1] + 1 :] if gone else said


def _event_rows(key: Key, statement: InsertEvents) -> Iterator[tuple[Any, ...]]:
    for record in statement.events:
        place = key.id, statement.segment, record.seq_nr, record.timestamp, statement.record_id
        partition, offset, origin, version, tags, *about, headers = event_columns(record)
        sender = partition, offset, origin, version
        yield (*place, *sender, _json(sorted(tags)), *about, _json(headers) if headers else None)


def _quarantined_row(each: Quarantined) -> tuple[Any, ...]:
    record = each.record
    place = quarantine_id(each.key.id), each.partition, each.offset
    return (*place, reason_column(each), record.key, record.value, header_column(record), time_column(record))


def _json(value: object) -> str:
    return json_bytes(dict(value) if isinstance(value, Mapping) else value).decode()


def _head_row(change: JournalChange) -> tuple[Any, ...]:
    head = change.head
    assert head is not None  # noqa: S101 - the caller has checked
    said = _since_purge(change)
    made = next((each for each in said if isinstance(each, InsertHead)), None)
    moved = [each.updated for each in said if isinstance(each, UpdateHead)]
    created = made.created if made else moved[-1]
    return (
        change.key.id,
        metajournal_segment(change.key.id),
        head.partition_offset.partition,
        head.partition_offset.offset,
        head.segment_size,
        head.seq_nr,
        head.delete_to,
        created,
        moved[-1] if moved else created,
        head.expiry.after if head.expiry else None,
        head.expiry.on if head.expiry else None,
        head.record_id,
        made.origin if made else None,
    )
