"""An outbox table in PostgreSQL, as the relay reads, marks, purges and sleeps on it.

**Sleeping until a publisher notifies.** A sleeping relay holds the advisory lock of the table exclusively and listens
on its channel. A publisher that finds the lock held notifies the channel (`append` in
`outbox/layouts/native/postgres.sql`); one that does not takes a share of it until its commit, and while such shares
are held no relay can fall asleep.

With several shards several loops sleep at once, on one lock. A notification reaches every listener, so it is enough
that one of them holds it; the others see that it is held and sleep too. When the holder wakes it releases the lock and
**then** notifies, in one statement: the others read the table once more, because a publisher in between notified no
one, and one of them takes the lock.

| what                                      | then                                                               |
|---|---|
| the holder ends between our try and check | no lock is seen: we stay awake and try again                       |
| the holder ends after our check           | its notification is on its way to us                               |
| the holder dies                           | nothing notifies; the others read the table after their wait       |
| our own notification comes back to us     | it names the process that sent it, and is ignored                  |
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg.errors import ObjectNotInPrerequisiteState

from inorder.database import sql
from inorder.database.postgres import PostgresReconnecting, is_pooled
from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.model.partitioning import Shard
from inorder.outbox import layouts
from inorder.outbox.layouts import Layout
from inorder.outbox.stores.retention import Archive
from inorder.relay.stores.outbox_store import (
    NONE_HELD,
    PARTS,
    WHOLE,
    WRITTEN_ANEW,
    ById,
    Complete,
    complete,
    fragments,
    marked_page,
    most_a_row,
    others_to,
    refuse_unmarkable,
    shard_page,
    whole_page,
)
from inorder.relay.stores.ports import LAST_ID, Origin, Page, Scan

_STATEMENTS = sql.load("inorder.relay", "sql/postgres/outbox.sql")
_MARKS = sql.load("inorder.relay", "sql/postgres/marks.sql")
_SLEEP_STATEMENTS = sql.load("inorder.relay", "sql/postgres/sleep.sql")

Connection = psycopg.Connection[Any]


class PostgresSleeping:
    """Sleeps with the listener of the connection that is used; each new connection gets a new one.

    Through a pooler there is none: the lock would stay with a session that others use, and notifications go nowhere.
    """

    _reading: PostgresReconnecting
    _listening: PublisherListener | None = None

    def begin_sleep(self) -> bool:
        with self._reading.use():
            return self._listening is not None and self._listening.begin()

    def wait(self, seconds: float) -> bool:
        with self._reading.use():
            if self._listening is not None:
                return self._listening.wait(seconds)
        time.sleep(seconds)
        return False

    def end_sleep(self) -> None:
        """With a broken connection the lock is already gone."""
        with self._reading.use():
            if self._listening is not None:
                self._listening.end()

    def _listen(self, connection: Connection, table: str, *, hands_over: bool) -> None:
        self._listening = None
        if not is_pooled(connection):
            self._listening = PublisherListener(connection, table, hands_over=hands_over)


class PostgresOutboxStore(PostgresSleeping):
    """An `OutboxStore` and a `MarkStore` on two connections: one reads, marks and listens, one purges."""

    def __init__(
        self,
        url: str,
        table: str,
        *,
        layout: str = "native",
        shard: Shard = WHOLE,
        archive: bool = False,
        is_primary: bool = True,
    ) -> None:
        """With `archive`, purged rows are kept (`outbox/stores/retention.py`). A replica is only read."""
        self._table = sql.quoted(table)
        self._layout = layouts.layout(layout, "postgresql")
        self._shard = shard
        self._statements = render_statements(table, self._layout, shard)
        self._is_primary = is_primary
        self._incarnation: int | None = None
        self._purging = PostgresReconnecting(
            url, "inorder relay (purge)", is_primary=is_primary, on_open=self._prepare_purging
        )
        self._reading = PostgresReconnecting(
            url,
            "inorder relay (read)",
            is_primary=is_primary,
            follows=self._purging if is_primary else None,
            on_open=self._prepare_reading,
        )
        if archive and layout != "native":
            raise ConfigurationError(
                f"Published rows of the layout {layout!r} cannot be kept.",
                hint="Only the layout native has an archive.",
            )
        self._archive = Archive(table) if archive else None

    def read(self, scan: Scan, limit: int) -> Page:
        bound: dict[str, Any] = {"above": scan.above, "limit": limit, "probes": list(scan.probes)}
        bound |= {"others_to": others_to(scan), "most": most_a_row(scan, limit)}
        with self._reading.use() as connection:
            if self._shard.is_whole:
                found = self._execute(connection, "read_with_probes" if scan.probes else "read", bound)
                return whole_page(self._complete(connection, found, scan.max_bytes, scan.held), scan, limit)
            ours, others, top = self._read_shard(connection, "walk_shard" if scan.walk else "read_shard", bound)
            return shard_page(self._complete(connection, ours, scan.max_bytes, scan.held), others, top, scan, limit)

    def holders(self) -> frozenset[str]:
        """Virtual transaction ids that hold the lock which every INSERT takes before it takes an id."""
        with self._reading.use() as connection:
            found = connection.execute(self._statements["holders"], {"table": self._table})
            return frozenset(row[0] for row in found)

    def purge(self, ids: Sequence[int], session: int | None = None) -> int:
        """Deletes or archives in one statement that commits by itself."""
        if not ids:
            return 0
        with self._purging.use(session) as connection:
            bound = {"ids": list(ids), "table": self._table, "incarnation": self._incarnation}
            if self._archive is not None:
                purged = self._archive.move(connection, bound)
            else:
                purged = connection.execute(self._statements["purge"], bound, binary=True).rowcount
            if not purged and self._find_incarnation(connection) != self._incarnation:
                raise UnreachableError(WRITTEN_ANEW.format(table=self._table))
            return purged

    def session(self) -> int | None:
        return self._purging.session()

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        if not ids:
            return Page([])
        with self._purging.use() as connection:
            found = self._by_id(connection, ids, max_bytes // len(ids))
            return marked_page(self._complete(connection, found, max_bytes))

    def origin(self) -> Origin:
        """The system identifier with the time line, which a promotion changes; and the sequence of the id."""
        return self._origin(self._purging)

    def begin_reads(self) -> Origin:
        self._reading.pin()
        return self._origin(self._reading)

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0, max_bytes: int = LAST_ID) -> Page:
        """One statement that commits by itself."""
        return self._mark("mark", {"leader_id": leader_id, "above": above}, limit, max_bytes)

    def mark_again(self, leader_id: UUID, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        """One statement that commits by itself."""
        if not ids:
            return Page([])
        return self._mark("mark_again", {"leader_id": leader_id, "ids": list(ids)}, len(ids) + 1, max_bytes)

    def reset(self, leader_id: UUID) -> int:
        """Reads the whole table, because no index knows marks."""
        refuse_unmarkable(self._layout)
        self._reading.unpin()
        with self._reading.use() as connection:
            return connection.execute(self._statements["reset"], {"leader_id": leader_id}).rowcount

    def begin_sleep(self) -> bool:
        """Publishers of other layouts than `native` never notify."""
        return self._layout.wakes_us and super().begin_sleep()

    def close(self) -> None:
        self._reading.close()
        self._purging.close()

    def _origin(self, connecting: PostgresReconnecting) -> Origin:
        with connecting.use() as connection:
            server = self._ask(connection, "server")
            return Origin(server, self._ask(connection, "last_id", table=self._table, id=self._layout.id))

    def _ask(self, connection: Connection, name: str, **bound: Any) -> Any:
        """The only value of a statement; None where the server does not know it, or does not tell us."""
        try:
            found = connection.execute(self._statements[name], bound).fetchone()
        except (psycopg.ProgrammingError, psycopg.NotSupportedError, ObjectNotInPrerequisiteState):
            return None
        return None if found is None else found[0]

    def _read_shard(
        self, connection: Connection, name: str, bound: dict[str, Any]
    ) -> tuple[list[Sequence[Any]], list[int], int]:
        """Our rows, the ids of others, and the largest id of the table."""
        ours: list[Sequence[Any]] = []
        others, top = list[int](), 0
        for found in self._execute(connection, name, bound):
            if found[0] is None:
                ours.append(found[2:])
            else:
                others, top = sorted(found[0]), found[1] or 0
        return ours, others, top

    def _mark(self, name: str, bound: dict[str, Any], limit: int, max_bytes: int) -> Page:
        refuse_unmarkable(self._layout)
        with self._reading.use() as connection:
            found = self._execute(connection, name, bound | {"limit": limit, "most": max_bytes // limit})
            return marked_page(self._complete(connection, found, max_bytes), limit)

    def _complete(
        self, connection: Connection, found: Sequence[Sequence[Any]], max_bytes: int, held: frozenset[int] = NONE_HELD
    ) -> Complete:
        by_id = ById(
            self._layout.decode,
            found=lambda ids, most: self._by_id(connection, ids, most),
            sizes=lambda ids: {row[0]: row[1] for row in self._execute(connection, "sizes", {"probes": list(ids)})},
        )
        return complete(found, max_bytes, by_id, held)

    def _by_id(self, connection: Connection, ids: Sequence[int], most: int) -> Sequence[Sequence[Any]]:
        bound = {"probes": list(ids), "above": LAST_ID, "limit": 1, "most": most}
        return self._execute(connection, "read_with_probes", bound) if ids else []

    def _execute(self, connection: Connection, name: str, parameters: dict[str, Any]) -> Sequence[Sequence[Any]]:
        # All at once: a cursor that is iterated over runs a line of Python for each row.
        return connection.execute(self._statements[name], parameters, binary=True).fetchall()

    def _find_incarnation(self, connection: Connection) -> int | None:
        found = connection.execute(self._statements["incarnation"], {"table": self._table}).fetchone()
        return None if found is None else found[0]

    def _prepare_purging(self, connection: Connection) -> None:
        self._prepare(connection)
        if self._is_primary:
            self._incarnation = self._find_incarnation(connection)

    def _prepare(self, connection: Connection) -> None:
        if not is_pooled(connection):
            connection.execute(self._statements["plan_by_index"])

    def _prepare_reading(self, connection: Connection) -> None:
        self._prepare(connection)
        if self._is_primary:  # a replica cannot listen
            self._listen(connection, self._table, hands_over=not self._shard.is_whole)


class PostgresSleeper(PostgresSleeping):
    """A `Sleeper` on its own connection, for `topic-lock`; others of its kind may sleep on the same table."""

    def __init__(self, url: str, table: str) -> None:
        self._table = sql.quoted(table)
        self._reading = PostgresReconnecting(url, "inorder relay (sleep)", on_open=self._prepare)

    def close(self) -> None:
        self._reading.close()

    def _prepare(self, connection: Connection) -> None:
        self._listen(connection, self._table, hands_over=True)


def render_statements(table: str, layout: Layout, shard: Shard) -> dict[str, str]:
    """The statements of a store, with the fragments of its layout and its shard put in."""
    named = {**_STATEMENTS, **(_MARKS if layout.leader_id is not None else {})}
    parts = fragments(_STATEMENTS, layout, table, shard)
    return {name: statement.format(**parts) for name, statement in named.items() if name not in PARTS}


class PublisherListener:
    """Sleeps on one connection; a new connection needs a new listener."""

    def __init__(self, connection: psycopg.Connection[Any], table: str, *, hands_over: bool) -> None:
        """`table` is quoted; with `hands_over` there may be other sleepers that rely on our lock."""
        self._connection = connection
        self._end = _SLEEP_STATEMENTS["hand_over" if hands_over else "end_sleep"]
        lock, channel = self._fetch("wake_up", {"table": table})
        self._key = {"lock": lock, "channel": channel}
        self._holds = False
        connection.execute(f"LISTEN {sql.quoted(channel)}")

    def begin(self) -> bool:
        """Whether publishers notify from now on, because of our lock or that of another sleeper."""
        self._holds = bool(self._fetch("begin_sleep", self._key)[0])
        return self._holds or bool(self._fetch("another_sleeps", self._key)[0])

    def wait(self, seconds: float) -> bool:
        """Waits for a notification that is not our own; the driver keeps those received during earlier statements."""
        own, until = self._connection.info.backend_pid, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            # All that arrived together: one read of the table answers all of them.
            heard = {notification.pid for notification in self._connection.notifies(timeout=left, stop_after=1)}
            if heard - {own}:
                return True
        return False

    def end(self) -> None:
        """Releases the lock, if we hold it."""
        if self._holds:
            self._holds = False
            self._connection.execute(self._end, self._key)

    def _fetch(self, name: str, parameters: dict[str, Any]) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._connection.execute(_SLEEP_STATEMENTS[name], parameters).fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM has one row
        return row
