"""Journals in PostgreSQL, as the replicator writes them: a slice is one transaction.

The row of the partition in `pointer2` is the mutex. A second replicator waits for it, then finds the offset moved. So
what a slice writes and the offset it moves become visible together, and a replicator that was paused changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import IsolationLevel

from inorder import sql
from inorder.journal.quarantine import Quarantined
from inorder.journal.replica import JournalChange, ReplicaSlice
from inorder.journal.segments import metajournal_segment
from inorder.journal.statements import DeleteEvents, InsertEvents, InsertHead, UpdateHead
from inorder.journal.stored import event_columns
from inorder.journal.stored_quarantine import header_column, quarantined_of, time_column
from inorder.model.journal import Key
from inorder.model.message import json_bytes
from inorder.ports.journal_store import JournalHead
from inorder.stores.postgres.committing import committed
from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.journal import head_of
from inorder.stores.postgres.sqlstate import our_errors

_STATEMENTS = sql.load("inorder.stores.postgres", "journal.sql")
_EVENT_COLUMNS = (
    "ids", "segments", "seq_nrs", "timestamps", "record_ids", "partitions", "offsets", "origins", "versions", "tags",
    "metadata", "payload_types", "payload_txts", "payload_bins", "headers",
)  # fmt: skip
_HEAD_COLUMNS = (
    "ids", "segments", "partitions", "offsets", "sizes", "seq_nrs", "deletes_to", "created", "updated", "expires_after",
    "expires_on", "record_ids", "origins",
)  # fmt: skip
_TAGS = _EVENT_COLUMNS.index("tags")
_QUARANTINED_COLUMNS = ("ids", "partitions", "offsets", "reasons", "keys", "values", "headers", "timestamps")

Connection = psycopg.Connection[Any]


class PostgresReplica:
    """A `JournalReplica` on one connection, and the `Quarantine` of the same store."""

    def __init__(self, url: str, application_name: str = "inorder replicate") -> None:
        self._url = url
        self._application_name = application_name
        self._connection: Connection | None = None

    def offsets(self, topic: str) -> Mapping[int, int]:
        """What is committed."""
        connection = self._connected()
        with our_errors(), connection.transaction():
            rows = connection.execute(_STATEMENTS["offsets"], {"topic": topic}).fetchall()
        return {partition: offset for partition, offset in rows if offset >= 0}

    @contextmanager
    def slice(self, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        """One transaction."""
        connection = self._connected()
        with committed(connection, f"{topic}[{partition}]"):
            yield _Slice(connection, topic, partition)

    def quarantined(self, topic: str | None = None, id: str | None = None) -> list[Quarantined]:
        """What is in quarantine."""
        connection = self._connected()
        with our_errors(), connection.transaction():
            rows = connection.execute(_STATEMENTS["quarantined"], {"topic": topic, "id": id}, binary=True).fetchall()
        return [quarantined_of(*row) for row in rows]

    def discard(self, key: Key, offset: int | None = None) -> int:
        """Gives up all records of a journal, or one."""
        connection = self._connected()
        bound = {"topic": key.topic, "id": key.id, "offset": offset}
        with our_errors(), connection.transaction():
            return connection.execute(_STATEMENTS["discard"], bound).rowcount

    def close(self) -> None:
        """Gives the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            with our_errors():
                self._connection = connect(self._url, self._application_name, autocommit=True)
                self._connection.execute(_STATEMENTS["session"])
                self._connection.autocommit = False
                # The lock must show what its last holder committed: no snapshot older than the lock.
                self._connection.isolation_level = IsolationLevel.READ_COMMITTED
        return self._connection


class _Slice:
    """The verbs of one slice in an open transaction."""

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
        return {Key(id, self._topic) for (id,) in self._execute("parked", ids=[key.id for key in keys]).fetchall()}

    def heads(self, keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
        rows = self._execute("heads", ids=[key.id for key in keys]).fetchall()
        return {Key(id, self._topic): head_of(columns) for id, *columns in rows}

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        events: list[tuple[Any, ...]] = []
        for change in changes:
            events += self._events(change)
        self._insert_events(events)
        self._write_heads(changes)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """A savepoint."""
        self._is_careful = True
        with our_errors(), self._connection.transaction():
            yield

    def free(self, purged: Mapping[Key, int]) -> None:
        if purged:
            self._execute("free", ids=[key.id for key in purged])

    def lift(self, key: Key, partition: int, offset: int) -> None:
        self._execute("lift", id=key.id, at=partition, offset=offset)

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        if records:
            columns = map(list, zip(*map(_quarantined_row, records), strict=True))
            self._execute("insert_quarantined", **dict(zip(_QUARANTINED_COLUMNS, columns, strict=True)))

    def move_offset(self, offset: int) -> None:
        self._execute("move_offset", offset=offset)

    def _events(self, change: JournalChange) -> list[tuple[Any, ...]]:
        """The rows of a journal that are to be inserted; what it deletes is deleted in its turn among them."""
        rows: list[tuple[Any, ...]] = []
        for _, statement in change.statements:
            if isinstance(statement, InsertEvents):
                rows += _event_rows(change.key, statement)
            elif isinstance(statement, DeleteEvents):
                self._insert_events(rows)
                rows = []
                span = statement.segments
                self._execute("delete_events", id=change.key.id, first=span.first, last=span.last, to=statement.to)
        return rows

    def _insert_events(self, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows and not self._is_careful:
            self._copy_events(rows)
        elif rows:
            columns = dict(zip(_EVENT_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
            # An array of arrays cannot be unnested by one step, so tags go as JSON too.
            spelt = {"tags": [_json(sorted(tags)) for tags in columns["tags"]]}
            self._execute("insert_events", **columns | spelt | {"headers": [*map(_json, columns["headers"])]})

    def _copy_events(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Several times faster than an INSERT; an event that is there already is refused, and `attempt` is careful."""
        copying = _STATEMENTS["copy_events"].rstrip(";")
        with our_errors(), self._connection.cursor() as cursor, cursor.copy(copying) as copy:
            for *row, headers in rows:
                row[_TAGS] = sorted(row[_TAGS]) or "{}"
                copy.write_row((*row, _json(headers) if headers else "{}", self._topic))

    def _write_heads(self, changes: Sequence[JournalChange]) -> None:
        rows = [_head_row(change) for change in changes if change.head is not None]
        if rows:
            self._execute("write_heads", **dict(zip(_HEAD_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))
        if gone := [change.key.id for change in changes if change.head is None]:
            self._execute("delete_heads", ids=gone)

    def _execute(self, name: str, **bound: Any) -> psycopg.Cursor[Any]:
        with our_errors():
            place = {"topic": self._topic, "partition": self._partition}
            return self._connection.execute(_STATEMENTS[name], {**place, **bound}, binary=True)


def _event_rows(key: Key, statement: InsertEvents) -> Iterator[tuple[Any, ...]]:
    for record in statement.events:
        place = key.id, statement.segment, record.seq_nr, record.timestamp, statement.record_id
        yield (*place, *event_columns(record))


def _quarantined_row(each: Quarantined) -> tuple[Any, ...]:
    record = each.record
    # A driver's words may quote what PostgreSQL cannot hold.
    reason = each.reason.replace("\0", "\\x00")
    place = each.key.id, each.partition, each.offset
    return (*place, reason, record.key, record.value, header_column(record), time_column(record))


def _json(value: object) -> str:
    return json_bytes(dict(value) if isinstance(value, Mapping) else value).decode()


def _head_row(change: JournalChange) -> tuple[Any, ...]:
    head = change.head
    assert head is not None  # noqa: S101 - the caller has looked
    made = next((each for _, each in change.statements if isinstance(each, InsertHead)), None)
    moved = [each.updated for _, each in change.statements if isinstance(each, UpdateHead)]
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
