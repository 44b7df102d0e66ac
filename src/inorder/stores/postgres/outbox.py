"""An outbox table in PostgreSQL, as the relay reads, marks, purges and sleeps on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID

import psycopg

from inorder import sql
from inorder.model.errors import ConfigurationError
from inorder.model.shard import Shard
from inorder.outbox import layouts
from inorder.outbox.layouts import Layout
from inorder.ports.outbox_store import OutboxRow, Page, Scan
from inorder.stores.fragments import WHOLE, fragments, refuse_unmarkable
from inorder.stores.paging import others_to, page_of, whole_page
from inorder.stores.postgres.connect import Reconnecting
from inorder.stores.postgres.retention import Archive
from inorder.stores.postgres.sleep import Sleep
from inorder.stores.postgres.sleeper import Sleeping
from inorder.stores.postgres.sqlstate import our_errors

_STATEMENTS = sql.load("inorder.stores.postgres", "outbox.sql")
_MARKS = sql.load("inorder.stores.postgres", "marks.sql")

Connection = psycopg.Connection[Any]


class PostgresOutboxStore(Sleeping):
    """An `OutboxStore` and a `MarkStore` on two connections: one reads, marks and listens, one purges."""

    def __init__(
        self, url: str, table: str, *, layout: str = "native", shard: Shard = WHOLE, archive: bool = False
    ) -> None:
        """With `archive`, purged rows are kept (`stores/postgres/retention.py`)."""
        self._table = sql.quoted(table)
        self._layout = layouts.layout(layout, "postgresql")
        self._shard = shard
        self._statements = rendered(table, self._layout, shard)
        self._reading = Reconnecting(url, "inorder relay (read)")
        self._purging = Reconnecting(url, "inorder relay (purge)")
        self._sleep: Sleep | None = None
        if archive and layout != "native":
            raise ConfigurationError(
                f"Published rows of the layout {layout!r} cannot be kept.",
                hint="Only the layout native has an archive.",
            )
        self._archive = Archive(table) if archive else None

    def read(self, scan: Scan, limit: int) -> Page:
        """Rows of the scan, in id order, by one statement."""
        parameters = {"above": scan.above, "limit": limit, "probes": list(scan.probes), "others_to": others_to(scan)}
        if not self._shard.is_whole:
            told = self._told("walk_shard" if scan.walk else "read_shard", parameters)
            return page_of(*told, scan, limit)
        with our_errors():
            found = self._found("read_with_probes" if scan.probes else "read", parameters)
            return whole_page(found, scan, limit, self._layout.decode)

    def holders(self) -> frozenset[str]:
        """Virtual transaction ids that hold the lock which every INSERT takes before it takes an id."""
        with our_errors():
            found = self._reader().execute(self._statements["holders"], {"table": self._table})
            return frozenset(row[0] for row in found)

    def purge(self, ids: Sequence[int]) -> int:
        """Deletes or archives by id, in one statement that commits by itself."""
        if not ids:
            return 0
        with our_errors():
            if self._archive is not None:
                return self._archive.move(self._purger(), ids)
            return self._purger().execute(self._statements["purge"], {"ids": list(ids)}, binary=True).rowcount

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0) -> list[OutboxRow]:
        """Claims rows in one statement that commits by itself."""
        return self._mark("mark", {"leader_id": leader_id, "limit": limit, "above": above})

    def mark_again(self, leader_id: UUID, ids: Sequence[int]) -> list[OutboxRow]:
        """Claims rows by id, in one statement that commits by itself."""
        return self._mark("mark_again", {"leader_id": leader_id, "ids": list(ids)}) if ids else []

    def reset(self, leader_id: UUID) -> int:
        """Frees every row of a leader; reads the whole table."""
        refuse_unmarkable(self._layout)
        with our_errors():
            return self._reader().execute(self._statements["reset"], {"leader_id": leader_id}).rowcount

    def begin_sleep(self) -> bool:
        """Asks publishers to notify; those of other layouts than ours never do."""
        with our_errors():
            return self._layout.wakes_us and self._sleeping().begin()

    def close(self) -> None:
        """Closes both connections."""
        self._reading.close()
        self._purging.close()

    def _told(self, name: str, parameters: dict[str, Any]) -> tuple[list[OutboxRow], list[int], int]:
        """Our rows, the ids of others, and the largest id that the statement tells."""
        ours: list[Sequence[Any]] = []
        others, top = list[int](), 0
        with our_errors():
            for found in self._found(name, parameters):
                if found[0] is None:
                    ours.append(found[2:])
                else:
                    others, top = sorted(found[0]), found[1] or 0
        return self._in_order(ours), others, top

    def _mark(self, name: str, parameters: dict[str, Any]) -> list[OutboxRow]:
        refuse_unmarkable(self._layout)
        with our_errors():
            return self._in_order(self._found(name, parameters))

    def _found(self, name: str, parameters: dict[str, Any]) -> Iterable[Sequence[Any]]:
        return self._reader().execute(self._statements[name], parameters, binary=True)

    def _in_order(self, found: Iterable[Sequence[Any]]) -> list[OutboxRow]:
        return sorted(map(self._layout.decode, found), key=attrgetter("id"))

    def _purger(self) -> Connection:
        connection, is_new = self._purging.get()
        if is_new:
            connection.execute(self._statements["plan_by_index"])
        return connection

    def _reader(self) -> Connection:
        connection, is_new = self._reading.get()
        if is_new:
            connection.execute(self._statements["plan_by_index"])
            self._sleep = Sleep(connection, self._table, hands_over=not self._shard.is_whole)
        return connection

    def _sleeping(self) -> Sleep:
        self._reader()
        assert self._sleep is not None  # noqa: S101 - every reader has one
        return self._sleep


def rendered(table: str, layout: Layout, shard: Shard) -> dict[str, str]:
    """The statements of a store, with the fragments of its layout and its shard put in."""
    named = {**_STATEMENTS, **(_MARKS if layout.leader_id is not None else {})}
    parts = fragments(_STATEMENTS, layout, table, shard)
    return {name: statement.format(**parts) for name, statement in named.items() if name != "mine"}
