"""Opening connections to MySQL and MariaDB: alike whatever the server is set to, and quick to notice a dead peer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeAlias

from sqlalchemy.dialects.mysql.pymysql import dialect

from inorder.database.credentials import patience, with_login
from inorder.database.database import Cursor, OneConnection, ReconnectingTo
from inorder.model.errors import (
    ConfigurationError,
    InorderError,
    RejectedError,
    TransientError,
    UnreachableError,
)

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
    with patience(url), mysql_errors():
        connection: Connection = pymysql.connect(**settings)
        with connection.cursor() as cursor:
            for statement in _SESSION:
                cursor.execute(statement)
        return connection


class MySQLReconnecting(ReconnectingTo[Connection]):
    """One autocommit connection, opened when first needed and again after it broke."""

    def _open(self) -> Connection:
        connection = connect(self._url, self._application_name, autocommit=True)
        with mysql_errors(), connection.cursor() as cursor:
            cursor.execute(_NOT_IDLE)
        return connection

    def _is_open(self, connection: Connection) -> bool:
        return connection.open


# MySQL and MariaDB as a `Database`.

_LOCK = f"SELECT GET_LOCK('inorder install', {LOCK_TIMEOUT_SECONDS})"
_UNLOCK = "DO RELEASE_LOCK('inorder install')"


class MySQLDatabase(OneConnection[Connection]):
    """The connection commits every statement by itself, but for transactions that are begun by name."""

    dialect = "mysql"

    def __init__(self, url: str, application_name: str) -> None:
        super().__init__(MySQLReconnecting(url, application_name))

    def _our_errors(self) -> AbstractContextManager[None]:
        return mysql_errors()

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


# The errors of MySQL and MariaDB in our families, by number: one table, no reading of texts.

# A number that is not named here means that something is to be put right by people.
_NUMBERS: Final[dict[type[InorderError], tuple[int, ...]]] = {
    UnreachableError: (
        *(0, 2002, 2003, 2005, 2006, 2013, 2055),  # the driver's own: not reached, or lost on the way
        *(1053, 1077, 1079, 1152, 1184),  # shutting down, aborted
        *(1158, 1159, 1160, 1161),  # the network, as the server saw it
        *(1927, 4031),  # our session was ended by somebody, or for being idle
    ),
    TransientError: (
        *(1205, 1213, 3572, 1317, 3024, 1969, 1020),  # locks, deadlock, statement interrupted or changed under us
        *(1040, 1203, 1226),  # connections used up
        *(1290, 1792, 1836, 3100),  # read-only: a fail-over is under way
        *(1021, 1030, 1037, 1038, 1041, 1114, 1135, 1180),  # disk, memory or threads used up
    ),
    RejectedError: (
        *(1048, 1062, 1364, 1451, 1452, 1557, 1586, 3819, 4025),  # constraints
        *(1264, 1265, 1292, 1366, 1406, 1411, 3140, 4038),  # data
        *(1118, 1153, 1301),  # too large for a row, a packet or a function
        1644,  # signalled by a trigger of the table's owner
    ),
}

FAMILIES: Final[dict[int, type[InorderError]]] = {
    number: family for family, numbers in _NUMBERS.items() for number in numbers
}

_HINTS: Final[dict[type[InorderError], str]] = {
    UnreachableError: "Check that the server of database.url runs; the work is tried again.",
    TransientError: "It is tried again.",
    ConfigurationError: (
        "Check database.url and its rights; `inorder doctor` tells what is missing, `inorder schema install` makes it."
    ),
}


def classified(error: pymysql.MySQLError) -> InorderError:
    """Our error for a driver's error; no number means that the connection is gone."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[-1]).strip().rstrip(".") if error.args else ""
    family = FAMILIES.get(number, ConfigurationError)
    return family(
        f"MySQL: {text or 'the connection is closed'} [error {number}].",
        hint=_HINTS.get(family, ""),
    )


@contextmanager
def mysql_errors() -> Iterator[None]:
    """Turns PyMySQL's errors into ours, the original kept as the cause."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise classified(error) from error


# The driver of MySQL and MariaDB, which is an extra; our SQL files can be read without it.

try:
    import pymysql
    from pymysql.constants import CLIENT
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "database.url is one of MySQL or MariaDB, which needs the package pymysql; it is not installed.",
        hint="Install it with `pip install 'inorder[mysql]'`.",
    ) from error

__all__ = ["CLIENT", "pymysql"]
