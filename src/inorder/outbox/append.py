"""Running the append statement in the caller's transaction, in each dialect and for each driver.

A connection is recognised by the names of its classes, so no driver is imported that the application has not loaded
itself. Each writer refuses a connection on which every statement commits by itself, because then a message would be
committed without the rows that it describes, and runs the append statements. No writer commits, rolls back or fetches
results.

**Sessions are flushed first.** The database assigns a message's id at its INSERT, and ids are the order of messages. A
SQLAlchemy session keeps changed objects back until it flushes. If the message were inserted before, its transaction
would have an id before it has the locks of the rows that it changes, and two transactions on one key could take ids in
one order and locks in the other: the older message would describe the newer row. `flush=False` leaves the session as it
is. Connections and cursors keep nothing back, and neither does Django, whose `save()` executes its statement at once.

| accepted                                         | refused when                                                 |
|--------------------------------------------------|--------------------------------------------------------------|
| SQLAlchemy Session, Connection, scoped and async | the isolation level is AUTOCOMMIT                            |
| psycopg Connection, AsyncConnection              | autocommit is on and no transaction block is open            |
| PyMySQL Connection                               | autocommit is on and no transaction has begun                |
| sqlite3 Connection                               | isolation_level None or autocommit True, and no BEGIN        |
| Django's connection                              | autocommit is on, outside atomic()                           |

The statement itself is `append` in `layouts/<layout>/<dialect>.sql`. It binds the columns of the layout; a record with
something that the layout has no column for is refused first. On PostgreSQL the statement also wakes a sleeping relay
(`layouts/waking/postgres.sql`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import orjson

from inorder.database.sql import family, load, named, quoted, quoted_table
from inorder.model.errors import ConfigurationError, ValidationError
from inorder.model.message import Record, to_text

log = logging.getLogger("inorder.publisher")

WRITABLE_LAYOUTS = ("native", "deimos", "trendyol")
"""The layouts with an `append` statement; the others have writers of their own."""

PublishResult = Coroutine[Any, Any, None] | None
"""A coroutine where the connection is async."""


class PublishCall(Coroutine[Any, Any, None]):
    """The coroutine of a publish on an async connection, which reports that it was never awaited.

    A forgotten `await` writes nothing: the transaction commits its rows without the event. Python only warns of it, and
    services rarely show warnings, so it is an error in the log too.
    """

    def __init__(self, call: Coroutine[Any, Any, None], topics: Sequence[str]) -> None:
        self._call = call
        self._topics = topics
        self._is_begun = False

    def __await__(self) -> Generator[Any, Any, None]:
        self._is_begun = True
        return self._call.__await__()

    def send(self, value: Any) -> Any:
        self._is_begun = True
        return self._call.send(value)

    def throw(self, *details: Any) -> Any:
        self._is_begun = True
        return self._call.throw(*details)

    def close(self) -> None:
        self._is_begun = True
        self._call.close()

    def __del__(self) -> None:
        if not self._is_begun:
            topics = sorted(set(self._topics))
            log.error("publisher.not_awaited", extra={"messages": len(self._topics), "topics": topics})


# Escaped text may be twice its size, and MySQL accepts 16 MiB per statement by default; 4 MiB leaves room. It also
# keeps a long list from becoming one enormous parameter.
_MAX_BYTES = 4 * 1024 * 1024
_MAX_RECORDS = 10_000

_LAYOUTS = "inorder.outbox.layouts"

KEY_CHARACTERS = 200
"""The length of a key of the layout `trendyol`."""


@dataclass(frozen=True, slots=True)
class OutboxTable:
    """A table that `publish` writes, and its layout."""

    table: str
    layout: str = "native"

    def __post_init__(self) -> None:
        quoted(self.table)
        if self.layout not in WRITABLE_LAYOUTS:
            raise ConfigurationError(
                f"Messages cannot be published into a table of the layout {self.layout!r}.",
                hint=f"Its own writers fill it. inorder writes: {', '.join(WRITABLE_LAYOUTS)}.",
            )

    def check(self, records: Sequence[Record], *, in_list: bool) -> None:
        """Raises `ValidationError` for a record with something that the columns of the layout cannot hold."""
        flaws = _FLAWS.get(self.layout)
        if flaws is None:
            return
        for position, record in enumerate(records):
            for field, reason in flaws(record):
                place = f"messages[{position}]." if in_list else ""
                raise ValidationError(
                    f"{place}{field.removesuffix('_ms')}",
                    f"the layout {self.layout!r} of table {self.table!r} cannot hold it: {reason}",
                    hint='Change it or leave it out, or use layout="native".',
                )


Writer = Callable[[Any, OutboxTable, Sequence[Record]], PublishResult]

_ACCEPTED = (
    "a SQLAlchemy Session, Connection, scoped_session, AsyncSession or AsyncConnection, a psycopg 3 "
    "Connection or AsyncConnection, a PyMySQL Connection, a sqlite3 Connection, or django.db.connection"
)


def writer_of(connection: object) -> Writer:
    """The function that writes through a connection of this kind; raises `ConfigurationError` for any other object."""
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__]
    writer = next((_WRITERS[name] for name in names if name in _WRITERS), None)
    if writer is None:
        raise ConfigurationError(
            f"Cannot publish through a {names[0]}.",
            hint=f"Pass the object that holds your transaction: {_ACCEPTED}.",
        )
    return writer


def flush_pending(connection: Any) -> PublishResult:
    """Flushes the pending objects of a SQLAlchemy session; there are none in any other connection."""
    flush = _FLUSHES.get(writer_of(connection))
    return None if flush is None else flush(connection)


def write_flushed(connection: Any, table: OutboxTable, records: Sequence[Record]) -> PublishResult:
    """Flushes a session, then writes through it."""
    flushed = flush_pending(connection)
    if flushed is None:
        return writer_of(connection)(connection, table, records)
    return _write_after(flushed, connection, table, records)


async def _write_after(
    flushed: Coroutine[Any, Any, None], connection: Any, table: OutboxTable, records: Sequence[Record]
) -> None:
    await flushed
    written = writer_of(connection)(connection, table, records)
    if written is not None:
        await written


def _statements(table: OutboxTable, dialect: str, records: Sequence[Record]) -> Iterator[tuple[AppendStatement, Any]]:
    statement = append_statement(table.table, dialect, table.layout)
    for batch in split_batches(records):
        yield statement, statement.parameters(batch)


def _sqlalchemy_session(session: Any, table: OutboxTable, records: Sequence[Record]) -> None:
    _sqlalchemy(session.connection(), table, records)


def _sqlalchemy_scoped(registry: Any, table: OutboxTable, records: Sequence[Record]) -> None:
    _sqlalchemy_session(registry(), table, records)


def _sqlalchemy(connection: Any, table: OutboxTable, records: Sequence[Record]) -> None:
    _refuse_sqlalchemy_autocommit(connection)
    for statement, parameters in _statements(table, connection.dialect.name, records):
        connection.execute(_text(statement.named), parameters)


def _sqlalchemy_async(handle: Any, table: OutboxTable, records: Sequence[Record]) -> PublishResult:
    result: PublishResult = handle.run_sync(_sqlalchemy, table, records)
    return result


def _sqlalchemy_async_session(handle: Any, table: OutboxTable, records: Sequence[Record]) -> PublishResult:
    result: PublishResult = handle.run_sync(_sqlalchemy_session, table, records)
    return result


def _sqlalchemy_async_scoped(registry: Any, table: OutboxTable, records: Sequence[Record]) -> PublishResult:
    return _sqlalchemy_async_session(registry(), table, records)


def _flush_session(session: Any) -> None:
    # Before the flush, which would commit by itself too.
    _refuse_sqlalchemy_autocommit(session.connection())
    # Listeners of a flush may publish. SQLAlchemy refuses a flush within a flush, and has no public name for this.
    if not getattr(session, "_flushing", False):
        session.flush()


def _flush_scoped(registry: Any) -> None:
    _flush_session(registry())


def _flush_async_session(handle: Any) -> PublishResult:
    result: PublishResult = handle.run_sync(_flush_session)
    return result


def _flush_async_scoped(registry: Any) -> PublishResult:
    return _flush_async_session(registry())


@cache
def _text(statement: str) -> Any:
    from sqlalchemy import text

    return text(statement)


def _refuse_sqlalchemy_autocommit(connection: Any) -> None:
    if _sqlalchemy_autocommits(connection):
        raise _autocommit("SQLAlchemy connection", "Leave out isolation_level AUTOCOMMIT.")


def _sqlalchemy_autocommits(connection: Any) -> bool:
    try:
        autocommit = connection.dialect.detect_autocommit_setting(connection.connection.dbapi_connection)
    except NotImplementedError:
        return False
    if not autocommit:
        return False
    # SQLAlchemy's recipe for SQLite switches the driver to autocommit and sends BEGIN itself, when the connection
    # begins, which the first statement would do anyway.
    if not connection.in_transaction():
        connection.begin()
    return not getattr(connection.connection.driver_connection, "in_transaction", False)


def _psycopg(connection: Any, table: OutboxTable, records: Sequence[Record]) -> None:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    _refuse_psycopg_autocommit(connection)
    # A plain cursor, because the connection's factories may use other placeholders or expect result columns.
    with Cursor(connection, row_factory=tuple_row) as cursor:
        for statement, parameters in _statements(table, "postgresql", records):
            cursor.execute(statement.pyformat.encode(), parameters)


async def _psycopg_async(connection: Any, table: OutboxTable, records: Sequence[Record]) -> None:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    _refuse_psycopg_autocommit(connection)
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        for statement, parameters in _statements(table, "postgresql", records):
            await cursor.execute(statement.pyformat.encode(), parameters)


def _refuse_psycopg_autocommit(connection: Any) -> None:
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise _autocommit("psycopg connection", "Publish inside `with connection.transaction():`.")


def _pymysql(connection: Any, table: OutboxTable, records: Sequence[Record]) -> None:
    from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS

    if connection.get_autocommit() and not connection.server_status & SERVER_STATUS_IN_TRANS:
        raise _autocommit("PyMySQL connection", "Call connection.begin() first.")
    with connection.cursor() as cursor:
        for statement, parameters in _statements(table, "mysql", records):
            cursor.executemany(statement.pyformat, parameters)


def _sqlite(connection: Any, table: OutboxTable, records: Sequence[Record]) -> None:
    # Python 3.12 added `autocommit`; -1 means that isolation_level decides, as it does before 3.12.
    autocommit = getattr(connection, "autocommit", -1)
    commits_alone = connection.isolation_level is None if autocommit == -1 else autocommit
    if commits_alone and not connection.in_transaction:
        raise _autocommit("sqlite3 connection", 'Execute "BEGIN" first.')
    for statement, parameters in _statements(table, "sqlite", records):
        connection.executemany(statement.named, parameters)


def _django(connection: Any, table: OutboxTable, records: Sequence[Record]) -> None:
    statements = _statements(table, getattr(connection, "vendor", ""), records)
    if not connection.in_atomic_block and connection.get_autocommit():
        raise _autocommit("Django connection", "Publish inside `with transaction.atomic():`.")
    with connection.cursor() as cursor:
        for statement, parameters in statements:
            execute = cursor.execute if statement.in_arrays else cursor.executemany
            execute(statement.pyformat, parameters)


def _autocommit(kind: str, hint: str) -> ConfigurationError:
    return ConfigurationError(
        f"The {kind} is in autocommit mode: the message would be committed without the rows that it describes.",
        hint=hint,
    )


_WRITERS: dict[str, Writer] = {
    "sqlalchemy.orm.session.Session": _sqlalchemy_session,
    "sqlalchemy.orm.scoping.scoped_session": _sqlalchemy_scoped,
    "sqlalchemy.engine.base.Connection": _sqlalchemy,
    "sqlalchemy.ext.asyncio.session.AsyncSession": _sqlalchemy_async_session,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": _sqlalchemy_async_scoped,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _sqlalchemy_async,
    "psycopg.Connection": _psycopg,
    "psycopg.AsyncConnection": _psycopg_async,
    "pymysql.connections.Connection": _pymysql,
    "sqlite3.Connection": _sqlite,
    "django.db.backends.base.base.BaseDatabaseWrapper": _django,
    "django.utils.connection.ConnectionProxy": _django,
}

_FLUSHES: dict[Writer, Callable[[Any], PublishResult]] = {
    _sqlalchemy_session: _flush_session,
    _sqlalchemy_scoped: _flush_scoped,
    _sqlalchemy_async_session: _flush_async_session,
    _sqlalchemy_async_scoped: _flush_async_scoped,
}
"""How the sessions of these writers are flushed."""

# The statement.


@dataclass(frozen=True, slots=True)
class AppendStatement:
    """The append statement in two parameter styles.

    `pyformat` (`%(topic)s`) is in the `.sql` files, for psycopg, PyMySQL and Django; `named` (`:topic`) is derived from
    it for SQLAlchemy's `text()` and sqlite3. With `in_arrays` a statement takes one list per column and is executed
    once for many records; without, it takes one row and is executed with a list of rows.
    """

    pyformat: str
    named: str
    in_arrays: bool

    @property
    def columns(self) -> list[str]:
        """The parameters of the statement; a layout may have fewer columns than a record has fields."""
        return [column for column in _COLUMNS if f"%({column})s" in self.pyformat]

    def parameters(self, records: Sequence[Record]) -> Any:
        """The parameters of these records, in the form that the statement takes."""
        columns = self.columns
        if self.in_arrays:
            return {column: [_COLUMNS[column](record) for record in records] for column in columns}
        return [{column: _COLUMNS[column](record) for column in columns} for record in records]


@cache
def append_statement(table: str, dialect: str, layout: str = "native") -> AppendStatement:
    """The append statement of a table; `dialect` is the name that SQLAlchemy or Django gives a database."""
    names = {"table": quoted_table(dialect, table)}
    in_arrays = family(dialect) == "postgres"
    if in_arrays:
        names["woken"] = load(_LAYOUTS, "waking/postgres.sql").render("woken", **names)
    pyformat = load(_LAYOUTS, f"{layout}/{family(dialect)}.sql").render("append", **names)
    return AppendStatement(pyformat, named(pyformat), in_arrays)


def split_batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Splits a long list into statements that every server accepts; almost every list is one."""
    start = size = 0
    for position, record in enumerate(records):
        bytes_ = record_size(record)
        if position > start and (size + bytes_ > _MAX_BYTES or position - start == _MAX_RECORDS):
            yield records[start:position]
            start, size = position, 0
        size += bytes_
    if start < len(records):
        yield records[start:]


def record_size(record: Record) -> int:
    """The bytes of key, value and headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


# What a layout cannot hold: the field of a record, and why.

Flaws = Iterator[tuple[str, str]]


def _without(record: Record, *fields: str) -> Flaws:
    for field in fields:
        if getattr(record, field) not in (None, ()):
            yield field, "there is no column for it."


def _deimos_flaws(record: Record) -> Flaws:
    yield from _without(record, "headers", "partition", "timestamp_ms")


def _trendyol_flaws(record: Record) -> Flaws:
    yield from _without(record, "partition", "timestamp_ms")
    if (reason := _not_text(record.key)) is not None:
        yield "key", reason
    elif len(_decode(record.key) or "") > KEY_CHARACTERS:
        yield "key", f"its column holds {KEY_CHARACTERS} characters, and this key is longer."
    if record.value is None:
        yield "value", "its column is NOT NULL, so there are no tombstones."
    elif (reason := _not_text(record.value)) is not None:
        yield "value", reason
    for name, value in record.headers:
        if value is None:
            yield "headers", f"{name!r} has no value, and its column holds text."
        elif (reason := _not_text(value)) is not None:
            yield "headers", f"{name!r}: {reason}"
    names = [name for name, _ in record.headers]
    if len(set(names)) < len(names):
        yield "headers", "a name occurs twice, and its column is a JSON object."


def _not_text(value: bytes | None) -> str | None:
    """Why a column for text cannot hold these bytes."""
    if value is None:
        return None
    if b"\x00" in value:
        return "its column holds text, which cannot contain null characters."
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"its column holds text, and this is not UTF-8 ({error.reason} at byte {error.start})."
    return None


_FLAWS: dict[str, Callable[[Record], Flaws]] = {"deimos": _deimos_flaws, "trendyol": _trendyol_flaws}


# The values of a statement.


def _decode(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _trendyol_header(record: Record) -> str | None:
    """The headers as a JSON object of texts; None without headers."""
    if not record.headers:
        return None
    return orjson.dumps({name: _decode(value) for name, value in record.headers}).decode()


_COLUMNS: dict[str, Callable[[Record], str | bytes | int | None]] = {
    "topic": attrgetter("topic"),
    "key": attrgetter("key"),
    "value": attrgetter("value"),
    "headers": lambda record: to_text(record.headers),
    "partition": attrgetter("partition"),
    "timestamp": attrgetter("timestamp_ms"),
    "text_key": lambda record: _decode(record.key),
    "text_value": lambda record: _decode(record.value),
    "header": _trendyol_header,
}
