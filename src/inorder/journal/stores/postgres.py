"""Journals in PostgreSQL, as readers see them: heads, offsets, events a page at a time; and their snapshots.

A snapshot is saved in one transaction under two advisory locks. One lock is the journal's: its savers take turns. The
other is the partition's: savers share it, and a replicator that applies a purge takes it exclusively. So a purge is
either applied before the save checks the journal's life, or finds what was saved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, timedelta
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import IsolationLevel

from inorder.database import sql
from inorder.database.pool import Pool
from inorder.database.postgres import connect, install, postgres_errors
from inorder.journal.audit.findings import StoredRow, StoredState
from inorder.journal.replication.actions import shorten_id
from inorder.journal.replication.store_port import parked_error
from inorder.journal.segments import journal_segment, segment_size
from inorder.journal.snapshots import LifeAtMark, SnapshotRow, place_snapshot, purged_error, select_snapshots
from inorder.journal.stores.ports import Expiry, JournalFilter, JournalHead, ListedJournal, TopicIncarnation
from inorder.journal.stores.rows import (
    EventColumns,
    SnapshotColumns,
    require_unique,
    snapshot_columns,
    stored_event,
    stored_snapshot,
)
from inorder.model.errors import ConfigurationError
from inorder.model.journal import EventRecord, Key, PartitionOffset, SeqNr, Snapshot, SnapshotCriteria

SCHEMA_VERSION: Final = 8
"""The number of the original's last migration, whose tables these are."""
PAGE: Final = 1_000
MAX_INDEXED_BYTES: Final = 2_000
"""Of an id, next to a topic of up to 249 bytes."""

_STATEMENTS = sql.load("inorder.journal", "sql/postgres/journal.sql")


class _Place(NamedTuple):
    """A row in the order of the table's key."""

    segment: int
    seq_nr: int
    timestamp: Any


class PostgresJournal:
    """An `EventualJournal`; each call borrows a connection, and a stream borrows one for each page."""

    def __init__(self, url: str, *, application_name: str = "inorder journal", page: int = PAGE) -> None:
        self._page = page
        self._pool: Pool[psycopg.Connection[Any]] = Pool(
            # Any server will do: the journal reads from Kafka what its store does not have yet.
            lambda: connect(url, application_name, autocommit=True, is_primary=False),
            lambda connection: connection.close(),
        )

    def install(self) -> list[str]:
        """Creates the tables that do not exist; safe to run at every start. Returns the statements that were run."""
        made = journal_tables()
        with self._pool.lent() as connection, postgres_errors(), connection.transaction():
            install(connection, made)
        return made

    def identity(self) -> str | None:
        rows = self._rows("identity")
        return str(rows[0][0]) if rows else None

    def pointer(self, key: Key) -> JournalHead | None:
        parked = quarantine_id(key.id)
        *head, partition, offset = self._rows("head", topic=key.topic, id=key.id, quarantine_id=parked)[0]
        if offset is not None:
            raise parked_error(key, partition, offset)
        return None if head[0] is None else head_of(head)

    def offset(self, topic: str, partition: int) -> int | None:
        rows = self._rows("offset", topic=topic, partition=partition)
        return int(rows[0][0]) if rows else None

    def incarnation(self, topic: str) -> TopicIncarnation | None:
        try:
            rows = self._rows("incarnation", topic=topic)
        except ConfigurationError:
            if self._rows("has_incarnations")[0][0]:
                raise
            return None  # of an earlier version; `install` creates it
        return TopicIncarnation(*rows[0]) if rows else None

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        first = max(from_seq_nr, (head.delete_to or 0) + 1)
        place = _Place(journal_segment(first, head.segment_size), first - 1, "infinity")
        before = 0
        while place.seq_nr < head.seq_nr:
            rows = self._events(key, head, place)
            for row in rows:
                place = _Place(*row[:3])
                require_unique(key, before, place.seq_nr)
                before = place.seq_nr
                yield stored_event(*row[1:])
            if len(rows) < self._page:
                return

    def ids(self, topic: str) -> Iterator[str]:
        """Ascending."""
        return (id for (id,) in self._pages("ids", topic=topic))

    def journals(self, topic: str, where: JournalFilter) -> Iterator[ListedJournal]:
        """Ascending by id; by an index where a day is given."""
        if where.created is not None:
            rows = self._pages("listed_created", topic=topic, day=where.created)
        elif where.expires is not None:
            rows = self._pages("listed_expires", topic=topic, day=where.expires)
        else:
            rows = self._pages("listed", topic=topic)
        return filter(where.fits, map(_listed, rows))

    def expired(self, topic: str, before: date) -> Iterator[str]:
        """The ids of the journals that expired before a day, ascending."""
        return (id for (id,) in self._pages("expired", topic=topic, before=before))

    def close(self) -> None:
        self._pool.close()

    def _events(self, key: Key, head: JournalHead, place: _Place) -> list[tuple[Any, ...]]:
        return self._rows(
            "events",
            topic=key.topic,
            id=key.id,
            **place._asdict(),
            last_segment=journal_segment(head.seq_nr, head.segment_size),
            last_seq_nr=head.seq_nr,
            record_id=head.record_id,
            limit=self._page,
        )

    def _pages(self, statement: str, **bound: Any) -> Iterator[tuple[Any, ...]]:
        """Rows that begin with an id, in its order."""
        above = ""
        while rows := self._rows(statement, **bound, above=above, limit=self._page):
            yield from rows
            above = rows[-1][0]

    def _rows(self, statement: str, **bound: Any) -> list[tuple[Any, ...]]:
        with journal_errors(), self._pool.lent() as connection:
            return connection.execute(_STATEMENTS[statement], bound, binary=True).fetchall()


def _listed(row: tuple[Any, ...]) -> ListedJournal:
    id, seq_nr, delete_to, created, updated, origin, expires = row
    return ListedJournal(id, seq_nr, delete_to, created.astimezone(UTC), updated.astimezone(UTC), origin, expires)


def quarantine_id(id: str) -> str:
    """The id of a journal in the table `quarantine`: a long one is cut.

    An index of PostgreSQL holds no more than 2,704 bytes in a row, so a journal with a longer id is parked; it must be
    possible to write that down.
    """
    return id if len(id.encode()) <= MAX_INDEXED_BYTES else shorten_id(id)


@contextmanager
def journal_errors() -> Iterator[None]:
    """`postgres_errors` with hints about the journal's tables."""
    try:
        with postgres_errors():
            yield
    except ConfigurationError as error:
        hint = "Check journal.store and its permissions; `inorder schema install --layout journal` creates its tables."
        raise ConfigurationError(error.message, hint=hint) from error


def journal_tables() -> list[str]:
    """The DDL of all tables of the journal."""
    names = [name for name in _STATEMENTS if name.startswith("install_")]
    return [_STATEMENTS.render(name, version=str(SCHEMA_VERSION)) for name in names]


def head_of(row: Sequence[Any]) -> JournalHead:
    """The head of a row, in the order of the statements `head` and `heads`."""
    partition, offset, size, seq_nr, delete_to, expire_after, expire_on, record_id = row
    expiry = Expiry(expire_after, expire_on) if isinstance(expire_after, timedelta) and expire_on else None
    return JournalHead(PartitionOffset(partition, offset), segment_size(size), seq_nr, delete_to, expiry, record_id)


class PostgresJournalRows:
    """A `JournalRows` on one connection, next to a reader: every row, page by page."""

    def __init__(self, url: str, *, page: int = PAGE) -> None:
        self._url = url
        self._page = page
        self._journal = PostgresJournal(url, application_name="inorder audit")
        self._connection: psycopg.Connection[Any] | None = None

    def states(self, keys: Sequence[Key]) -> Mapping[Key, StoredState]:
        if not keys:
            return {}
        topic, bound = keys[0].topic, {"topic": keys[0].topic, "ids": [key.id for key in keys]}
        waiting = defaultdict[str, set[PartitionOffset]](set)
        by_id = {quarantine_id(key.id): key.id for key in keys}
        for id, partition, offset in self._fetch(_STATEMENTS["waiting"], topic=topic, ids=list(by_id)):
            waiting[by_id[id]].add(PartitionOffset(partition, offset))
        heads = {id: head_of(row) for id, *row in self._fetch(_STATEMENTS["heads"], **bound)}
        ids = waiting.keys() | heads.keys()
        return {Key(id, topic): StoredState(heads.get(id), frozenset(waiting.get(id, ()))) for id in ids}

    def rows(self, key: Key, head: JournalHead | None) -> Iterator[StoredRow]:  # noqa: ARG002 - here all are found
        place: tuple[Any, ...] = (-1, 0, "-infinity")
        while rows := self._page_of(key, *place):
            yield from map(_row, rows)
            if len(rows) < self._page:
                return
            place = rows[-1][:3]

    def offset(self, topic: str, partition: int) -> int | None:
        return self._journal.offset(topic, partition)

    def ids(self, topic: str) -> Iterator[str]:
        return self._journal.ids(topic)

    def close(self) -> None:
        self._journal.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _page_of(self, key: Key, segment: int, seq_nr: int, timestamp: Any) -> list[tuple[Any, ...]]:
        place = {"segment": segment, "seq_nr": seq_nr, "timestamp": timestamp}
        return self._fetch(_STATEMENTS["rows"], topic=key.topic, id=key.id, **place, limit=self._page)

    def _fetch(self, statement: str, **bound: Any) -> list[tuple[Any, ...]]:
        with postgres_errors():
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._url, "inorder audit", autocommit=True, is_primary=False)
            return self._connection.execute(statement, bound, binary=True).fetchall()


def _row(row: tuple[Any, ...]) -> StoredRow:
    segment, seq_nr, timestamp, record_id, *rest = row
    found = EventColumns(*rest)
    return StoredRow(segment, seq_nr, timestamp, record_id, found._replace(tags=frozenset(found.tags)))


_SNAPSHOTS = sql.load("inorder.journal", "sql/postgres/snapshots.sql")

Connection = psycopg.Connection[Any]


class PostgresSnapshots:
    """A `SnapshotStore`; each call borrows a connection."""

    def __init__(self, url: str, *, application_name: str = "inorder snapshots") -> None:
        self._pool: Pool[Connection] = Pool(lambda: _open(url, application_name), lambda connection: connection.close())

    def rows(self, key: Key) -> list[SnapshotRow]:
        with journal_errors(), self._pool.lent() as connection:
            return _rows(connection, key)

    def load(self, key: Key, row: SnapshotRow) -> Snapshot | None:
        with journal_errors(), self._pool.lent() as connection:
            found = _execute(connection, "load", key, row.place, slot=row.slot).fetchone()
        return None if found is None else stored_snapshot(SnapshotColumns(*found))

    def save(self, key: Key, snapshot: Snapshot, size: int, send_mark: Callable[[], LifeAtMark]) -> bool:
        columns, at_mark = snapshot_columns(snapshot), send_mark()
        with self._locked(key, at_mark) as connection:
            _require_same_life(connection, key, at_mark)
            placed = place_snapshot(_rows(connection, key), at_mark, snapshot.seq_nr, snapshot.timestamp, size)
            if placed is None:
                return False
            _execute(connection, "delete", key, slots=list(placed.emptied))
            about = {"slot": placed.slot, "life": at_mark.stored_life, **columns._asdict()}
            _execute(connection, "save", key, at_mark.place, **about)
        return True

    def delete(self, key: Key, criteria: SnapshotCriteria, send_mark: Callable[[], LifeAtMark]) -> int:
        at_mark = send_mark()
        with self._locked(key, at_mark) as connection:
            going = select_snapshots(_rows(connection, key), at_mark, criteria)
            _execute(connection, "delete", key, slots=[row.slot for row in going])
        return len(going)

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _locked(self, key: Key, at_mark: LifeAtMark) -> Iterator[Connection]:
        with journal_errors(), self._pool.lent() as connection, connection.transaction():
            # A separate statement: the next one must see what the last holder committed.
            _execute(connection, "lock", key, PartitionOffset(at_mark.place.partition, 0))
            yield connection


def _open(url: str, application_name: str) -> Connection:
    connection = connect(url, application_name, autocommit=True)
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    return connection


def _rows(connection: Connection, key: Key) -> list[SnapshotRow]:
    found = _execute(connection, "rows", key).fetchall()
    return [
        SnapshotRow(slot, seq_nr, timestamp, PartitionOffset(partition, offset), life)
        for slot, seq_nr, timestamp, partition, offset, life in found
    ]


def _require_same_life(connection: Connection, key: Key, at_mark: LifeAtMark) -> None:
    [(replicated, is_there, life)] = _execute(connection, "life", key, at_mark.place).fetchall()
    # A purge after the mark that is not replicated yet will find the snapshot.
    has_passed = replicated is not None and replicated >= at_mark.place.offset
    if has_passed and not (is_there and life == at_mark.life):
        raise purged_error(key)


def _execute(
    connection: Connection, name: str, key: Key, place: PartitionOffset | None = None, **bound: Any
) -> psycopg.Cursor[Any]:
    at = {} if place is None else {"partition": place.partition, "offset": place.offset}
    return connection.execute(_SNAPSHOTS[name], {"topic": key.topic, "id": key.id, **at, **bound}, binary=True)
