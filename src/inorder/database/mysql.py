"""MySQL and MariaDB: connections, transactions, DDL and errors.

Every session is set up the same way, whatever the defaults of the server, and notices a dead peer within
`ANSWER_TIMEOUT_SECONDS`. Errors are classified by number, in one table; their texts are never parsed. The driver is an
extra; SQL files of this dialect can be read without it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy.dialects.mysql.pymysql import dialect

from inorder.database.credentials import read_credentials, retry_login
from inorder.database.database import Cursor, SingleConnectionDatabase
from inorder.database.primary import READ_ONLY_HINT, ReconnectingTo, connect_in_turn
from inorder.model.errors import (
    AuthenticationError,
    ConfigurationError,
    InorderError,
    LockConflictError,
    ReadOnlyServerError,
    RejectedError,
    TransientError,
    UnreachableError,
)

try:
    import pymysql
    from pymysql.constants import CLIENT
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "database.url names MySQL or MariaDB, which needs the package pymysql; it is not installed.",
        hint="Install it with `pip install 'inorder[mysql]'`.",
    ) from error

__all__ = ["CLIENT", "pymysql"]  # for those who need the driver and the same error without it

Connection: TypeAlias = "pymysql.connections.Connection[Any]"

CONNECT_TIMEOUT_SECONDS = 10
ANSWER_TIMEOUT_SECONDS = 30
"""A connection without a response for this long is considered dead."""
LOCK_TIMEOUT_SECONDS = 20
"""Shorter, so that the server reports a lock timeout before the connection is considered dead."""
IDLE_TIMEOUT_SECONDS = 10
"""The server ends a transaction that is idle for this long, as on PostgreSQL."""

# READ COMMITTED: every statement sees what is committed, and no locks are held on rows that did not match.
_SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    f"SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_TIMEOUT_SECONDS}",
)

# An instance that is paused within a transaction would keep rows locked for its successor. Only MariaDB has such a
# limit; MySQL reads it as a comment.
_NOT_IDLE = f"SET SESSION autocommit = 1 /*M!100300 , idle_transaction_timeout = {IDLE_TIMEOUT_SECONDS} */"


_READ_ONLY = "SELECT @@global.read_only"


if TYPE_CHECKING:
    _DriverConnection: TypeAlias = pymysql.connections.Connection[Any]
else:  # generic in its type stubs only
    _DriverConnection = pymysql.connections.Connection


class MySQLConnection(_DriverConnection):
    """A connection that closes itself when the server refuses a write because it is read-only."""

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        with self._closed_if_read_only():
            return super().query(sql, unbuffered)

    def commit(self) -> None:
        with self._closed_if_read_only():
            super().commit()

    @contextmanager
    def _closed_if_read_only(self) -> Iterator[None]:
        try:
            yield
        except pymysql.MySQLError as error:
            if FAMILIES.get(_number(error)) is ReadOnlyServerError and self.open:
                self.close()
            raise


def connect(url: str, application_name: str, *, autocommit: bool = False, is_primary: bool = True) -> Connection:
    """Connects to a SQLAlchemy URL; raises `UnreachableError` where the server does not answer, or is read-only.

    Of several hosts the first one that accepts writes; any, where `is_primary` is False.
    """

    def connect_one(one: str) -> Connection:
        connection = _connect(one, application_name, autocommit=autocommit)
        if is_primary and is_read_only(connection):
            connection.close()
            raise ReadOnlyServerError("MySQL: the server is read-only.", hint=READ_ONLY_HINT)
        return connection

    return connect_in_turn(url, connect_one)


def is_read_only(connection: Connection) -> bool:
    """Whether the server refuses writes, also where the privileges of this user would allow them on a replica."""
    with mysql_errors(), connection.cursor() as cursor:
        cursor.execute(_READ_ONLY)
        [value] = cursor.fetchone() or (0,)
        return str(value).upper() not in ("0", "OFF")


def _connect(url: str, application_name: str, *, autocommit: bool) -> Connection:
    """An UPDATE counts the rows it **found**, as in the other databases; MySQL's default counts those it changed."""
    with retry_login(url):
        _, arguments = dialect().create_connect_args(read_credentials(url).set(drivername="mysql+pymysql"))
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
    if str(settings.get("ssl_disabled", "true")).lower() != "true":
        raise ConfigurationError(
            "ssl_disabled in database.url is not true; PyMySQL would disable TLS with any value.",
            hint="Leave it out, and name the authority of the server: ?ssl_ca=/etc/ssl/ca.pem.",
        )
    with retry_login(url), mysql_errors():
        connection = _open_connection(settings)
        with connection.cursor() as cursor:
            for statement in _SESSION:
                cursor.execute(statement)
        return connection


def _open_connection(settings: Mapping[str, Any]) -> Connection:
    try:
        return MySQLConnection(**settings)
    except TypeError as error:
        raise ConfigurationError(
            f"database.url has an option that PyMySQL does not know: {error}.",
            hint="For TLS with verification: ?ssl_ca=/etc/ssl/ca.pem, with a client certificate &ssl_cert=…&ssl_key=….",
        ) from None


class MySQLReconnecting(ReconnectingTo[Connection]):
    """One autocommit connection, opened when first needed, and again after it broke or became read-only."""

    def _open(self) -> Connection:
        connection = connect(self._url, self._application_name, autocommit=True, is_primary=self._is_primary)
        with mysql_errors(), connection.cursor() as cursor:
            cursor.execute(_NOT_IDLE)
        return connection

    def _is_open(self, connection: Connection) -> bool:
        return connection.open

    def _our_errors(self) -> AbstractContextManager[None]:
        return mysql_errors()

    def _reports_read_only(self, connection: Connection) -> None:  # noqa: ARG002 - no answer says so
        return None

    def _ask_read_only(self, connection: Connection) -> bool:
        return is_read_only(connection)


@contextmanager
def begun(connection: Connection) -> Iterator[Cursor]:
    """A transaction, which is committed at the end and rolled back after an error."""
    connection.begin()
    try:
        with connection.cursor() as cursor:
            yield cursor
        connection.commit()
    except BaseException:
        _roll_back(connection)
        raise


def _roll_back(connection: Connection) -> None:
    try:
        connection.rollback()
    except pymysql.MySQLError:
        # The server rolls back when it notices that the connection is lost.
        if connection.open:
            connection.close()


_LOCK = f"SELECT GET_LOCK('inorder install', {LOCK_TIMEOUT_SECONDS})"
_UNLOCK = "DO RELEASE_LOCK('inorder install')"


class MySQLDatabase(SingleConnectionDatabase[Connection]):
    """MySQL or MariaDB as a `Database`; outside `transaction` every statement commits by itself."""

    dialect = "mysql"

    def __init__(self, url: str, application_name: str, *, is_primary: bool = True) -> None:
        super().__init__(MySQLReconnecting(url, application_name, is_primary=is_primary))

    def _begun(self, connection: Connection) -> AbstractContextManager[Cursor]:
        return begun(connection)

    def _install(self, connection: Connection, statements: Iterable[str]) -> None:
        # No transaction: in MySQL every DDL statement commits by itself.
        with connection.cursor() as cursor:
            cursor.execute(_LOCK)
            if cursor.fetchone() != (1,):
                raise TransientError("Another instance is creating its tables.", hint="It is retried.")
            try:
                for statement in statements:
                    cursor.execute(statement)
            finally:
                if connection.open:
                    cursor.execute(_UNLOCK)


# A number that is not listed is a ConfigurationError.
_NUMBERS: Final[dict[type[InorderError], tuple[int, ...]]] = {
    AuthenticationError: (1045, 1251, 1275, 1698, 1862, 2059),
    UnreachableError: (
        *(0, 2002, 2003, 2005, 2006, 2013, 2055),  # the driver's own: connection refused, or lost
        *(1053, 1077, 1079, 1152, 1184),  # shutting down, aborted
        *(1158, 1159, 1160, 1161),  # the network, as the server saw it
        *(1927, 4031),  # the session was killed, or ended for being idle
        1047,  # a node of a Galera cluster without a majority
    ),
    ReadOnlyServerError: (1290, 1792, 1836, 1874),  # a failover is under way
    LockConflictError: (1205, 1213, 3572, 1020),  # lock timeout, deadlock, row changed
    TransientError: (
        *(1317, 3024, 1969),  # statement interrupted
        *(1040, 1203, 1226),  # too many connections
        3100,  # a hook of group replication refused it
        *(1021, 1030, 1037, 1038, 1041, 1114, 1135, 1180),  # disk, memory or threads exhausted
    ),
    RejectedError: (
        *(1048, 1062, 1364, 1451, 1452, 1557, 1586, 3819, 4025),  # constraints
        *(1264, 1265, 1292, 1366, 1406, 1411, 3140, 4038),  # data
        *(1118, 1153, 1301),  # too large for a row, a packet or a function
        1644,  # SIGNAL in a trigger
    ),
}

FAMILIES: Final[dict[int, type[InorderError]]] = {
    number: family for family, numbers in _NUMBERS.items() for number in numbers
}

_HINTS: Final[dict[type[InorderError], str]] = {
    AuthenticationError: "Check user, password and certificates in database.url, and the user on the server.",
    UnreachableError: "Check that the server of database.url is running; it is retried.",
    ReadOnlyServerError: READ_ONLY_HINT,
    TransientError: "It is retried.",
    LockConflictError: "It is retried.",
    ConfigurationError: (
        "Check database.url and its privileges; `inorder doctor` shows what is missing, `inorder schema install` "
        "creates it."
    ),
}

# What PyMySQL and the server do not call by the name that people search for.
_MEANINGS: Final[dict[int, str]] = {
    **dict.fromkeys(_NUMBERS[AuthenticationError], "authentication failed"),
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370), "permission denied"),
    1049: "the database does not exist",
    1054: "the column does not exist",
    1146: "the table does not exist",
    1205: "timed out",
}


def classify(error: pymysql.MySQLError) -> InorderError:
    """The inorder error for a driver's error; without a number the connection is closed."""
    number = _number(error)
    if isinstance(reason := getattr(error, "original_exception", None), ssl.SSLError):
        return AuthenticationError(
            f"MySQL: authentication failed: TLS: {reason.reason or reason}.", hint=_HINTS[AuthenticationError]
        )
    text = str(error.args[-1]).strip().rstrip(".") if error.args else ""
    family = FAMILIES.get(number, ConfigurationError)
    meaning = f"{_MEANINGS[number]}: " if number in _MEANINGS else ""
    said = f"MySQL: {meaning}{text or 'the connection is closed'} [error {number}]."
    if not issubclass(family, RejectedError):
        return family(said, hint=_HINTS.get(family, ""))
    # The text quotes values of the row, which logs must not have.
    found = family(_QUOTED_VALUE.sub(_HIDDEN, said), hint=_HINTS.get(family, ""))
    found.state, found.detail = str(number), said
    return found


# `Duplicate entry '7-anna' for key 'PRIMARY'`, `Incorrect integer value: 'abc' for column`
_QUOTED_VALUE: Final = re.compile(r"(entry |value: )'.*'(?= for (?:key|column))", re.DOTALL)
_HIDDEN: Final = r"\1'…'"


def _number(error: pymysql.MySQLError) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


@contextmanager
def mysql_errors() -> Iterator[None]:
    """Raises PyMySQL's errors as inorder's, with the original as the cause."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise classify(error) from error
