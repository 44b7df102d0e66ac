"""What every store but the hot path of the outbox needs of a database: short transactions, whatever the dialect."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Generic, Literal, Protocol, TypeVar

from inorder.database.sql import Statements, family, load
from inorder.model.errors import ConfigurationError

log = logging.getLogger("inorder.stores")

Dialect = Literal["postgres", "mysql", "sqlite"]

NOTHING_BOUND: Mapping[str, Any] = MappingProxyType({})


class UndecodableText(bytes):
    """Text that is not UTF-8, which an SQLite file may hold; an error instead would hide the whole row."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement gave back."""

    rows: list[tuple[Any, ...]]
    """Empty where the statement returns none."""
    count: int
    """Rows returned, or else rows the statement found: an UPDATE counts one also where it changed nothing."""


class Transaction(Protocol):
    """One open transaction."""

    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        """Runs one statement; values are bound as `%(name)s` in every dialect, and a plain `%` is written `%%`."""


class Database(Protocol):
    """One connection, opened at the first call and again at the next call after it broke.

    Any thread may call it; transactions follow one another, so none may be opened inside another. Each statement sees
    what is committed when it begins (READ COMMITTED; on SQLite nobody else writes meanwhile). Errors of the driver
    are raised as ours. A commit whose answer is lost raises `UnreachableError`: it may have happened or not, so what a
    store does must be right to do again.
    """

    @property
    def dialect(self) -> Dialect:
        """Which SQL it speaks."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begins; leaving the block commits, an exception rolls back."""

    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        """Runs one statement that is a transaction of its own, in one round trip."""

    def install(self, statements: Iterable[str]) -> None:
        """Runs DDL that may be run again, one installer at a time; nothing is bound, so a `%` is just that."""

    def close(self) -> None:
        """Gives the connection back; may be called twice, and the database may be used again afterwards."""


class Cursor(Protocol):
    """What the drivers' cursors have in common."""

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
        """Runs one statement and fetches everything it returns."""
        self._cursor.execute(self._spelt(statement), dict(parameters))
        if self._cursor.description is None:
            return Result([], self._cursor.rowcount)
        rows = [tuple(row) for row in self._cursor.fetchall()]
        return Result(rows, len(rows))


class Installed:
    """A database in which a store's own tables are made before its first transaction."""

    def __init__(self, database: Database, statements: Iterable[str]) -> None:
        self._database = database
        self._statements = tuple(statements)
        self._is_installed = False

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begins, on tables that are there."""
        self._install()
        return self._database.transaction()

    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        """Runs one statement that is a transaction of its own."""
        self._install()
        return self._database.execute(statement, parameters)

    def close(self) -> None:
        """Gives the connection back; may be called twice."""
        self._database.close()

    def _install(self) -> None:
        if self._is_installed:
            return
        try:
            self._database.install(self._statements)
        except ConfigurationError as error:
            # Servers ask for the right to create even where nothing is missing, and the tables may be somebody else's
            # work. What is really missing shows with the next statement, which names it.
            log.info("database.not_installed: %s", error)
        self._is_installed = True


@cache
def statements_of(package: str, dialect: Dialect, filename: str) -> Statements:
    """The named statements of a room in a dialect; those that read alike in all dialects stand one folder above."""
    own, shared = load(package, f"sql/{dialect}/{filename}"), f"sql/{filename}"
    if not files(package).joinpath(shared).is_file():
        return own
    return Statements({**load(package, shared), **own})


# A connection that is there when it is needed.


class AnyConnection(Protocol):
    """What the drivers' connections have in common."""

    def cursor(self) -> Any: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=AnyConnection)


class ReconnectingTo(ABC, Generic[C]):
    """One autocommit connection, opened when first needed and again after it broke."""

    def __init__(self, url: str, application_name: str) -> None:
        self._url = url
        self._application_name = application_name
        self._connection: C | None = None

    def get(self) -> tuple[C, bool]:
        """The connection, and whether it is a new one."""
        if self._connection is not None and self._is_open(self._connection):
            return self._connection, False
        self._connection = self._open()
        return self._connection, True

    def close(self) -> None:
        """Closes it; the next `get` opens another."""
        connection, self._connection = self._connection, None
        if connection is not None and self._is_open(connection):
            connection.close()

    @abstractmethod
    def _open(self) -> C: ...

    @abstractmethod
    def _is_open(self, connection: C) -> bool: ...


# A `Database` on one connection of any driver.


class OneConnection(ABC, Generic[C]):
    """Transactions that follow one another on a connection; what differs between the drivers is in the subclasses."""

    dialect: Dialect

    def __init__(self, connecting: ReconnectingTo[C]) -> None:
        self._connecting = connecting
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begins; leaving the block commits, an exception rolls back."""
        with self._lock, self._our_errors():
            connection, _ = self._connecting.get()
            with self._begun(connection) as cursor:
                yield CursorTransaction(cursor, self._spelt)

    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        """Runs one statement, which the connection commits by itself."""
        with self._lock, self._our_errors():
            connection, _ = self._connecting.get()
            with closing(connection.cursor()) as cursor:
                return CursorTransaction(cursor, self._spelt).execute(statement, parameters)

    def install(self, statements: Iterable[str]) -> None:
        """Runs DDL, one installer at a time."""
        with self._lock, self._our_errors():
            self._install(self._connecting.get()[0], statements)

    def close(self) -> None:
        """Closes the connection, once no transaction is open on it."""
        with self._lock:
            self._connecting.close()

    @abstractmethod
    def _our_errors(self) -> AbstractContextManager[None]:
        """Turns the driver's errors into ours."""

    @abstractmethod
    def _begun(self, connection: C) -> AbstractContextManager[Cursor]:
        """A transaction and a cursor in it."""

    @abstractmethod
    def _install(self, connection: C, statements: Iterable[str]) -> None:
        """Runs DDL under a lock that installers of all processes share."""

    def _spelt(self, statement: str) -> str:
        """The statement with bound values as the driver wants them."""
        return statement


# From a URL to the database behind it.


def dialect_of(url: str) -> Dialect:
    """Which SQL the database of a SQLAlchemy URL speaks; one we do not know is refused."""
    scheme = url.partition("://")[0].partition("+")[0]
    return family(scheme)


def open_database(url: str, application_name: str) -> Database:
    """The database of a SQLAlchemy URL; it connects when it is first used, under this name where names are shown."""
    # Imported here, because the drivers are extras.
    match dialect_of(url):
        case "postgres":
            from inorder.database.postgres import PostgresDatabase

            return PostgresDatabase(url, application_name)
        case "mysql":
            from inorder.database.mysql import MySQLDatabase

            return MySQLDatabase(url, application_name)
        case "sqlite":
            from inorder.database.sqlite import SQLiteDatabase

            return SQLiteDatabase(url, application_name)


# Moments as databases give them: with a zone, without one, or as text.


def moment(stored: str | datetime) -> datetime:
    """In UTC where the database keeps no zone, and from text where it keeps no times."""
    found = datetime.fromisoformat(stored) if isinstance(stored, str) else stored
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def written_at(stored: object) -> datetime | None:
    """A moment that somebody else wrote, in SQLite perhaps as anything."""
    if not isinstance(stored, str | datetime):
        return None
    try:
        return moment(stored)
    except ValueError:
        return None
