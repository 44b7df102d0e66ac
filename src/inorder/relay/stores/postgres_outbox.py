"""An outbox table in PostgreSQL, as the relay reads, marks, purges and sleeps on it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID

import psycopg

from inorder.database import sql
from inorder.database.postgres import PostgresReconnecting, postgres_errors
from inorder.model.errors import ConfigurationError
from inorder.model.outbox_row import OutboxRow
from inorder.model.partitioning import Shard
from inorder.outbox import layouts
from inorder.outbox.layouts import Layout
from inorder.outbox.stores.retention import Archive
from inorder.relay.stores.outbox_store import WHOLE, fragments, others_to, page_of, refuse_unmarkable, whole_page
from inorder.relay.stores.ports import Page, Scan

# A connection that does nothing but wait for publishers.


class Sleeping(ABC):
    """What all that sleep on a connection do alike."""

    def wait(self, seconds: float) -> bool:
        """Until somebody notifies, or the time is over."""
        with postgres_errors():
            return self._sleeping().wait(seconds)

    def end_sleep(self) -> None:
        """Asks publishers no more; with a broken connection the lock is gone already."""
        with postgres_errors():
            self._sleeping().end()

    @abstractmethod
    def _sleeping(self) -> Sleep:
        """The sleep on the connection that there is now."""


class PostgresSleeper(Sleeping):
    """A `Sleeper` beside a store; others of its kind may sleep on the same table."""

    def __init__(self, url: str, table: str) -> None:
        self._table = sql.quoted(table)
        self._connecting = PostgresReconnecting(url, "inorder relay (sleep)")
        self._sleep: Sleep | None = None

    def begin_sleep(self) -> bool:
        """Asks publishers to notify."""
        with postgres_errors():
            return self._sleeping().begin()

    def close(self) -> None:
        """Closes the connection."""
        self._connecting.close()

    def _sleeping(self) -> Sleep:
        connection, is_new = self._connecting.get()
        if self._sleep is None or is_new:
            self._sleep = Sleep(connection, self._table, hands_over=True)
        return self._sleep


_STATEMENTS = sql.load("inorder.relay", "sql/postgres/outbox.sql")
_MARKS = sql.load("inorder.relay", "sql/postgres/marks.sql")

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
        self._reading = PostgresReconnecting(url, "inorder relay (read)")
        self._purging = PostgresReconnecting(url, "inorder relay (purge)")
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
        with postgres_errors():
            found = self._found("read_with_probes" if scan.probes else "read", parameters)
            return whole_page(found, scan, limit, self._layout.decode)

    def holders(self) -> frozenset[str]:
        """Virtual transaction ids that hold the lock which every INSERT takes before it takes an id."""
        with postgres_errors():
            found = self._reader().execute(self._statements["holders"], {"table": self._table})
            return frozenset(row[0] for row in found)

    def purge(self, ids: Sequence[int]) -> int:
        """Deletes or archives by id, in one statement that commits by itself."""
        if not ids:
            return 0
        with postgres_errors():
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
        with postgres_errors():
            return self._reader().execute(self._statements["reset"], {"leader_id": leader_id}).rowcount

    def begin_sleep(self) -> bool:
        """Asks publishers to notify; those of other layouts than ours never do."""
        with postgres_errors():
            return self._layout.wakes_us and self._sleeping().begin()

    def close(self) -> None:
        """Closes both connections."""
        self._reading.close()
        self._purging.close()

    def _told(self, name: str, parameters: dict[str, Any]) -> tuple[list[OutboxRow], list[int], int]:
        """Our rows, the ids of others, and the largest id that the statement tells."""
        ours: list[Sequence[Any]] = []
        others, top = list[int](), 0
        with postgres_errors():
            for found in self._found(name, parameters):
                if found[0] is None:
                    ours.append(found[2:])
                else:
                    others, top = sorted(found[0]), found[1] or 0
        return self._in_order(ours), others, top

    def _mark(self, name: str, parameters: dict[str, Any]) -> list[OutboxRow]:
        refuse_unmarkable(self._layout)
        with postgres_errors():
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


# Sleeping until a publisher wakes us, on PostgreSQL.
#
# A sleeping relay holds the advisory lock of the table exclusively and listens on its channel. A publisher that finds
# the lock held notifies the channel (`append` in `outbox/layouts/native/postgres.sql`); one that does not takes a
# share of it until its commit, and while such shares are out nobody can fall asleep.
#
# With several shards several loops sleep at once, on one lock. A notification reaches every listener, so it is enough
# that one of them holds it; the others see that it is held and sleep too. When the holder wakes it gives the lock back
# and **then** notifies, in one statement: the others look at the table once more, since a publisher in between told
# nobody, and one of them takes the lock.
#
# | what                                     | then |
# |---|---|
# | the holder ends between try and look     | no lock is seen: we stay awake and try again |
# | the holder ends after we looked          | its notification is on its way to us |
# | the holder dies                          | nobody notifies; the others look when the time they wait for is over |
# | our own notification comes back to us    | it is told by the process that sent it, and ignored |

_SLEEP_STATEMENTS = sql.load("inorder.relay", "sql/postgres/sleep.sql")


class Sleep:
    """One listener on one connection; a new connection is a new listener."""

    def __init__(self, connection: psycopg.Connection[Any], table: str, *, hands_over: bool) -> None:
        """`table` is quoted; with `hands_over` there may be other sleepers who rely on our lock."""
        self._connection = connection
        self._end = _SLEEP_STATEMENTS["hand_over" if hands_over else "end_sleep"]
        lock, channel = self._one("wake_up", {"table": table})
        self._key = {"lock": lock, "channel": channel}
        self._holds = False
        connection.execute(f"LISTEN {sql.quoted(channel)}")

    def begin(self) -> bool:
        """Whether publishers notify from now on, asked by us or by another sleeper."""
        self._holds = bool(self._one("begin_sleep", self._key)[0])
        return self._holds or bool(self._one("another_sleeps", self._key)[0])

    def wait(self, seconds: float) -> bool:
        """Until somebody else notifies; the driver keeps what came during an earlier statement."""
        own, until = self._connection.info.backend_pid, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            # All that came together: one look at the table answers all of them.
            heard = {notification.pid for notification in self._connection.notifies(timeout=left, stop_after=1)}
            if heard - {own}:
                return True
        return False

    def end(self) -> None:
        """Gives the lock back, where we hold it."""
        if self._holds:
            self._holds = False
            self._connection.execute(self._end, self._key)

    def _one(self, name: str, parameters: dict[str, Any]) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._connection.execute(_SLEEP_STATEMENTS[name], parameters).fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM has one row
        return row
