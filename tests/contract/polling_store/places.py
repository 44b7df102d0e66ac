"""The places in which events, offset, missing and exceeded can be, each with a way to write beside its stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack, contextmanager
from typing import Any

from inorder.database.database import NOTHING_BOUND, Database, Result, Transaction, open_database
from inorder.database.sql import quoted_table
from inorder.model.errors import UnreachableError
from inorder.model.names import USUAL_TABLES, SideTables
from inorder.outbox.layouts import install_statements
from inorder.relay.stores.polling import SqlPollingStore
from inorder.relay.stores.ports import PollingStore
from tests.fakes.outbox import MemoryOutbox
from tests.fakes.polling import MemoryPollingStore, MemoryPollingTables

TABLE = "outbox_events"


class Place(ABC):
    """All four tables, and what others do to them."""

    @abstractmethod
    def store(self) -> PollingStore:
        """Another instance's store; closed when the test ends."""

    @abstractmethod
    def insert(self, topic: str = "t", key: str | None = "k", value: str = "v") -> None:
        """Commits one event; ids begin with 1."""

    @abstractmethod
    def exceeded(self) -> list[tuple[int, int, bool, str]]:
        """The exceeded events by id: retry count, whether it was refused, and the reason."""


class MemoryPlace(Place):
    """The store of simulations."""

    def __init__(self) -> None:
        self._outbox = MemoryOutbox()
        self._tables = MemoryPollingTables(self._outbox)

    def store(self) -> PollingStore:
        return MemoryPollingStore(self._tables)

    def insert(self, topic: str = "t", key: str | None = "k", value: str = "v") -> None:
        self._outbox.insert("writer", topic, None if key is None else key.encode(), value.encode())
        self._outbox.end("writer")

    def exceeded(self) -> list[tuple[int, int, bool, str]]:
        return [
            (id, event.retry_count, event.exception_thrown, reason)
            for id, (event, reason) in sorted(self._tables.exceeded.items())
        ]


class SqlPlace(Place):
    """Tables in a database."""

    def __init__(self, url: str, stack: ExitStack, table: str = TABLE, sides: SideTables = USUAL_TABLES) -> None:
        self.url = url
        self.table = table
        self.sides = sides
        self._stack = stack
        self.database = self.opened()
        self.install()

    def install(self) -> None:
        self.database.install(install_statements("trendyol", self.database.dialect, self.table, self.sides))

    def store(self) -> SqlPollingStore:
        return SqlPollingStore(self.opened(), self.table, self.sides)

    def insert(self, topic: str = "t", key: str | None = "k", value: str = "v") -> None:
        columns = ", ".join(quoted_table(self.database.dialect, name) for name in ("topic", "key", "value"))
        self.run(
            f"INSERT INTO {self.table} ({columns}) VALUES (%(topic)s, %(key)s, %(value)s)",
            topic=topic,
            key=key,
            value=value,
        )

    def exceeded(self) -> list[tuple[int, int, bool, str]]:
        rows = self.run(f"SELECT id, retry_count, exception_thrown, reason FROM {self.sides.exceeded} ORDER BY id")
        return [(id, count, bool(thrown), reason) for id, count, thrown, reason in rows]

    def run(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self.database.execute(statement, parameters).rows

    def opened(self) -> Database:
        database = open_database(self.url, "test")
        self._stack.callback(database.close)
        return database


class Recorded:
    """A database that counts its statements, and loses the answer to a commit where the test says so."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.dialect = database.dialect
        self.statements = 0
        self.loses_answers = False

    @contextmanager
    def transaction(self) -> Any:
        with self._database.transaction() as transaction:
            yield _RecordedTransaction(self, transaction)
        self._answer()

    def execute(self, statement: str, parameters: Any = NOTHING_BOUND) -> Result:
        self.statements += 1
        found = self._database.execute(statement, parameters)
        self._answer()
        return found

    def install(self, statements: Iterable[str]) -> None:
        self._database.install(statements)

    def close(self) -> None:
        self._database.close()

    def _answer(self) -> None:
        if self.loses_answers:
            self.loses_answers = False
            raise UnreachableError("The answer to the commit was lost.")


class _RecordedTransaction:
    def __init__(self, recorded: Recorded, transaction: Transaction) -> None:
        self._recorded = recorded
        self._transaction = transaction

    def execute(self, statement: str, parameters: Any = NOTHING_BOUND) -> Result:
        self._recorded.statements += 1
        return self._transaction.execute(statement, parameters)
