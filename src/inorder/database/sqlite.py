"""SQLite: connections, transactions and errors.

Files are in WAL mode, so that one process may read while another writes. Errors are classified by result code, in one
table; their texts are never parsed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final

from inorder.database.credentials import parse_url
from inorder.database.database import Cursor, SingleConnectionDatabase, UndecodableText
from inorder.database.primary import ReconnectingTo
from inorder.database.sql import named
from inorder.model.errors import ConfigurationError, InorderError, LockConflictError, RejectedError, TransientError
from inorder.model.secrets import mask_url

BUSY_TIMEOUT_SECONDS = 10
"""How long a writer waits for another one before it fails with SQLITE_BUSY."""
BUSY_STEP_SECONDS = 0.01


def connect(url: str) -> sqlite3.Connection:
    """Opens the file of a SQLAlchemy URL in autocommit mode; a transaction starts with BEGIN IMMEDIATE.

    Any thread may use the connection, one at a time.
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
        _enable_wal(connection)
        connection.text_factory = _text
        return connection


def _enable_wal(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            # Of several connections that open a new file, one sets the mode; the busy timeout ignores the others.
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
    path = parse_url(url).database
    if not path or path == ":memory:" or "mode=memory" in path:
        raise ConfigurationError(
            f"{mask_url(url)!r} names no file: each connection would see its own database.",
            hint="Set database.url to sqlite:///file.db.",
        )
    return path


class SQLiteReconnecting(ReconnectingTo[sqlite3.Connection]):
    """One autocommit connection; SQLite has no application names."""

    def _open(self) -> sqlite3.Connection:
        return connect(self._url)

    def _is_open(self, connection: sqlite3.Connection) -> bool:  # noqa: ARG002 - a file does not go away
        return True

    def _our_errors(self) -> AbstractContextManager[None]:
        return sqlite_errors()

    def _reports_read_only(self, connection: sqlite3.Connection) -> bool:  # noqa: ARG002 - a file has no replicas
        return False

    def _ask_read_only(self, connection: sqlite3.Connection) -> bool:  # noqa: ARG002 - never asked
        return False


class SQLiteDatabase(SingleConnectionDatabase[sqlite3.Connection]):
    """An SQLite file as a `Database`; a transaction holds the write lock from its start."""

    dialect = "sqlite"

    def __init__(self, url: str, application_name: str) -> None:
        super().__init__(SQLiteReconnecting(url, application_name))

    @contextmanager
    def _begun(self, connection: sqlite3.Connection) -> Iterator[Cursor]:
        # IMMEDIATE: a reader that wants to write later is refused if another connection wrote meanwhile.
        connection.execute("BEGIN IMMEDIATE")
        try:
            with closing(connection.cursor()) as cursor:
                yield cursor
            connection.commit()
        except BaseException:
            connection.rollback()
            raise

    def _install(self, connection: sqlite3.Connection, statements: Iterable[str]) -> None:
        # The transaction's write lock keeps other installers out.
        with self._begun(connection) as cursor:
            for statement in statements:
                execute_ddl(cursor, statement)

    def _spelt(self, statement: str) -> str:
        return named(statement)


def execute_ddl(cursor: Cursor | sqlite3.Connection, statement: str) -> None:
    """Runs DDL that may be run again: SQLite has no ADD COLUMN IF NOT EXISTS, so a column that exists is no error."""
    try:
        cursor.execute(statement)
    except sqlite3.OperationalError as error:
        if "duplicate column name" not in str(error):
            raise


# A code that is not listed is a ConfigurationError.
FAMILIES: Final[dict[int, type[InorderError]]] = {
    sqlite3.SQLITE_BUSY: LockConflictError,  # another process is writing
    sqlite3.SQLITE_LOCKED: LockConflictError,
    sqlite3.SQLITE_NOMEM: TransientError,
    sqlite3.SQLITE_INTERRUPT: TransientError,
    sqlite3.SQLITE_IOERR: TransientError,
    sqlite3.SQLITE_FULL: TransientError,
    sqlite3.SQLITE_PROTOCOL: TransientError,
    sqlite3.SQLITE_SCHEMA: TransientError,  # the schema changed while the statement was prepared
    sqlite3.SQLITE_CONSTRAINT: RejectedError,
    sqlite3.SQLITE_MISMATCH: RejectedError,
    sqlite3.SQLITE_TOOBIG: RejectedError,
}

_HINTS: Final[dict[type[InorderError], str]] = {
    TransientError: "It is retried.",
    LockConflictError: "It is retried.",
    ConfigurationError: (
        "Check the file of database.url; `inorder doctor` shows what is missing, `inorder schema install` creates it."
    ),
}

# What SQLite does not call by the name that people search for.
_MEANINGS: Final[dict[int, str]] = {
    sqlite3.SQLITE_BUSY: "timed out waiting for a lock",
    sqlite3.SQLITE_CANTOPEN: "the file does not exist or permission was denied",
    sqlite3.SQLITE_AUTH: "permission denied",
    sqlite3.SQLITE_PERM: "permission denied",
}


def classify(error: sqlite3.Error) -> InorderError:
    """The inorder error for a driver's error; the low byte of an extended result code is the primary one."""
    code = getattr(error, "sqlite_errorcode", None)
    family = ConfigurationError if code is None else FAMILIES.get(code & 0xFF, ConfigurationError)
    name = f" [{error.sqlite_errorname}]" if code is not None else ""
    meaning = _MEANINGS.get(code & 0xFF) if code is not None else None
    text = f"{meaning}: {error}" if meaning else str(error)
    found = family(f"SQLite: {text.rstrip('.')}{name}.", hint=_HINTS.get(family, ""))
    if isinstance(found, RejectedError):
        found.state = error.sqlite_errorname
    return found


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Raises sqlite3's errors as inorder's, with the original as the cause."""
    try:
        yield
    except sqlite3.Error as error:
        raise classify(error) from error
