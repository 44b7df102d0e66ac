"""Opening connections to MySQL and MariaDB: alike whatever the server is set to, and quick to notice a dead peer."""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy.dialects.mysql.pymysql import dialect

from inorder.stores.credentials import patience, with_login
from inorder.stores.mysql.driver import CLIENT, pymysql
from inorder.stores.mysql.errors import our_errors
from inorder.stores.reconnecting import ReconnectingTo

Connection: TypeAlias = "pymysql.connections.Connection[Any]"

CONNECT_TIMEOUT_SECONDS = 10
ANSWER_TIMEOUT_SECONDS = 30
"""After this long without an answer the peer is taken for dead."""
LOCK_TIMEOUT_SECONDS = 20
"""Shorter, so that a server that waits for a lock says so before it is taken for dead."""
IDLE_TIMEOUT_SECONDS = 10
"""The server's patience with an open transaction in which nothing happens, as on PostgreSQL."""

# READ COMMITTED: every statement sees what is committed, and no lock is held on rows that did not match.
_SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    f"SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_TIMEOUT_SECONDS}",
)

# An instance that is paused within a transaction would keep rows locked for whoever took over from it. Only MariaDB has
# such a limit; MySQL takes it for a comment.
_NOT_IDLE = f"SET SESSION autocommit = 1 /*M!100300 , idle_transaction_timeout = {IDLE_TIMEOUT_SECONDS} */"


def connect(url: str, application_name: str, *, autocommit: bool = False) -> Connection:
    """A connection for a SQLAlchemy URL; a server that is away raises `UnreachableError`.

    An UPDATE counts the rows it **found**, as in the other databases; by default it would count those it changed.
    """
    with patience(url):
        _, arguments = dialect().create_connect_args(with_login(url).set(drivername="mysql+pymysql"))
    settings = {
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "read_timeout": ANSWER_TIMEOUT_SECONDS,
        "write_timeout": ANSWER_TIMEOUT_SECONDS,
        **arguments,
        "charset": "utf8mb4",
        "client_flag": CLIENT.FOUND_ROWS,
        "program_name": application_name,
        "autocommit": autocommit,
    }
    with patience(url), our_errors():
        connection: Connection = pymysql.connect(**settings)
        with connection.cursor() as cursor:
            for statement in _SESSION:
                cursor.execute(statement)
        return connection


class Reconnecting(ReconnectingTo[Connection]):
    """One autocommit connection, opened when first needed and again after it broke."""

    def _open(self) -> Connection:
        connection = connect(self._url, self._application_name, autocommit=True)
        with our_errors(), connection.cursor() as cursor:
            cursor.execute(_NOT_IDLE)
        return connection

    def _is_open(self, connection: Connection) -> bool:
        return connection.open
