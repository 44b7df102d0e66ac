"""The database as a verification uses it: an application's connections, and looks at its own rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from inorder.database.database import Database, Dialect, Result, dialect_of, open_database
from inorder.database.sql import load, quoted_table
from inorder.model.errors import ConfigurationError
from inorder.model.message import Message
from inorder.outbox.layouts import layout, lock_table
from inorder.outbox.outbox import Outbox
from inorder.settings.relay import RelaySettings

_NAME: Final = "inorder verify"
_STATEMENTS: Final = load("inorder.verify", "sql/verify.sql")

RowId: TypeAlias = int | str


class ApplicationConnection:
    """A connection that publishes as an application does: in a transaction that it ends itself."""

    def __init__(self, url: str, outbox: Outbox) -> None:
        self._outbox = outbox
        self._connection, self._errors = _connect(url)

    def publish(self, messages: Sequence[Message]) -> None:
        with self._errors():
            self._outbox.publish_list(self._connection, messages)

    def commit(self) -> None:
        with self._errors():
            self._connection.commit()

    def roll_back(self) -> None:
        with self._errors():
            self._connection.rollback()

    def close(self) -> None:
        """Never raises: a connection that broke is closed as well."""
        with suppress(Exception):
            self._connection.close()


def _connect(url: str) -> tuple[Any, Callable[[], AbstractContextManager[None]]]:
    """A connection of the driver, outside of autocommit, and what raises its errors as inorder's."""
    match dialect_of(url):
        case "postgres":
            from inorder.database.postgres import connect as connect_postgres
            from inorder.database.postgres import postgres_errors

            return connect_postgres(url, _NAME), postgres_errors
        case "mysql":
            from inorder.database.mysql import connect as connect_mysql
            from inorder.database.mysql import mysql_errors

            return connect_mysql(url, _NAME), mysql_errors
        case "sqlite":
            from inorder.database.sqlite import connect as connect_sqlite
            from inorder.database.sqlite import sqlite_errors

            connection = connect_sqlite(url)
            connection.isolation_level = "IMMEDIATE"
            return connection, sqlite_errors


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """The table that a topic feeds: the column of its key, and the one in which rows show their place."""

    table: str
    key: str
    place: str


class OwnRows:
    """The rows of a verification, by its keys, in every table that they may pass."""

    def __init__(self, url: str, relay: RelaySettings, topic: str, keys: Mapping[str, RowId]) -> None:
        self._database: Database = open_database(url, _NAME)
        self._relay = relay
        self._topic = topic
        self._ids = dict(keys)
        found = layout(relay.layout, self._dialect)
        self._names = {
            "table": quoted_table(self._dialect, relay.table),
            "archive": quoted_table(self._dialect, f"{relay.table}_published"),
            "locks": quoted_table(self._dialect, lock_table(relay.table)),
            "key_column": quoted_table(self._dialect, "key"),
            "topic": found.topic,
            "key": found.key,
        }

    @property
    def _dialect(self) -> Dialect:
        return self._database.dialect

    def close(self) -> None:
        self._database.close()

    def waiting(self) -> int | None:
        """How many rows are still to be published or were set aside; None where the strategy does not purge rows."""
        if self._relay.strategy == "polling":
            return None
        waiting = self._on_own("waiting").rows[0][0]
        with suppress(ConfigurationError):  # no relay has created the table yet
            waiting += self._on_own("exceeded").rows[0][0]
        return int(waiting)

    def withdraw(self, *, with_lock: bool) -> None:
        """Removes what is left of this verification in the tables of the relay; `with_lock`, the topic's lock too."""
        self._on_own("withdraw")
        for name in ("forget_exceeded", "forget_archived"):
            with suppress(ConfigurationError):  # not every set-up has the table
                self._on_own(name)
        if with_lock and self._relay.strategy == "topic-lock":
            self._on_own("forget_lock")

    def _on_own(self, name: str) -> Result:
        """Runs a statement on the rows of all keys."""
        keys = {f"key_{number}": key.encode() for number, key in enumerate(self._ids)}
        statement = _STATEMENTS.render(name, **self._names, keys=", ".join(f"%({each})s" for each in keys))
        return self._database.execute(statement, {"outbox": self._relay.table, "topic": self._topic, **keys})

    def read(self, table: WatchedTable) -> dict[str, object]:
        """What the rows of all keys show as their place, by key; keys without a row are left out."""
        shown = {str(id): key for key, id in self._ids.items()}
        rows = self._database.execute(*self._on_rows("rows", table)).rows
        return {shown[str(id)]: place for id, place in rows}

    def delete(self, table: WatchedTable) -> None:
        """Removes the rows of all keys."""
        self._database.execute(*self._on_rows("delete_rows", table))

    def _on_rows(self, name: str, table: WatchedTable) -> tuple[str, dict[str, RowId]]:
        bound = {f"id_{number}": id for number, id in enumerate(self._ids.values())}
        names = {
            "table": quoted_table(self._dialect, table.table),
            "id": quoted_table(self._dialect, table.key),
            "place": quoted_table(self._dialect, table.place),
            "ids": ", ".join(f"%({parameter})s" for parameter in bound),
        }
        return _STATEMENTS.render(name, **names), bound
