"""Exceeded rows in PostgreSQL: how the relay sets them aside, and how people look at them and let them go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import psycopg
from psycopg.rows import class_row, dict_row

from inorder import sql
from inorder.ports.exceeded_store import Exceeding, Key
from inorder.stores.postgres.connect import Reconnecting, connect
from inorder.stores.postgres.install import install
from inorder.stores.postgres.sqlstate import our_errors

_STATEMENTS = sql.load("inorder.stores.postgres", "exceeded.sql")

Action = Literal["retry", "discard"]


@dataclass(frozen=True, slots=True)
class ExceededRow:
    """One row that used up its attempts."""

    id: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: str | None
    partition: int | None
    timestamp: int | None
    created_at: datetime
    attempts: int
    code: str
    reason: str
    parks: bool
    exceeded_at: datetime


@dataclass(frozen=True, slots=True)
class Filter:
    """Which exceeded rows are meant; None matches everything."""

    id: int | None = None
    topic: str | None = None
    key: bytes | None = None
    code: str | None = None


class PostgresExceededStore:
    """An `ExceededStore` in the database of the outbox."""

    def __init__(self, url: str, table: str) -> None:
        self._table = table
        self._connecting = Reconnecting(url, "inorder relay (exceeded)")

    def exceed(self, exceeding: Exceeding) -> None:
        """One statement: the row is in one of the two tables, whatever happens."""
        statement = _STATEMENTS.render("exceed", table=sql.quoted(self._table))
        parameters = {
            "outbox": self._table,
            "id": exceeding.row_id,
            "attempts": exceeding.attempts,
            "code": exceeding.code,
            "reason": exceeding.reason,
            "parks": exceeding.parks,
        }
        with our_errors():
            self._connection().execute(statement, parameters)

    def parked(self) -> dict[Key, tuple[int, ...]]:
        """The parked keys, with the ids of their exceeded rows."""
        with our_errors():
            found = self._connection().execute(_STATEMENTS["parked"], {"outbox": self._table})
            return {(topic, key): tuple(ids) for topic, key, ids in found}

    def close(self) -> None:
        """Closes the connection."""
        self._connecting.close()

    def _connection(self) -> psycopg.Connection[Any]:
        connection, is_new = self._connecting.get()
        if is_new:
            install(connection, install_statements())
        return connection


def install_statements() -> list[str]:
    """The DDL of the exceeded tables."""
    return [_STATEMENTS[name] for name in _STATEMENTS if name.startswith("install")]


def list_exceeded(url: str, table: str, wanted: Filter) -> list[ExceededRow]:
    """The exceeded rows that are meant, oldest first."""
    with connect(url, "inorder exceeded") as connection, our_errors():
        install(connection, install_statements())
        return _matching(connection, table, wanted)


def act_on_exceeded(url: str, table: str, wanted: Filter, action: Action, reason: str) -> list[ExceededRow]:
    """Retries or discards the rows that are meant, all in one transaction, and notes why; returns them."""
    with connect(url, "inorder exceeded") as connection, our_errors():
        rows = _matching(connection, table, wanted)
        for row in _take(connection, table, [row.id for row in rows]):
            if action == "retry":
                connection.execute(_STATEMENTS.render("put_back", table=sql.quoted(table)), row)
            noted = {**row, "outbox": table, "action": action, "reason": reason}
            connection.execute(_STATEMENTS["note_action"], noted)
        return rows


def _matching(connection: psycopg.Connection[Any], table: str, wanted: Filter) -> list[ExceededRow]:
    with connection.cursor(row_factory=class_row(ExceededRow)) as cursor:
        parameters = {
            "outbox": table,
            "id": wanted.id,
            "topic": wanted.topic,
            "key": wanted.key,
            "code": wanted.code,
        }
        return cursor.execute(_STATEMENTS["list"], parameters).fetchall()


def _take(connection: psycopg.Connection[Any], table: str, ids: Sequence[int]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        taken = cursor.execute(_STATEMENTS["take"], {"outbox": table, "ids": list(ids)}).fetchall()
    return sorted(taken, key=lambda row: int(row["id"]))
