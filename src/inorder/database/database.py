"""`Database`: short transactions on one connection, in any dialect.

Every store uses it, except the hot path of the outbox, which talks to its driver directly. `open_database` picks the
implementation by URL; `SingleConnectionDatabase` is what the three of them share, and `postgres.py`, `mysql.py` and
`sqlite.py` hold what differs: how to connect, begin a transaction, run DDL under a lock, and classify errors.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Generic, Literal, Protocol

from inorder.database.primary import C, ReconnectingTo
from inorder.database.sql import Statements, family, load
from inorder.model.errors import ConfigurationError

log = logging.getLogger("inorder.stores")

Dialect = Literal["postgres", "mysql", "sqlite"]

NOTHING_BOUND: Mapping[str, Any] = MappingProxyType({})


class UndecodableText(bytes):
    """Text that is not UTF-8, which an SQLite file may hold; raising an error instead would hide the whole row."""


@dataclass(frozen=True, slots=True)
class Result:
    rows: list[tuple[Any, ...]]
    """Empty where the statement returns none."""
    count: int
    """Rows returned, or else rows that the statement matched: an UPDATE counts a row even if it changes nothing."""


class Transaction(Protocol):
    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        """Runs one statement; parameters are written `%(name)s` in every dialect, and a literal `%` as `%%`."""


class Database(Protocol):
    """One connection, opened at the first call and reopened at the next call after it broke or became read-only.

    Any thread may call it; transactions are serialised, so none may be opened inside another. Each statement sees what
    is committed when it begins (READ COMMITTED; on SQLite a transaction is the only writer). Errors of the driver are
    raised as inorder's. A commit whose response is lost raises `UnreachableError`: it may have happened or not, so a
    store's operations must be idempotent.
    """

    @property
    def dialect(self) -> Dialect: ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begins a transaction; leaving the block commits, an exception rolls back."""

    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        """Runs one statement in its own transaction, in one round trip."""

    def install(self, statements: Iterable[str]) -> None:
        """Runs idempotent DDL, one installer at a time; no parameters are bound, so `%` needs no escape."""

    def close(self) -> None:
        """Closes the connection; may be called twice, and the next call reconnects."""


class Cursor(Protocol):
    """What the cursors of all drivers have in common."""

    @property
    def description(self) -> object: ...

    @property
    def rowcount(self) -> int: ...

    def execute(self, statement: Any, parameters: Any = ..., /) -> object: ...

    def fetchall(self) -> Sequence[Any]: ...


class CursorTransaction:
    """A `Transaction` on a cursor."""

    def __init__(self, cursor: Cursor, spelt: Callable[[str], str] = str) -> None:
        self._cursor = cursor
        self._spelt = spelt

    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        self._cursor.execute(self._spelt(statement), dict(parameters))
        if self._cursor.description is None:
            return Result([], self._cursor.rowcount)
        rows = [tuple(row) for row in self._cursor.fetchall()]
        return Result(rows, len(rows))


class InstallingDatabase:
    """A database that creates a store's tables before its first transaction, where one of them lacks something."""

    def __init__(self, database: Database, statements: Iterable[str]) -> None:
        self._database = database
        self._statements = tuple(statements)
        self._is_installed = False

    def transaction(self) -> AbstractContextManager[Transaction]:
        self._install()
        return self._database.transaction()

    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        self._install()
        return self._database.execute(statement, parameters)

    def close(self) -> None:
        self._database.close()

    def _install(self) -> None:
        if self._is_installed:
            return
        from inorder.database.schema_plan import catalogue_of, plan_changes  # here, because it imports this module

        try:
            if plan_changes(self._statements, catalogue_of(self._database)):
                self._database.install(self._statements)
        except ConfigurationError as error:
            # What is missing may be an index, or a table that is never used. If the next statement needs it, that one
            # fails and names it.
            log.info("database.not_installed", extra={"error": str(error)})
        self._is_installed = True


@cache
def statements_of(package: str, dialect: Dialect, filename: str) -> Statements:
    """The named statements of a package in a dialect; those that are the same in all dialects are one folder above."""
    own, shared = load(package, f"sql/{dialect}/{filename}"), f"sql/{filename}"
    if not files(package).joinpath(shared).is_file():
        return own
    return Statements({**load(package, shared), **own})


class Closable(Protocol):
    """Something with connections or threads to give back."""

    def close(self) -> None: ...


class SingleConnectionDatabase(ABC, Generic[C]):
    """A `Database` on one connection; what differs between drivers is in the subclasses."""

    dialect: Dialect

    def __init__(self, connecting: ReconnectingTo[C]) -> None:
        self._connecting = connecting

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begins a transaction; leaving the block commits, an exception rolls back."""
        with self._connecting.use() as connection, self._begun(connection) as cursor:
            yield CursorTransaction(cursor, self._spelt)

    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        with self._connecting.use() as connection, closing(connection.cursor()) as cursor:
            return CursorTransaction(cursor, self._spelt).execute(statement, parameters)

    def install(self, statements: Iterable[str]) -> None:
        with self._connecting.use() as connection:
            self._install(connection, statements)

    def close(self) -> None:
        """Waits for an open transaction, then closes the connection."""
        self._connecting.close()

    @abstractmethod
    def _begun(self, connection: C) -> AbstractContextManager[Cursor]:
        """Begins a transaction and yields a cursor; commits, or rolls back after an exception."""

    @abstractmethod
    def _install(self, connection: C, statements: Iterable[str]) -> None:
        """Runs DDL under a lock that the installers of all processes share."""

    def _spelt(self, statement: str) -> str:
        """The statement with parameters in the driver's style."""
        return statement


def dialect_of(url: str) -> Dialect:
    """The dialect of a SQLAlchemy URL; raises `ConfigurationError` for an unknown one."""
    scheme = url.partition("://")[0].partition("+")[0]
    return family(scheme)


def open_database(url: str, application_name: str, *, is_primary: bool = True) -> Database:
    """The database of a SQLAlchemy URL; it connects when first used, under this application name.

    It must accept writes, unless `is_primary` is False (`primary.py`).
    """
    # Imported here, because drivers are extras.
    match dialect_of(url):
        case "postgres":
            from inorder.database.postgres import PostgresDatabase

            return PostgresDatabase(url, application_name, is_primary=is_primary)
        case "mysql":
            from inorder.database.mysql import MySQLDatabase

            return MySQLDatabase(url, application_name, is_primary=is_primary)
        case "sqlite":
            from inorder.database.sqlite import SQLiteDatabase

            return SQLiteDatabase(url, application_name)


def moment(stored: str | datetime) -> datetime:
    """A timestamp of a database: in UTC where it stores no zone, parsed where it stores text."""
    found = datetime.fromisoformat(stored) if isinstance(stored, str) else stored
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def written_at(stored: object) -> datetime | None:
    """A timestamp that another program wrote; None where it is not one, as SQLite allows any value."""
    if not isinstance(stored, str | datetime):
        return None
    try:
        return moment(stored)
    except ValueError:
        return None
