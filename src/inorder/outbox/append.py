"""The statement that adds records to an outbox table, in each dialect and in each driver's spelling."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import orjson

from inorder.database.sql import family, load, named, quoted, quoted_table
from inorder.model.errors import ConfigurationError, ValidationError
from inorder.model.message import Record, to_text
from inorder.outbox.layouts import LAYOUTS, statements

# Records as the trendyol layout keeps them: everything is text, and headers are one JSON object.

KEY_CHARACTERS = 200


def text(value: bytes | None) -> str | None:
    """The text of a key or value; `flaws` has seen that it is text."""
    return None if value is None else value.decode()


def header(record: Record) -> str | None:
    """The headers as a JSON object of texts; no headers are no text."""
    if not record.headers:
        return None
    return orjson.dumps({name: text(value) for name, value in record.headers}).decode()


def flaws(record: Record) -> Iterator[tuple[str, str]]:
    """What the columns cannot hold: the field, and why not."""
    if (reason := _not_text(record.key)) is not None:
        yield "key", reason
    elif len(text(record.key) or "") > KEY_CHARACTERS:
        yield "key", f"its column holds {KEY_CHARACTERS} characters, and this key has more."
    if record.value is None:
        yield "value", "its column holds no null, so there are no tombstones."
    elif (reason := _not_text(record.value)) is not None:
        yield "value", reason
    for name, value in record.headers:
        if value is None:
            yield "headers", f"{name!r} has no value, and its column is for texts."
        elif (reason := _not_text(value)) is not None:
            yield "headers", f"{name!r}: {reason}"
    names = [name for name, _ in record.headers]
    if len(set(names)) < len(names):
        yield "headers", "a name is there twice, and its column is a JSON object."


def _not_text(value: bytes | None) -> str | None:
    """Why a column for text cannot hold these bytes."""
    if value is None:
        return None
    if b"\x00" in value:
        return "its column holds text, which has no null characters."
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"its column holds text, and this is not UTF-8 ({error.reason} at byte {error.start})."
    return None


# Escaped text may be twice its size, and MySQL takes 16 MiB a statement by default; 4 MiB leaves room. It
# also keeps a long list from becoming one enormous parameter.
_MAX_BYTES = 4 * 1024 * 1024
_MAX_RECORDS = 10_000

WRITABLE_LAYOUTS = tuple(name for name in LAYOUTS if "append" in statements(name, "sqlite"))
"""The layouts that our publisher writes; the others have writers of their own."""


@dataclass(frozen=True, slots=True)
class AppendStatement:
    """One statement in the two spellings of a bound value that drivers know.

    `pyformat` (`%(topic)s`) is what the `.sql` files hold and what psycopg, PyMySQL and Django take; `named`
    (`:topic`) is derived from it for SQLAlchemy's `text()` and sqlite3. With `in_arrays` a statement takes
    one list a column and is executed once for many records; without, it takes one row and is executed with a
    list of rows.
    """

    pyformat: str
    named: str
    in_arrays: bool

    @property
    def columns(self) -> list[str]:
        """What the statement binds; a layout may keep less than a record holds."""
        return [column for column in _COLUMNS if f"%({column})s" in self.pyformat]

    def parameters(self, records: Sequence[Record]) -> Any:
        """The bound values of these records, in the shape that the statement takes."""
        columns = self.columns
        if self.in_arrays:
            return {column: [_COLUMNS[column](record) for record in records] for column in columns}
        return [{column: _COLUMNS[column](record) for column in columns} for record in records]


@dataclass(frozen=True, slots=True)
class OutboxTable:
    """A table that our publisher writes, and its layout."""

    table: str
    layout: str = "native"

    def __post_init__(self) -> None:
        quoted(self.table)
        if self.layout not in WRITABLE_LAYOUTS:
            raise ConfigurationError(
                f"Messages cannot be published into a table of the layout {self.layout!r}.",
                hint=f"Its own writers fill it. inorder writes: {', '.join(WRITABLE_LAYOUTS)}.",
            )

    def refuse(self, records: Sequence[Record], *, in_list: bool) -> None:
        """Raises `ValidationError` for a record with something that the columns of the layout cannot hold."""
        flaws = _FLAWS.get(self.layout)
        if flaws is None:
            return
        for position, record in enumerate(records):
            for field, reason in flaws(record):
                place = f"messages[{position}]." if in_list else ""
                raise ValidationError(
                    f"{place}{field.removesuffix('_ms')}",
                    f"the layout {self.layout!r} of table {self.table!r} cannot keep it: {reason}",
                    hint='Change it or leave it out, or use layout="native".',
                )


Flaws = Iterator[tuple[str, str]]


def _without(record: Record, *fields: str) -> Flaws:
    """Fields of the record that there is no column for."""
    for field in fields:
        if getattr(record, field) not in (None, ()):
            yield field, "it has no column for it."


def _deimos_flaws(record: Record) -> Flaws:
    yield from _without(record, "headers", "partition", "timestamp_ms")


def _trendyol_flaws(record: Record) -> Flaws:
    yield from _without(record, "partition", "timestamp_ms")
    yield from flaws(record)


_FLAWS: dict[str, Callable[[Record], Flaws]] = {"deimos": _deimos_flaws, "trendyol": _trendyol_flaws}


@cache
def append_statement(table: str, dialect: str, layout: str = "native") -> AppendStatement:
    """The append statement of a table; `dialect` is a name that SQLAlchemy or Django gives a database."""
    names = {"table": quoted_table(dialect, table)}
    in_arrays = family(dialect) == "postgres"
    if in_arrays:
        names["woken"] = load("inorder.outbox.layouts", "waking/postgres.sql").render("woken", **names)
    pyformat = statements(layout, dialect).render("append", **names)
    return AppendStatement(pyformat, named(pyformat), in_arrays)


def split_batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cuts a long list into statements that every server takes; almost every list is one."""
    start = size = 0
    for position, record in enumerate(records):
        weight = record_size(record)
        if position > start and (size + weight > _MAX_BYTES or position - start == _MAX_RECORDS):
            yield records[start:position]
            start, size = position, 0
        size += weight
    if start < len(records):
        yield records[start:]


def record_size(record: Record) -> int:
    """How many bytes a record brings along."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


_COLUMNS: dict[str, Callable[[Record], str | bytes | int | None]] = {
    "topic": attrgetter("topic"),
    "key": attrgetter("key"),
    "value": attrgetter("value"),
    "headers": lambda record: to_text(record.headers),
    "partition": attrgetter("partition"),
    "timestamp": attrgetter("timestamp_ms"),
    "text_key": lambda record: text(record.key),
    "text_value": lambda record: text(record.value),
    "header": header,
}


# What `publish` accepts, and how a statement is run in the transaction of each.
#
# A connection is recognised by the names of the classes it descends from, so no driver is imported that the
# application has not loaded itself. Each writer does two things: it refuses a connection on which every
# statement commits on its own, because then the event would no longer stand or fall with the rows it tells
# about, and it runs the append statements. None of them commits, rolls back or asks for anything to be
# returned.
#
# | accepted                                         | refused when                                            |
# |--------------------------------------------------|---------------------------------------------------------|
# | SQLAlchemy Session, Connection, scoped and async | isolation level AUTOCOMMIT                              |
# | psycopg Connection, AsyncConnection              | autocommit, and no transaction block is open            |
# | PyMySQL Connection                               | autocommit, and no transaction was begun                |
# | sqlite3 Connection                               | isolation_level None or autocommit True, none was begun |
# | Django's connection                              | autocommit, outside atomic()                            |

PublishResult = Coroutine[Any, Any, None] | None
Writer = Callable[[Any, OutboxTable, Sequence[Record]], PublishResult]

_ACCEPTED = (
    "a SQLAlchemy Session, Connection, scoped_session, AsyncSession or AsyncConnection, a psycopg 3 "
    "Connection or AsyncConnection, a PyMySQL Connection, a sqlite3 Connection, or django.db.connection"
)


def writer_of(connection: object) -> Writer:
    """The function that writes records through a connection of this kind."""
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__]
    writer = next((_WRITERS[name] for name in names if name in _WRITERS), None)
    if writer is None:
        raise ConfigurationError(
            f"Cannot publish through a {names[0]}.",
            hint=f"Pass the object that holds your transaction: {_ACCEPTED}.",
        )
    return writer


def _appends(target: OutboxTable, dialect: str, records: Sequence[Record]) -> Iterator[tuple[AppendStatement, Any]]:
    append = append_statement(target.table, dialect, target.layout)
    for batch in split_batches(records):
        yield append, append.parameters(batch)


def _sqlalchemy_session(session: Any, target: OutboxTable, records: Sequence[Record]) -> None:
    # Pending objects are not flushed: a message holds only what its author put into it, and all of it commits
    # together.
    _sqlalchemy(session.connection(), target, records)


def _sqlalchemy(connection: Any, target: OutboxTable, records: Sequence[Record]) -> None:
    if _sqlalchemy_autocommits(connection):
        raise _autocommit("SQLAlchemy connection", "Leave out isolation_level AUTOCOMMIT.")
    for append, parameters in _appends(target, connection.dialect.name, records):
        connection.execute(_text(append.named), parameters)


def _sqlalchemy_async(handle: Any, target: OutboxTable, records: Sequence[Record]) -> PublishResult:
    result: PublishResult = handle.run_sync(_sqlalchemy, target, records)
    return result


def _sqlalchemy_async_session(handle: Any, target: OutboxTable, records: Sequence[Record]) -> PublishResult:
    result: PublishResult = handle.run_sync(_sqlalchemy_session, target, records)
    return result


def _sqlalchemy_async_scoped(registry: Any, target: OutboxTable, records: Sequence[Record]) -> PublishResult:
    return _sqlalchemy_async_session(registry(), target, records)


@cache
def _text(statement: str) -> Any:
    from sqlalchemy import text

    return text(statement)


def _sqlalchemy_autocommits(connection: Any) -> bool:
    try:
        autocommit = connection.dialect.detect_autocommit_setting(connection.connection.dbapi_connection)
    except NotImplementedError:
        return False
    if not autocommit:
        return False
    # SQLAlchemy's recipe for SQLite switches the driver to autocommit and sends BEGIN itself. Its BEGIN goes
    # out when the connection begins, which the first statement would make it do anyway.
    if not connection.in_transaction():
        connection.begin()
    return not getattr(connection.connection.driver_connection, "in_transaction", False)


def _psycopg(connection: Any, target: OutboxTable, records: Sequence[Record]) -> None:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    _refuse_psycopg_autocommit(connection)
    # A cursor of our own, because the connection's factories may speak another placeholder or expect result
    # columns.
    with Cursor(connection, row_factory=tuple_row) as cursor:
        for append, parameters in _appends(target, "postgresql", records):
            cursor.execute(append.pyformat.encode(), parameters)


async def _psycopg_async(connection: Any, target: OutboxTable, records: Sequence[Record]) -> None:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    _refuse_psycopg_autocommit(connection)
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        for append, parameters in _appends(target, "postgresql", records):
            await cursor.execute(append.pyformat.encode(), parameters)


def _refuse_psycopg_autocommit(connection: Any) -> None:
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise _autocommit("psycopg connection", "Publish inside `with connection.transaction():`.")


def _pymysql(connection: Any, target: OutboxTable, records: Sequence[Record]) -> None:
    from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS

    if connection.get_autocommit() and not connection.server_status & SERVER_STATUS_IN_TRANS:
        raise _autocommit("PyMySQL connection", "Call connection.begin() first.")
    with connection.cursor() as cursor:
        for append, parameters in _appends(target, "mysql", records):
            cursor.executemany(append.pyformat, parameters)


def _sqlite(connection: Any, target: OutboxTable, records: Sequence[Record]) -> None:
    # Python 3.12 added `autocommit`; -1 there means that isolation_level still decides, as it does before
    # 3.12.
    autocommit = getattr(connection, "autocommit", -1)
    commits_alone = connection.isolation_level is None if autocommit == -1 else autocommit
    if commits_alone and not connection.in_transaction:
        raise _autocommit("sqlite3 connection", 'Execute "BEGIN" first.')
    for append, parameters in _appends(target, "sqlite", records):
        connection.executemany(append.named, parameters)


def _django(connection: Any, target: OutboxTable, records: Sequence[Record]) -> None:
    appends = _appends(target, getattr(connection, "vendor", ""), records)
    if not connection.in_atomic_block and connection.get_autocommit():
        raise _autocommit("Django connection", "Publish inside `with transaction.atomic():`.")
    with connection.cursor() as cursor:
        for append, parameters in appends:
            execute = cursor.execute if append.in_arrays else cursor.executemany
            execute(append.pyformat, parameters)


def _autocommit(kind: str, hint: str) -> ConfigurationError:
    return ConfigurationError(
        f"The {kind} is in autocommit mode: the message would be committed without the rows it tells about.",
        hint=hint,
    )


_WRITERS: dict[str, Writer] = {
    "sqlalchemy.orm.session.Session": _sqlalchemy_session,
    "sqlalchemy.orm.scoping.scoped_session": _sqlalchemy_session,
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
