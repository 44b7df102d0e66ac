"""What every store but the hot path of the outbox needs of a database: short transactions, whatever the dialect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, Protocol

from inorder.model.errors import ConfigurationError
from inorder.sql import Statements, load

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
def statements_of(dialect: Dialect, filename: str) -> Statements:
    """The named statements of a store in a dialect; those that read alike in all of them are in a file beside this."""
    own = load(f"inorder.stores.{dialect}", filename)
    if not files("inorder.stores").joinpath(filename).is_file():
        return own
    return Statements({**load("inorder.stores", filename), **own})
