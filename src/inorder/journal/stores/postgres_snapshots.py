"""Snapshots in PostgreSQL: a save is one transaction under two advisory locks.

One lock is the journal's: its savers take turns. The other is the partition's: savers share it, and a replicator that
applies a purge takes it exclusively. So a purge is either applied before the save checks the journal's life, or finds
what was saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import IsolationLevel

from inorder.database import sql
from inorder.database.pool import Pool
from inorder.database.postgres import connect
from inorder.journal.snapshots import LifeAtMark, SnapshotRow, place_snapshot, purged_error, select_snapshots
from inorder.journal.stores.postgres import journal_errors
from inorder.journal.stores.rows import SnapshotColumns, snapshot_columns, stored_snapshot
from inorder.model.journal import Key, PartitionOffset, Snapshot, SnapshotCriteria

_STATEMENTS = sql.load("inorder.journal", "sql/postgres/snapshots.sql")

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
    return connection.execute(_STATEMENTS[name], {"topic": key.topic, "id": key.id, **at, **bound}, binary=True)
