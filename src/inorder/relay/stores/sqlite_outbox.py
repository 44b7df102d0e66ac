"""An outbox table in an SQLite file, as the relay reads, marks and purges it; for development.

SQLite allows one writing transaction at a time, so ids appear in the order in which they are assigned: no transaction
ever holds an id below one that is visible, and `holders` is always empty. A single SELECT is one snapshot. Lists of ids
are bound as one JSON text, because the number of bound values is limited.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from inorder.database import sql
from inorder.database.sqlite import SQLiteReconnecting
from inorder.model.errors import InorderError, TransientError
from inorder.model.partitioning import Shard, shard_of
from inorder.outbox import layouts
from inorder.relay.stores.outbox_store import (
    NONE_HELD,
    WHOLE,
    ById,
    Complete,
    PollingSleeper,
    bound_ids,
    complete,
    divide,
    fragments,
    marked_page,
    most_a_row,
    others_to,
    refuse_unmarkable,
    shard_page,
    whole_page,
)
from inorder.relay.stores.ports import LAST_ID, Origin, Page, Scan

_STATEMENTS = sql.load("inorder.relay", "sql/sqlite/outbox.sql")
_MARKS = sql.load("inorder.relay", "sql/sqlite/marks.sql")


class SQLiteOutboxStore(PollingSleeper):
    """An `OutboxStore` and a `MarkStore` on two connections: one reads and marks, one purges."""

    def __init__(self, url: str, table: str, *, layout: str = "native", shard: Shard = WHOLE) -> None:
        self._table = table
        self._layout = layouts.layout(layout, "sqlite")
        self._shard = shard
        self._fragments = fragments(_STATEMENTS, self._layout, table, shard)
        self._reading = SQLiteReconnecting(url, "inorder relay (read)", on_open=_define_shard)
        self._purging = SQLiteReconnecting(url, "inorder relay (purge)", on_open=_define_shard)

    def read(self, scan: Scan, limit: int) -> Page:
        bound: dict[str, Any] = {"above": scan.above, "limit": limit, "probes": bound_ids(scan.probes)}
        bound |= {"others_to": others_to(scan), "most": most_a_row(scan, limit)}
        with self._reading.use() as connection:
            found = self._execute(connection, self._scan_name(scan), **bound).fetchall()
            if self._shard.is_whole:
                return whole_page(self._complete(connection, found, scan.max_bytes, scan.held), scan, limit)
            ours, others, top = divide(found)
            return shard_page(self._complete(connection, ours, scan.max_bytes, scan.held), others, top, scan, limit)

    def holders(self) -> frozenset[str]:
        """None: ids appear in order."""
        return frozenset()

    def purge(self, ids: Sequence[int], session: int | None = None) -> int:
        """One statement that commits by itself."""
        if not ids:
            return 0
        with self._purging.use(session) as connection:
            return self._execute(connection, "purge", ids=bound_ids(ids)).rowcount

    def session(self) -> int | None:
        return self._purging.session()

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        if not ids:
            return Page([])
        with self._purging.use() as connection:
            found = self._by_id(connection, ids, max_bytes // len(ids))
            return marked_page(self._complete(connection, found, max_bytes))

    def origin(self) -> Origin:
        """A file has no identity; AUTOINCREMENT keeps the last id in a table, once one was given out."""
        return self._origin(self._purging)

    def begin_reads(self) -> Origin:
        self._reading.pin()
        return self._origin(self._reading)

    def _origin(self, connecting: SQLiteReconnecting) -> Origin:
        try:
            with connecting.use() as connection:
                found = self._execute(connection, "last_id", name=self._table).fetchone()
        except InorderError as error:
            if isinstance(error, TransientError):
                raise
            return Origin()
        return Origin(last_id=0 if found is None else found[0])

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0, max_bytes: int = LAST_ID) -> Page:
        """One statement that commits by itself."""
        return self._mark("mark", leader_id, limit, max_bytes, above=above)

    def mark_again(self, leader_id: UUID, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        """One statement that commits by itself."""
        return self._mark("mark_again", leader_id, len(ids) + 1, max_bytes, ids=bound_ids(ids))

    def reset(self, leader_id: UUID) -> int:
        """Reads the whole table, which is small where SQLite is used."""
        refuse_unmarkable(self._layout)
        self._reading.unpin()
        with self._reading.use() as connection:
            return self._execute(connection, "reset", leader_id=str(leader_id)).rowcount

    def close(self) -> None:
        self._reading.close()
        self._purging.close()

    def _scan_name(self, scan: Scan) -> str:
        if self._shard.is_whole:
            return "read_with_probes" if scan.probes else "read"
        return "walk_shard" if scan.walk else "read_shard"

    def _mark(self, name: str, leader_id: UUID, limit: int, max_bytes: int, **bound: Any) -> Page:
        refuse_unmarkable(self._layout)
        bound |= {"leader_id": str(leader_id), "limit": limit, "most": max_bytes // limit}
        with self._reading.use() as connection:
            found = self._execute(connection, name, **bound).fetchall()
            return marked_page(self._complete(connection, found, max_bytes), limit)

    def _complete(
        self,
        connection: sqlite3.Connection,
        found: Sequence[Sequence[Any]],
        max_bytes: int,
        held: frozenset[int] = NONE_HELD,
    ) -> Complete:
        by_id = ById(
            self._layout.decode,
            found=lambda ids, most: self._by_id(connection, ids, most),
            sizes=lambda ids: dict(self._execute(connection, "sizes", probes=bound_ids(ids)).fetchall()),
        )
        return complete(found, max_bytes, by_id, held)

    def _by_id(self, connection: sqlite3.Connection, ids: Sequence[int], most: int) -> list[Any]:
        bound = {"probes": bound_ids(ids), "above": LAST_ID, "limit": 1, "most": most}
        return self._execute(connection, "read_with_probes", **bound).fetchall()

    def _execute(self, connection: sqlite3.Connection, name: str, /, **bound: Any) -> sqlite3.Cursor:
        statements = _MARKS if name in _MARKS else _STATEMENTS
        return connection.execute(sql.named(statements.render(name, **self._fragments)), bound)


def _define_shard(connection: sqlite3.Connection) -> None:
    connection.create_function("inorder_shard", 4, _shard_of, deterministic=True)


def _shard_of(topic: bytes, key: bytes | None, id: int, count: int) -> int:
    # Text that is not UTF-8 makes a row that is set aside; which shard does that does not matter.
    return shard_of(topic.decode(errors="replace"), key, id, count)
