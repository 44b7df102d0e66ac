"""PostgreSQL: connections, transactions, DDL, errors, and bulk statements.

Connections carry an application name and notice a dead peer within seconds. Errors are classified by SQLSTATE class, in
one table; their texts are never parsed. Below that are two fast paths for many rows: one statement for each row with a
savepoint, sent in one pipeline (`execute_each`), and columns written as PostgreSQL arrays (`numbers`, `texts`,
`binaries`).

**Poolers.** One that lends a session for a transaction only, as PgBouncer does in transaction mode, gives what we set
or lock in a session to the next client, and may answer our next statement in another. It is recognised by the process
id that it reports at the login, which is not that of the session. A connection through it (`is_pooled`) has no
state: no settings of the session, no session locks, no LISTEN, no prepared statements; what a transaction needs is set
within it. Poolers in session mode are treated alike, because they look the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, TypeVar

import psycopg
from psycopg import Connection, errors, pq
from psycopg.abc import PQGen

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
    UnknownOutcomeError,
    UnreachableError,
)

CONNECT_TIMEOUT_SECONDS = 10

RV = TypeVar("RV")

# Server-side limits, as long as a Kafka transaction of the relay may last. A leader that is paused while it reads the
# response to a mark, or within a transaction, would keep rows locked for its successor.
_SESSION = """
    SELECT set_config('tcp_user_timeout', '10s', false), set_config('idle_in_transaction_session_timeout', '10s', false)
"""
_TRANSACTION = "SELECT set_config('idle_in_transaction_session_timeout', '10s', true)"

_WHO_ANSWERS = "SELECT pg_backend_pid(), current_setting('transaction_read_only') = 'on'"
READ_ONLY: Final = "SELECT current_setting('transaction_read_only') = 'on'"


class PostgresConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server refuses a write because the session is read-only.

    All that psycopg sends goes through `wait`. So it holds for each of the many callers, and for those who reconnect
    when their connection is closed nothing else is needed.
    """

    is_pooled = False
    """Whether a pooler is between, so that the session may be another one for each transaction."""

    def wait(self, gen: PQGen[RV], *options: Any, **named_options: Any) -> RV:
        try:
            return super().wait(gen, *options, **named_options)
        except errors.ReadOnlySqlTransaction:
            self.close()
            raise


def connect(
    url: str, application_name: str, *, autocommit: bool = False, is_primary: bool = True
) -> PostgresConnection:
    """Connects to a SQLAlchemy URL; raises `UnreachableError` where the server does not answer or refuses the login.

    Of several hosts the first one that accepts writes; any, where `is_primary` is False. `target_session_attrs` in the
    URL goes over that.
    """

    def connect_one(one: str) -> PostgresConnection:
        with retry_login(one), postgres_errors():
            address = read_credentials(one).set(drivername="postgresql")
            if is_primary and "target_session_attrs" not in address.query:
                address = address.update_query_dict({"target_session_attrs": "read-write"})
            connection: PostgresConnection = PostgresConnection.connect(
                address.render_as_string(hide_password=False),
                autocommit=True,
                application_name=application_name,
                connect_timeout=CONNECT_TIMEOUT_SECONDS,
                # Without keepalives a peer that vanished would be waited for for hours.
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=30_000,
            )
            _look_at(connection, is_primary=is_primary)
            connection.autocommit = autocommit
            return connection

    return connect_in_turn(url, connect_one)


def _look_at(connection: PostgresConnection, *, is_primary: bool) -> None:
    """Finds out whether a pooler is between, and refuses a read-only server that it did not tell us about."""
    pid, is_read_only = connection.execute(_WHO_ANSWERS, prepare=False).fetchone() or (0, False)
    if is_primary and is_read_only:
        connection.close()
        raise ReadOnlyServerError("PostgreSQL: the session is read-only.", hint=READ_ONLY_HINT)
    connection.is_pooled = pid != connection.info.backend_pid
    if connection.is_pooled:
        connection.prepare_threshold = None


def reports_read_only(connection: psycopg.Connection[Any]) -> bool | None:
    """Whether the server said with its last answer that the session is read-only; None if it does not report it.

    Servers report it since PostgreSQL 14; a pooler may report what it heard long ago.
    """
    if is_pooled(connection):
        return None
    reported = {connection.info.parameter_status(name) for name in ("in_hot_standby", "default_transaction_read_only")}
    return True if "on" in reported else None if None in reported else False


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Whether a pooler is between; then nothing may be set, locked or prepared for the session."""
    return isinstance(connection, PostgresConnection) and connection.is_pooled


def is_usable(connection: psycopg.Connection[Any] | None) -> TypeGuard[PostgresConnection]:
    """Whether a connection is open, and its server has not become read-only."""
    if connection is None or connection.closed:
        return False
    if reports_read_only(connection):
        connection.close()
        return False
    return True


class PostgresReconnecting(ReconnectingTo[psycopg.Connection[Any]]):
    """One autocommit connection, opened when first needed, and again after it broke or became read-only."""

    def _open(self) -> psycopg.Connection[Any]:
        connection = connect(self._url, self._application_name, autocommit=True, is_primary=self._is_primary)
        if not connection.is_pooled:
            connection.execute(_SESSION)
        return connection

    def _is_open(self, connection: psycopg.Connection[Any]) -> bool:
        return not connection.closed

    def _keeps_session(self, connection: psycopg.Connection[Any]) -> bool:
        return not is_pooled(connection)

    def _our_errors(self) -> AbstractContextManager[None]:
        return postgres_errors()

    def _reports_read_only(self, connection: psycopg.Connection[Any]) -> bool | None:
        return reports_read_only(connection)

    def _ask_read_only(self, connection: psycopg.Connection[Any]) -> bool:
        return connection.execute(READ_ONLY).fetchone() == (True,)


class PostgresDatabase(SingleConnectionDatabase[psycopg.Connection[Any]]):
    """PostgreSQL as a `Database`; a transaction is a block on the connection."""

    dialect = "postgres"

    def __init__(self, url: str, application_name: str, *, is_primary: bool = True) -> None:
        super().__init__(PostgresReconnecting(url, application_name, is_primary=is_primary))

    @contextmanager
    def _begun(self, connection: psycopg.Connection[Any]) -> Iterator[Cursor]:
        with connection.transaction(), connection.cursor() as cursor:
            if is_pooled(connection):
                cursor.execute(_TRANSACTION)
            yield cursor

    def _install(self, connection: psycopg.Connection[Any], statements: Iterable[str]) -> None:
        install(connection, statements)


PsycopgConnection = psycopg.Connection[Any]


@contextmanager
def committed(connection: PsycopgConnection, what: str) -> Iterator[None]:
    """Commits after the block, rolls back after an exception; the connection must not be in autocommit mode."""
    try:
        yield
    except BaseException:
        abandon(connection)
        raise
    commit(connection, what)


def commit(connection: PsycopgConnection, what: str) -> None:
    """Commits; a lost response raises `UnknownOutcomeError`, and a lost connection is closed."""
    try:
        connection.commit()
    except psycopg.Error as error:
        lost = connection.broken or connection.closed
        abandon(connection)
        if lost:
            raise UnknownOutcomeError(f"The connection was lost while {what} was committed.") from error
        raise classify(error) from error


def abandon(connection: PsycopgConnection) -> None:
    """Rolls back an open transaction, or closes a connection that is lost."""
    try:
        connection.rollback()
    except psycopg.Error:
        # The server rolls back what a lost session left open.
        connection.close()


# Two concurrent sessions race inside CREATE TABLE IF NOT EXISTS, and one of them fails.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('inorder install'))"


@contextmanager
def one_installer(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A transaction, its own or part of the open one, in which no other instance creates or drops inorder's tables."""
    with connection.transaction():
        connection.execute(_LOCK)
        yield connection


def install(connection: psycopg.Connection[Any], statements: Iterable[str]) -> None:
    """Runs idempotent DDL, in its own transaction or as part of the open one."""
    with one_installer(connection):
        for statement in statements:
            connection.execute(statement)


FAMILIES: Final[dict[str, type[InorderError]]] = {
    "08": UnreachableError,  # connection exception
    "57": UnreachableError,  # operator intervention: shutting down, starting up, session terminated
    "25": TransientError,  # idle too long: this process was paused
    "40": TransientError,  # deadlock, serialisation
    "53": TransientError,  # disk, memory or connections exhausted
    "55": TransientError,  # lock not available in time
    "58": TransientError,  # I/O error of the server
    "22": RejectedError,  # data exception
    "23": RejectedError,  # constraint
    "44": RejectedError,  # check option of a view
    "P0": RejectedError,  # raised by a trigger of the table's owner
    "54": RejectedError,  # too large for an index or a row
    "28": ConfigurationError,  # wrong user or password
    "3D": ConfigurationError,  # no such database
    "42": ConfigurationError,  # no such table or column, permission denied
}
"""By SQLSTATE class; any other class is a `ConfigurationError`."""

_STATES: Final[dict[str, type[InorderError]]] = {
    "25006": ReadOnlyServerError,
    "40001": LockConflictError,  # serialisation failure
    "40P01": LockConflictError,  # deadlock
    "55P03": LockConflictError,  # lock not available in time
}
"""States that are unlike the rest of their class."""

_HINTS: Final[dict[type[InorderError], str]] = {
    ReadOnlyServerError: READ_ONLY_HINT,
    UnreachableError: "Check that the server of database.url is running and accepts this login; it is retried.",
    TransientError: "It is retried.",
    LockConflictError: "It is retried.",
    ConfigurationError: (
        "Check database.url and its privileges; `inorder doctor` shows what is missing, `inorder schema install` "
        "creates it."
    ),
}


def classify(error: psycopg.Error) -> InorderError:
    """The inorder error for a driver's error; without a SQLSTATE the server was not reached or the connection broke.

    libpq reports the server's own text for a failed connection, such as `Connection refused`, `password authentication
    failed` or `database … does not exist`."""
    family = _family(error)
    diagnosis = error.diag.message_primary or (str(error).strip().splitlines() or [type(error).__name__])[0]
    if family is UnreachableError and not error.sqlstate and (refusal := _refusal(str(error))) is not None:
        return refusal
    if isinstance(error, errors.ConnectionTimeout):
        diagnosis = f"the connection attempt timed out: {diagnosis}"
    detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
    state = f" [SQLSTATE {error.sqlstate}]" if error.sqlstate else ""
    if not issubclass(family, RejectedError):
        return family(f"PostgreSQL: {diagnosis}{detail}{state}.", hint=_HINTS.get(family, ""))
    # The server's DETAIL is the row that it refuses, and the end of some messages a value; logs must have neither.
    found = family(f"PostgreSQL: {_QUOTED_VALUE.sub(_HIDDEN, diagnosis)}{state}.", hint=_HINTS.get(family, ""))
    found.state, found.detail = error.sqlstate or "", f"PostgreSQL: {diagnosis}{detail}{state}."
    return found


# `invalid input syntax for type integer: "abc"`, `value "99999999999" is out of range for type integer`
_QUOTED_VALUE: Final = re.compile(r'(: |\bvalue )".*"(?=$| is )', re.DOTALL)
_HIDDEN: Final = r'\1"…"'


_LOGIN_REFUSED: Final = re.compile(
    r"FATAL: .*(authentication failed|role .* does not exist|no pg_hba\.conf entry|is not permitted to log in"
    r"|requires a valid client certificate|certificate .* failed)|no password supplied|certificate verify failed",
    re.IGNORECASE,
)
_NO_DATABASE: Final = re.compile(r"FATAL: .*(database .* does not exist)", re.IGNORECASE)


def _refusal(text: str) -> UnreachableError | None:
    """The error for a connection that the server refused for its login or its database.

    libpq gives no SQLSTATE for a connection that was not made (28P01, 28000, 3D000), only the server's text.
    """
    line = next((each.strip() for each in text.splitlines() if "FATAL" in each), text.strip().partition("\n")[0])
    said = line.rpartition("FATAL:")[2].strip()
    if _LOGIN_REFUSED.search(text):
        return AuthenticationError(
            f"PostgreSQL: authentication failed: {said}.",
            hint="Check user and password in database.url, and pg_hba.conf of the server.",
        )
    if _NO_DATABASE.search(text):
        return UnreachableError(
            f"PostgreSQL: the database does not exist: {said}.", hint="Create it, or correct database.url."
        )
    return None


def _family(error: psycopg.Error) -> type[InorderError]:
    if error.sqlstate:
        return _STATES.get(error.sqlstate) or FAMILIES.get(error.sqlstate[:2], ConfigurationError)
    if isinstance(error, psycopg.ProgrammingError):
        return ConfigurationError  # libpq does not know an option of the URL
    # psycopg itself raises DataError for values it cannot send; anything else without a state is a lost connection.
    return RejectedError if isinstance(error, psycopg.DataError) else UnreachableError


@contextmanager
def postgres_errors() -> Iterator[None]:
    """Raises psycopg's errors as inorder's, with the original as the cause."""
    try:
        yield
    except psycopg.Error as error:
        raise classify(error) from error


# One statement for many rows, each in its own savepoint, without waiting for responses in between.
#
# One savepoint per row costs three round trips, and whether to release it or to roll back to it is known only after
# the second. In pipeline mode no decision is needed: the server skips everything after an error up to the next sync.
#
#     write · release · savepoint · sync · roll back to
#
# If the write succeeds, the release and a new savepoint follow it, and rolling back to that one undoes nothing. If it
# is refused, both are skipped, and the rollback undoes the write. So exactly one savepoint exists at any time, and
# after each row the transaction holds what was written and nothing else.

Bound: TypeAlias = Mapping[str, "str | int"]
Answer: TypeAlias = "list[tuple[bytes | None, ...]] | psycopg.Error"
"""The rows that a statement returned, as text, or why it was refused."""

_NAMED = re.compile(r"%\((\w+)\)s")
_INTEGER, _UNKNOWN = 23, 0
_numbers: Final = count(1)


class Savepoint(NamedTuple):
    """The statements around one savepoint."""

    isolate: str
    release: str
    undo: str


def execute_each(connection: Connection, statement: str, bounds: Sequence[Bound], savepoint: Savepoint) -> list[Answer]:
    """Runs the statement with each of `bounds` and returns an answer for each; the savepoint must exist, and is kept.

    Raises `psycopg.OperationalError` where the connection is lost.
    """
    if not bounds:
        return []
    text, names = numbered(statement)
    types = [_INTEGER if isinstance(bounds[0][name], int) else _UNKNOWN for name in names]
    own = b"inorder_each_%d" % next(_numbers)
    isolate, release, undo = map(str.encode, savepoint)
    pgconn = connection.pgconn
    pgconn.enter_pipeline_mode()
    try:
        pgconn.send_prepare(own, text, types)
        for bound in bounds:
            pgconn.send_query_prepared(own, [str(bound[name]).encode() for name in names])
            pgconn.send_query_params(release, None)
            pgconn.send_query_params(isolate, None)
            pgconn.pipeline_sync()
            pgconn.send_query_params(undo, None)
        pgconn.send_query_params(b"DEALLOCATE " + own, None)
        pgconn.pipeline_sync()
        answers = _answers(pgconn, len(bounds))
    finally:
        _leave(connection)
    if any(isinstance(answer, errors.ReadOnlySqlTransaction) for answer in answers):
        connection.close()  # as `PostgresConnection` does for what psycopg sends
    return answers


def numbered(statement: str) -> tuple[bytes, list[str]]:
    """The statement with numbered parameters in place of named ones, and the name of each number.

    >>> numbered("SELECT %(a)s, %(b)s, %(a)s %% 2")
    (b'SELECT $1, $2, $1 % 2', ['a', 'b'])
    """
    names = list(dict.fromkeys(_NAMED.findall(statement)))
    text = _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", statement)
    return text.replace("%%", "%").encode(), names


def _answers(pgconn: pq.abc.PGconn, rows: int) -> list[Answer]:
    _require(_next(pgconn))  # PREPARE
    answers: list[Answer] = []
    for _ in range(rows):
        answers.append(_answer(_next(pgconn)))
        for _ in ("release", "isolate"):  # executed, or skipped after a refusal
            _next(pgconn)
        _sync(pgconn)
        _require(_next(pgconn))
    _require(_next(pgconn))
    _sync(pgconn)
    return answers


def _next(pgconn: pq.abc.PGconn) -> pq.abc.PGresult:
    result = pgconn.get_result()
    if result is None or pgconn.status != pq.ConnStatus.OK:
        raise psycopg.OperationalError("the connection is lost")
    while pgconn.get_result() is not None:
        pass
    return result


def _sync(pgconn: pq.abc.PGconn) -> None:
    """Reads the result of a sync, which, unlike a command's, is not followed by a null result."""
    result = pgconn.get_result()
    if result is None or result.status != pq.ExecStatus.PIPELINE_SYNC:
        raise psycopg.OperationalError("the connection is lost")


def _answer(result: pq.abc.PGresult) -> Answer:
    if result.status == pq.ExecStatus.FATAL_ERROR:
        return errors.error_from_result(result)
    columns = range(result.nfields)
    return [tuple(result.get_value(row, column) for column in columns) for row in range(result.ntuples)]


def _require(result: pq.abc.PGresult) -> None:
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise errors.error_from_result(result)


def _leave(connection: Connection) -> None:
    """Leaves pipeline mode; a connection with unread results is closed, because it cannot be used again."""
    try:
        connection.pgconn.exit_pipeline_mode()
    except psycopg.Error:
        connection.close()


# Columns as array literals.
#
# psycopg would look up the type of each value and dump it in Python, about a microsecond each. Here C functions build
# one text for a whole column, ten times as fast, and the server parses it as fast as the binary form.


def numbers(column: Sequence[bool | int | float | None]) -> str:
    return "{" + str(list(column))[1:-1].replace("None", "NULL") + "}"


def texts(column: Sequence[str | None]) -> str:
    """Texts must not contain U+0000, which PostgreSQL cannot store; here it marks separators and nulls."""
    if not column:
        return "{}"
    marked = ["\0" if text is None else text for text in column]
    joined = "\0,".join(marked).replace("\\", "\\\\").replace('"', '\\"').replace("\0,", '","')
    return f'{{"{joined}"}}'.replace('"\0"', "NULL")


def binaries(column: Sequence[bytes | None]) -> str:
    """Bytes as hexadecimal digits."""
    return "{" + ",".join(["NULL" if data is None else f'"\\\\x{data.hex()}"' for data in column]) + "}"
