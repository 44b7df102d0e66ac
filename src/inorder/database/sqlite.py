"""Opening an SQLite file so that one process may read it while another writes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final

from sqlalchemy.engine import make_url

from inorder.database.database import Cursor, OneConnection, ReconnectingTo, UndecodableText
from inorder.database.sql import named
from inorder.model.errors import ConfigurationError, InorderError, RejectedError, TransientError

BUSY_TIMEOUT_SECONDS = 10
"""How long a writer waits for another one before it is told that the file is busy."""
BUSY_STEP_SECONDS = 0.01


def connect(url: str) -> sqlite3.Connection:
    """A connection in autocommit mode for a SQLAlchemy URL; who wants a transaction sends BEGIN IMMEDIATE.

    Any thread may use it, one at a time.
    """
    path = path_of(url)
    with sqlite_errors():
        connection = sqlite3.connect(
            path,
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            uri=path.startswith("file:"),
        )
        _let_readers_be(connection)
        connection.text_factory = _text
        return connection


def _let_readers_be(connection: sqlite3.Connection) -> None:
    """In WAL mode readers see the last commit while somebody writes; without it they would wait for one another."""
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            # Of those who open a new file at once one changes it, and SQLite does not let the others wait for that.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                connection.close()
                raise
            time.sleep(BUSY_STEP_SECONDS)


def _text(stored: bytes) -> str | UndecodableText:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return UndecodableText(stored)


def path_of(url: str) -> str:
    """The file of a SQLAlchemy URL."""
    path = make_url(url).database
    if not path or path == ":memory:" or "mode=memory" in path:
        raise ConfigurationError(
            f"{url!r} names no file: each connection would see a database of its own.",
            hint="Set database.url to sqlite:///file.db.",
        )
    return path


class SQLiteReconnecting(ReconnectingTo[sqlite3.Connection]):
    """One autocommit connection; a file keeps no names of its users."""

    def _open(self) -> sqlite3.Connection:
        return connect(self._url)

    def _is_open(self, connection: sqlite3.Connection) -> bool:  # noqa: ARG002 - a file does not go away
        return True


# An SQLite file as a `Database`.


class SQLiteDatabase(OneConnection[sqlite3.Connection]):
    """A transaction is the only writer of the file from its beginning."""

    dialect = "sqlite"

    def __init__(self, url: str, application_name: str) -> None:
        super().__init__(SQLiteReconnecting(url, application_name))

    def _our_errors(self) -> AbstractContextManager[None]:
        return sqlite_errors()

    @contextmanager
    def _begun(self, connection: sqlite3.Connection) -> Iterator[Cursor]:
        # At once as a writer: a reader that wants to write later is refused if somebody else wrote meanwhile.
        connection.execute("BEGIN IMMEDIATE")
        try:
            with closing(connection.cursor()) as cursor:
                yield cursor
            connection.commit()
        except BaseException:
            connection.rollback()
            raise

    def _install(self, connection: sqlite3.Connection, statements: Iterable[str]) -> None:
        # A transaction is the lock as well.
        with self._begun(connection) as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _spelt(self, statement: str) -> str:
        return named(statement)


# SQLite's errors in our families, by result code: one table, no reading of texts.

# A code that is not named here means that something is to be put right by people.
FAMILIES: Final[dict[int, type[InorderError]]] = {
    sqlite3.SQLITE_BUSY: TransientError,  # another process writes
    sqlite3.SQLITE_LOCKED: TransientError,
    sqlite3.SQLITE_NOMEM: TransientError,
    sqlite3.SQLITE_INTERRUPT: TransientError,
    sqlite3.SQLITE_IOERR: TransientError,
    sqlite3.SQLITE_FULL: TransientError,
    sqlite3.SQLITE_PROTOCOL: TransientError,
    sqlite3.SQLITE_SCHEMA: TransientError,  # it changed while the statement was prepared
    sqlite3.SQLITE_CONSTRAINT: RejectedError,
    sqlite3.SQLITE_MISMATCH: RejectedError,
    sqlite3.SQLITE_TOOBIG: RejectedError,
}

_HINTS: Final[dict[type[InorderError], str]] = {
    TransientError: "It is tried again.",
    ConfigurationError: (
        "Check the file of database.url; `inorder doctor` tells what is missing, `inorder schema install` makes it."
    ),
}


def classified(error: sqlite3.Error) -> InorderError:
    """Our error for a driver's error; the low byte of an extended code is the code."""
    code = getattr(error, "sqlite_errorcode", None)
    family = ConfigurationError if code is None else FAMILIES.get(code & 0xFF, ConfigurationError)
    name = f" [{error.sqlite_errorname}]" if code is not None else ""
    return family(f"SQLite: {str(error).rstrip('.')}{name}.", hint=_HINTS.get(family, ""))


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Turns sqlite3's errors into ours, the original kept as the cause."""
    try:
        yield
    except sqlite3.Error as error:
        raise classified(error) from error
