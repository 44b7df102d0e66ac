"""One statement for many rows, each in a savepoint of its own, without waiting for an answer in between.

A savepoint a row costs three round trips, and whether to release it or to go back to it is known only after the second.
Sent in the pipeline of the protocol the rows need no decision, because the server skips whatever follows an error up
to the next sync:

    write · release · savepoint · sync · go back

Where the write went well, the release and a new savepoint follow it, and going back to that one undoes nothing. Where
it was refused, both are skipped, and going back undoes the write. So there is one savepoint at any time, and after each
row the transaction holds what was written and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple, TypeAlias

import psycopg
from psycopg import Connection, errors, pq

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
