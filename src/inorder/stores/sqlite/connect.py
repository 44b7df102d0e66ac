"""Opening an SQLite file so that one process may read it while another writes."""

from __future__ import annotations

import sqlite3
import time

from sqlalchemy.engine import make_url

from inorder.model.errors import ConfigurationError
from inorder.stores.database import UndecodableText
from inorder.stores.reconnecting import ReconnectingTo
from inorder.stores.sqlite.errors import our_errors

BUSY_TIMEOUT_SECONDS = 10
"""How long a writer waits for another one before it is told that the file is busy."""
BUSY_STEP_SECONDS = 0.01


def connect(url: str) -> sqlite3.Connection:
    """A connection in autocommit mode for a SQLAlchemy URL; who wants a transaction sends BEGIN IMMEDIATE.

    Any thread may use it, one at a time.
    """
    path = path_of(url)
    with our_errors():
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


class Reconnecting(ReconnectingTo[sqlite3.Connection]):
    """One autocommit connection; a file keeps no names of its users."""

    def _open(self) -> sqlite3.Connection:
        return connect(self._url)

    def _is_open(self, connection: sqlite3.Connection) -> bool:  # noqa: ARG002 - a file does not go away
        return True
