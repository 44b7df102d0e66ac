"""Opening connections to PostgreSQL the way a service needs them: named, and quick to notice a dead peer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import Connection, errors, pq

from inorder.database.credentials import patience, with_login
from inorder.database.database import Cursor, OneConnection, ReconnectingTo
from inorder.model.errors import (
    ConfigurationError,
    InorderError,
    RejectedError,
    TransientError,
    UnknownOutcomeError,
    UnreachableError,
)

CONNECT_TIMEOUT_SECONDS = 10

# The server's patience with us, as long as a Kafka transaction of ours may last. A leader that is paused while it reads
# the answer to a mark, or within a transaction, would keep rows locked for whoever took over from it.
_SESSION = """
    SELECT set_config('tcp_user_timeout', '10s', false), set_config('idle_in_transaction_session_timeout', '10s', false)
"""


def connect(url: str, application_name: str, *, autocommit: bool = False) -> psycopg.Connection[Any]:
    """A connection for a SQLAlchemy URL; a server that is away raises `UnreachableError`."""
    with patience(url), postgres_errors():
        conninfo = with_login(url).set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.connect(
            conninfo,
            autocommit=autocommit,
            application_name=application_name,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            # A peer that vanished without a word would otherwise be waited for for hours.
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=30_000,
        )


class PostgresReconnecting(ReconnectingTo[psycopg.Connection[Any]]):
    """One autocommit connection, opened when first needed and again after it broke."""

    def _open(self) -> psycopg.Connection[Any]:
        connection = connect(self._url, self._application_name, autocommit=True)
        connection.execute(_SESSION)
        return connection

    def _is_open(self, connection: psycopg.Connection[Any]) -> bool:
        return not connection.closed


# PostgreSQL as a `Database`.


class PostgresDatabase(OneConnection[psycopg.Connection[Any]]):
    """A transaction is a block on the connection."""

    dialect = "postgres"

    def __init__(self, url: str, application_name: str) -> None:
        super().__init__(PostgresReconnecting(url, application_name))

    def _our_errors(self) -> AbstractContextManager[None]:
        return postgres_errors()

    @contextmanager
    def _begun(self, connection: psycopg.Connection[Any]) -> Iterator[Cursor]:
        with connection.transaction(), connection.cursor() as cursor:
            yield cursor

    def _install(self, connection: psycopg.Connection[Any], statements: Iterable[str]) -> None:
        install(connection, statements)


# Ending a transaction whose commit may be answered or not.

PsycopgConnection = psycopg.Connection[Any]


@contextmanager
def committed(connection: PsycopgConnection, what: str) -> Iterator[None]:
    """Commits after the block, rolls back after an exception; the connection is not in autocommit mode."""
    try:
        yield
    except BaseException:
        abandon(connection)
        raise
    commit(connection, what)


def commit(connection: PsycopgConnection, what: str) -> None:
    """Commits; a lost answer is an `UnknownOutcomeError`, and a connection that is lost is closed."""
    try:
        connection.commit()
    except psycopg.Error as error:
        lost = connection.broken or connection.closed
        abandon(connection)
        if lost:
            raise UnknownOutcomeError(f"The connection was lost while {what} was committed.") from error
        raise classified(error) from error


def abandon(connection: PsycopgConnection) -> None:
    """Rolls back what is open, if the connection still can."""
    try:
        connection.rollback()
    except psycopg.Error:
        # Nothing to save: the server rolls back what a lost session left open.
        connection.close()


# Making tables, one installer at a time.

# Two sessions at once race inside CREATE TABLE IF NOT EXISTS, and one of them fails.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('inorder install'))"


@contextmanager
def one_installer(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A transaction, of its own or part of the one that is open, in which nobody else makes or drops our tables."""
    with connection.transaction():
        connection.execute(_LOCK)
        yield connection


def install(connection: psycopg.Connection[Any], statements: Iterable[str]) -> None:
    """Runs DDL that may be run again, in a transaction of its own or as part of the one that is open."""
    with one_installer(connection):
        for statement in statements:
            connection.execute(statement)


# PostgreSQL's errors in our families, by SQLSTATE class: one table, no reading of texts.

FAMILIES: Final[dict[str, type[InorderError]]] = {
    "08": UnreachableError,  # connection exception
    "57": UnreachableError,  # operator intervention: shutting down, starting up, session ended
    "25": TransientError,  # read-only or idle too long: a fail-over is under way, or we were paused
    "40": TransientError,  # deadlock, serialisation
    "53": TransientError,  # disk, memory or connections used up
    "55": TransientError,  # lock not available in time
    "58": TransientError,  # input/output error of the server
    "22": RejectedError,  # data exception
    "23": RejectedError,  # constraint
    "44": RejectedError,  # check option of a view
    "P0": RejectedError,  # raised by a trigger of the table's owner
    "54": RejectedError,  # too large for an index or a row
    "28": ConfigurationError,  # wrong user or password
    "3D": ConfigurationError,  # no such database
    "42": ConfigurationError,  # no such table or column, no right to it
}

_HINTS: Final[dict[type[InorderError], str]] = {
    UnreachableError: "Check that the server of database.url runs; the work is tried again.",
    TransientError: "It is tried again.",
    ConfigurationError: (
        "Check database.url and its rights; `inorder doctor` tells what is missing, `inorder schema install` makes it."
    ),
}


def classified(error: psycopg.Error) -> InorderError:
    """Our error for a driver's error; no SQLSTATE means that the server was not reached or went away."""
    family = _family(error)
    diagnosis = error.diag.message_primary or str(error).strip().splitlines()[0]
    detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
    state = f" [SQLSTATE {error.sqlstate}]" if error.sqlstate else ""
    return family(f"PostgreSQL: {diagnosis}{detail}{state}.", hint=_HINTS.get(family, ""))


def _family(error: psycopg.Error) -> type[InorderError]:
    if error.sqlstate:
        return FAMILIES.get(error.sqlstate[:2], ConfigurationError)
    # psycopg refuses unsendable values as DataError by itself; all else without a state is a lost connection.
    return RejectedError if isinstance(error, psycopg.DataError) else UnreachableError


@contextmanager
def postgres_errors() -> Iterator[None]:
    """Turns psycopg's errors into ours, the original kept as the cause."""
    try:
        yield
    except psycopg.Error as error:
        raise classified(error) from error


# One statement for many rows, each in a savepoint of its own, without waiting for an answer in between.
#
# A savepoint a row costs three round trips, and whether to release it or to go back to it is known only after the
# second. Sent in the pipeline of the protocol the rows need no decision, because the server skips whatever follows an
# error up to the next sync:
#
#     write · release · savepoint · sync · go back
#
# Where the write went well, the release and a new savepoint follow it, and going back to that one undoes nothing.
# Where it was refused, both are skipped, and going back undoes the write. So there is one savepoint at any time, and
# after each row the transaction holds what was written and nothing else.

Bound: TypeAlias = Mapping[str, "str | int"]
Answer: TypeAlias = "list[tuple[bytes | None, ...]] | psycopg.Error"
"""The rows that a statement gave, as texts, or why it was refused."""

_NAMED = re.compile(r"%\((\w+)\)s")
_INTEGER, _UNKNOWN = 23, 0
_numbers: Final = count(1)


class Savepoint(NamedTuple):
    """The statements around one savepoint."""

    isolate: str
    release: str
    undo: str


def execute_each(connection: Connection, statement: str, bounds: Sequence[Bound], savepoint: Savepoint) -> list[Answer]:
    """Runs the statement with each of `bounds` and returns an answer for each; the savepoint must be there, and stays.

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
        return _answers(pgconn, len(bounds))
    finally:
        _leave(connection)


def numbered(statement: str) -> tuple[bytes, list[str]]:
    """The statement with numbers in place of names, and the name of each number.

    >>> numbered("SELECT %(a)s, %(b)s, %(a)s %% 2")
    (b'SELECT $1, $2, $1 % 2', ['a', 'b'])
    """
    names = list(dict.fromkeys(_NAMED.findall(statement)))
    text = _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", statement)
    return text.replace("%%", "%").encode(), names


def _answers(pgconn: pq.abc.PGconn, rows: int) -> list[Answer]:
    _require(_next(pgconn))  # it was prepared
    answers: list[Answer] = []
    for _ in range(rows):
        answers.append(_answer(_next(pgconn)))
        for _ in ("release", "isolate"):  # done, or skipped behind a refusal
            _next(pgconn)
        _sync(pgconn)
        _require(_next(pgconn))
    _require(_next(pgconn))
    _sync(pgconn)
    return answers


def _next(pgconn: pq.abc.PGconn) -> pq.abc.PGresult:
    """The one result of the next command."""
    result = pgconn.get_result()
    if result is None or pgconn.status != pq.ConnStatus.OK:
        raise psycopg.OperationalError("the connection is lost")
    while pgconn.get_result() is not None:
        pass
    return result


def _sync(pgconn: pq.abc.PGconn) -> None:
    """A sync is one result without an end behind it."""
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
    """Ends the pipeline; a connection with something left in it is of no use to anybody."""
    try:
        connection.pgconn.exit_pipeline_mode()
    except psycopg.Error:
        connection.close()


# Lists as PostgreSQL writes arrays, a whole column at a time.
#
# psycopg would ask each value for its type and dump it in Python, about a microsecond each. Here a column is one text
# that C functions make, ten times as fast, and the server takes it as fast as the binary form.


def numbers(column: Sequence[bool | int | float | None]) -> str:
    """Numbers and booleans."""
    return "{" + str(list(column))[1:-1].replace("None", "NULL") + "}"


def texts(column: Sequence[str | None]) -> str:
    """Texts without U+0000, which PostgreSQL has in no text; so it can mark here what is between texts, and a null."""
    if not column:
        return "{}"
    marked = ["\0" if text is None else text for text in column]
    joined = "\0,".join(marked).replace("\\", "\\\\").replace('"', '\\"').replace("\0,", '","')
    return f'{{"{joined}"}}'.replace('"\0"', "NULL")


def binaries(column: Sequence[bytes | None]) -> str:
    """Bytes, in hexadecimal digits."""
    return "{" + ",".join(["NULL" if data is None else f'"\\\\x{data.hex()}"' for data in column]) + "}"
