"""An SQLite file as a `Database`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

from inorder.sql import named
from inorder.stores.database import Cursor
from inorder.stores.one_connection import OneConnection
from inorder.stores.sqlite.connect import Reconnecting
from inorder.stores.sqlite.errors import our_errors


class SQLiteDatabase(OneConnection[sqlite3.Connection]):
    """A transaction is the only writer of the file from its beginning."""

    dialect = "sqlite"

    def __init__(self, url: str, application_name: str) -> None:
        super().__init__(Reconnecting(url, application_name))

    def _our_errors(self) -> AbstractContextManager[None]:
        return our_errors()

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
