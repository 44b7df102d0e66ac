"""MySQL and MariaDB as a `Database`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from inorder.model.errors import TransientError
from inorder.stores.database import Cursor
from inorder.stores.mysql.connect import LOCK_TIMEOUT_SECONDS, Connection, Reconnecting
from inorder.stores.mysql.driver import pymysql
from inorder.stores.mysql.errors import our_errors
from inorder.stores.one_connection import OneConnection

_LOCK = f"SELECT GET_LOCK('inorder install', {LOCK_TIMEOUT_SECONDS})"
_UNLOCK = "DO RELEASE_LOCK('inorder install')"


class MySQLDatabase(OneConnection[Connection]):
    """The connection commits every statement by itself, but for transactions that are begun by name."""

    dialect = "mysql"

    def __init__(self, url: str, application_name: str) -> None:
        super().__init__(Reconnecting(url, application_name))

    def _our_errors(self) -> AbstractContextManager[None]:
        return our_errors()

    @contextmanager
    def _begun(self, connection: Connection) -> Iterator[Cursor]:
        connection.begin()
        try:
            with connection.cursor() as cursor:
                yield cursor
            connection.commit()
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except pymysql.MySQLError:
            # Without a connection there is no transaction; the server ends it when it notices.
            self._connecting.close()

    def _install(self, connection: Connection, statements: Iterable[str]) -> None:
        # No transaction: here every DDL statement commits by itself.
        with connection.cursor() as cursor:
            cursor.execute(_LOCK)
            if cursor.fetchone() != (1,):
                raise TransientError("Another instance installs its tables.", hint="It is tried again.")
            try:
                for statement in statements:
                    cursor.execute(statement)
            finally:
                if connection.open:
                    cursor.execute(_UNLOCK)
