"""Retention of published rows in PostgreSQL: moved to an archive, dropped by whole days, replayed on request.

The archive of `outbox` is `outbox_published`, with a partition for each day of publishing (UTC) that is named like
`outbox_published_20260131`. The statement that purges a row moves it, so it is in one of the two tables at any moment.
The instance that purges creates the partitions of today and tomorrow; its clock decides which day it is, and the same
time is written into the rows. The clock of the database decides which days are old, so an instance whose own clock is
ahead drops nothing early.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, cast

import psycopg

from inorder.database import sql
from inorder.database.postgres import PostgresReconnecting, connect, install, one_installer, postgres_errors

_STATEMENTS = sql.load("inorder.outbox", "sql/postgres/retention.sql")
_DAY: Final = re.compile(r"_published_(\d{8})\Z")
_ONE_DAY: Final = timedelta(days=1)

Connection = psycopg.Connection[Any]


def utc_now() -> datetime:
    """The default clock."""
    return datetime.now(UTC)


def archive_of(table: str) -> str:
    """The name of the archive of an outbox table."""
    return f"{table}_published"


def archive_statements(table: str) -> list[str]:
    """The DDL of the archive, without its partitions, and of the list of copies."""
    return [_render("install_archive", table), _render("install_replayed", table)]


class Archive:
    """Moves rows of one outbox table; used by one thread."""

    def __init__(self, table: str, clock: Callable[[], datetime] = utc_now) -> None:
        self._table = table
        self._clock = clock
        self._statement = _render("archive", table)
        self._ready: date | None = None

    def move(self, connection: Connection, bound: Mapping[str, Any]) -> int:
        """Archives rows in one statement that commits by itself; returns how many. `bound` is what a purge binds."""
        now = self._clock()
        if self._ready != now.date():
            self._prepare(connection, now.date())
        try:
            return self._execute(connection, bound, now)
        except psycopg.errors.CheckViolation:  # the prepared partition was dropped
            self._prepare(connection, now.date())
            return self._execute(connection, bound, now)

    def _execute(self, connection: Connection, bound: Mapping[str, Any], now: datetime) -> int:
        return connection.execute(self._statement, {**bound, "now": now}, binary=True).rowcount

    def _prepare(self, connection: Connection, today: date) -> None:
        prepare(connection, self._table, today)
        self._ready = today


class Retention:
    """Creates and drops partitions; any number of instances may do so concurrently."""

    def __init__(self, url: str, table: str, *, retention_days: int) -> None:
        """Keeps `retention_days` whole days before the current one."""
        self._table = table
        self._days = retention_days
        self._connecting = PostgresReconnecting(url, "inorder relay (retention)")

    def keep(self, today: date) -> list[str]:
        """The daily task: creates partitions ahead and drops those that are too old; returns the latter."""
        self.prepare(today)
        return self.drop_before(today - timedelta(days=self._days))

    def today(self) -> date:
        """The day by the clock of the database."""
        with self._connecting.use() as connection:
            [(day,)] = connection.execute(_STATEMENTS["today"]).fetchall()
        return cast("date", day)

    def prepare(self, today: date) -> None:
        """Creates the archive and its partitions of today and tomorrow, if they do not exist."""
        with self._connecting.use() as connection:
            prepare(connection, self._table, today)

    def drop_before(self, day: date) -> list[str]:
        """Drops the partitions of earlier days and returns their names; raises `TransientError` if one is in use."""
        with self._connecting.use() as reused, one_installer(reused) as connection:
            connection.execute(_STATEMENTS["lock_briefly"])
            old = [name for name in _partitions(connection, self._table) if _day_of(name) < day]
            for name in old:
                connection.execute(_render("drop_partition", self._table, partition=_beside(self._table, name)))
            return old

    def close(self) -> None:
        self._connecting.close()


def prepare(connection: Connection, table: str, today: date) -> None:
    """Creates the archive of a table and its partitions of today and tomorrow, if they do not exist."""
    with one_installer(connection):
        install(connection, archive_statements(table))
        for day in (today, today + _ONE_DAY):
            _make_partition(connection, table, day)


def replay(
    url: str,
    table: str,
    *,
    key: bytes | None = None,
    topic: str | None = None,
    since: datetime | None = None,
    dry_run: bool = False,
) -> int:
    """Copies archived rows into the outbox, in id order and in one transaction; returns how many.

    They are published in that order, after everything that already waits. `since` is the time of publishing.
    Copies are archived when they are published, like any row, and are not copied again: `<table>_replayed` has their
    ids. So a replay puts back what was published once, however often it was replayed before.
    """
    wanted = {"key": key, "topic": topic, "since": since}
    with postgres_errors(), connect(url, "inorder outbox replay") as connection:
        install(connection, archive_statements(table))
        if dry_run:
            row = connection.execute(_render("count_archived", table), wanted).fetchone()
            return int(row[0]) if row else 0
        connection.execute(_render("forget_replayed", table))
        count = connection.execute(_render("replay", table), wanted).rowcount
        connection.execute(_STATEMENTS["wake"], {"table": sql.quoted(table)})
        return count


def _make_partition(connection: Connection, table: str, day: date) -> None:
    partition = sql.quoted(f"{archive_of(table)}_{day:%Y%m%d}")
    row = connection.execute(_STATEMENTS["has_partition"], {"partition": partition}).fetchone()
    if row and row[0]:
        return
    connection.execute(_render("make_partition", table, partition=partition))
    days = {"day": day.isoformat(), "next_day": (day + _ONE_DAY).isoformat()}
    connection.execute(_render("attach_partition", table, partition=partition, **days))


def _partitions(connection: Connection, table: str) -> list[str]:
    found = connection.execute(_STATEMENTS["partitions"], {"archive": sql.quoted(archive_of(table))})
    return [name for (name,) in found if _DAY.search(name)]


def _day_of(partition: str) -> date:
    found = _DAY.search(partition)
    assert found is not None  # noqa: S101 - only names that match get here
    return datetime.strptime(found[1], "%Y%m%d").replace(tzinfo=UTC).date()


def _beside(table: str, name: str) -> str:
    """A quoted name in the schema of the table."""
    schema, dot, _ = table.rpartition(".")
    return sql.quoted(f"{schema}{dot}{name}")


def _render(name: str, table: str, **identifiers: str) -> str:
    names = {
        "table": sql.quoted(table),
        "archive": sql.quoted(archive_of(table)),
        "replayed": sql.quoted(f"{table}_replayed"),
    }
    if name in ("count_archived", "replay"):
        names["wanted"] = _STATEMENTS.render("wanted", archive=names["archive"], replayed=names["replayed"])
    return _STATEMENTS.render(name, **names, **identifiers)
