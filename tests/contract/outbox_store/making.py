"""The places an outbox can live in, for the suite that holds for all of them.

To add a database: a function that makes its `SqlPlace`, and its name in `MAKERS`.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest

from inorder.database.mysql import connect as mysql_connect
from inorder.database.postgres import connect
from inorder.database.sql import Family, named
from inorder.database.sqlite import connect as sqlite_connect
from inorder.model.message import Message, OutboxRow
from inorder.model.partitioning import Shard
from inorder.outbox import Outbox
from inorder.outbox.append import WRITABLE_LAYOUTS
from inorder.outbox.layouts import install_statements
from inorder.relay.stores.mysql_outbox import MySQLOutboxStore
from inorder.relay.stores.ports import MarkStore, OutboxStore
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore
from inorder.relay.stores.sqlite_outbox import SQLiteOutboxStore
from tests.fakes.outbox import MemoryOutbox

WHOLE = Shard()


class Store(OutboxStore, MarkStore, Protocol):
    """What every store is."""


class Place(ABC):
    """One outbox table, and a way to write beside its stores: insert in a named transaction, then end it."""

    layout: str
    dialect: Family | None = None
    writers_at_once = True
    """Whether two transactions can be open that both have inserted."""

    @abstractmethod
    def store(self, shard: Shard = WHOLE) -> Store:
        """Another store of the table; closed when the test ends."""

    @abstractmethod
    def insert(self, transaction: str, value: str, *, topic: str = "t", key: str = "k") -> None: ...

    @abstractmethod
    def end(self, transaction: str, *, commit: bool = True) -> None: ...

    def write(self, *values: str, topic: str = "t", key: str = "k") -> None:
        for value in values:
            self.insert("writer", value, topic=topic, key=key)
        self.end("writer")

    def topic(self, topic: str = "t") -> str:
        """The topic that rows come back with."""
        return f"outbox.event.{topic}" if self.layout == "debezium" else topic

    def values(self, rows: list[OutboxRow]) -> list[str]:
        """What was inserted; the payload of the debezium layout is JSON."""
        texts = [(row.value or b"").decode() for row in rows]
        return [json.loads(text) for text in texts] if self.layout == "debezium" else texts


class MemoryPlace(Place):
    """The store of simulations."""

    layout = "native"

    def __init__(self) -> None:
        self._outbox = MemoryOutbox()

    def store(self, shard: Shard = WHOLE) -> Store:
        return MemoryOutbox(shard, beside=self._outbox)

    def insert(self, transaction: str, value: str, *, topic: str = "t", key: str = "k") -> None:
        self._outbox.insert(transaction, topic, key.encode(), value.encode())

    def end(self, transaction: str, *, commit: bool = True) -> None:
        self._outbox.end(transaction, commit=commit)


TOPICS = {"native": "topic", "goharvest": "kafka_topic", "debezium": "aggregatetype", "trendyol": "topic"}
"""The column that each layout has the topic in."""

_INSERTS = {
    "goharvest": (
        "INSERT INTO outbox"
        " (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)"
        " VALUES (CURRENT_TIMESTAMP, %(topic)s, %(key)s, %(value)s, %(header_keys)s, %(header_values)s)"
    ),
    "debezium": (
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)"
        " VALUES (%(id)s, %(topic)s, %(key)s, 'Happened', %(payload)s)"
    ),
}


class SqlPlace(Place):
    """A table in a database, written by the application's own connections."""

    def __init__(
        self,
        layout: str,
        dialect: Family,
        stack: ExitStack,
        *,
        connect: Callable[[], Any],
        open_store: Callable[[str, Shard], Store],
        execute: Callable[[Any, str, dict[str, Any]], object] = lambda connection, *rest: connection.execute(*rest),
    ) -> None:
        """`connect` opens a DB-API connection that begins transactions by itself; `execute` runs pyformat on it."""
        self.layout = layout
        self.dialect = dialect
        self._stack = stack
        self._connect = connect
        self._open_store = open_store
        self._execute = execute
        self._writers: dict[str, Any] = {}
        for statement in install_statements(layout, dialect, "outbox"):
            self.run(statement)

    def store(self, shard: Shard = WHOLE) -> Store:
        store = self._open_store(self.layout, shard)
        self._stack.callback(store.close)
        return store

    def insert(self, transaction: str, value: str, *, topic: str = "t", key: str = "k") -> None:
        writer = self.writer(transaction)
        if self.layout in WRITABLE_LAYOUTS:
            Outbox(layout=self.layout).publish(writer, Message(topic, key=key, value=value))
            return
        no_headers: Any = [] if self.dialect == "postgres" else "[]"
        self._execute(
            writer,
            _INSERTS[self.layout],
            {
                "id": str(uuid4()),
                "topic": topic,
                "key": key,
                "value": value,
                "payload": json.dumps(value),
                "header_keys": no_headers,
                "header_values": no_headers,
            },
        )

    def end(self, transaction: str, *, commit: bool = True) -> None:
        writer = self.writer(transaction)
        writer.commit() if commit else writer.rollback()

    def run(self, statement: str, parameters: dict[str, Any] | None = None) -> None:
        """Runs any statement in pyformat, and commits."""
        self._execute(self.writer("test"), statement, parameters or {})
        self.end("test")

    def writer(self, transaction: str) -> Any:
        if transaction not in self._writers:
            self._writers[transaction] = self._connect()
            self._stack.callback(self._writers[transaction].close)
        return self._writers[transaction]


def postgres_place(request: pytest.FixtureRequest, layout: str, stack: ExitStack) -> SqlPlace:
    url: str = request.getfixturevalue("postgres_url")
    return SqlPlace(
        layout,
        "postgres",
        stack,
        connect=lambda: connect(url, "test"),
        open_store=lambda layout, shard: PostgresOutboxStore(url, "outbox", layout=layout, shard=shard),
    )


def mariadb_place(request: pytest.FixtureRequest, layout: str, stack: ExitStack) -> SqlPlace:
    url: str = request.getfixturevalue("mariadb_url")
    return SqlPlace(
        layout,
        "mysql",
        stack,
        connect=lambda: mysql_connect(url, "test"),
        open_store=lambda layout, shard: MySQLOutboxStore(url, "outbox", layout=layout, shard=shard),
        execute=lambda connection, *rest: connection.cursor().execute(*rest),
    )


def sqlite_place(request: pytest.FixtureRequest, layout: str, stack: ExitStack) -> SqlPlace:
    file: Path = request.getfixturevalue("tmp_path") / "outbox.db"
    url = f"sqlite:///{file}"
    sqlite_connect(url).close()  # as `inorder schema install` does, which makes it a file that is read while written
    place = SqlPlace(
        layout,
        "sqlite",
        stack,
        connect=lambda: sqlite3.connect(file),
        open_store=lambda layout, shard: SQLiteOutboxStore(url, "outbox", layout=layout, shard=shard),
        execute=lambda connection, statement, bound: connection.execute(named(statement), bound),
    )
    place.writers_at_once = False
    return place


MAKERS: dict[str, Callable[[pytest.FixtureRequest, str, ExitStack], SqlPlace]] = {
    "postgres": postgres_place,
    "mariadb": mariadb_place,
    "sqlite": sqlite_place,
}
