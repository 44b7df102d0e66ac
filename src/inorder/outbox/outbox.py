"""`Outbox`: messages written in the caller's transaction, as rows that the relay carries to Kafka.

`publish` checks and encodes a message (`model/message.py`), then runs the append statement on the caller's connection
(`outbox/append.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, overload

from inorder.model.errors import ConfigurationError, ValidationError
from inorder.model.message import Limits, Message, Record, RecordHeaders, encode
from inorder.outbox.append import OutboxTable, PublishCall, PublishResult, write_flushed, writer_of

if TYPE_CHECKING:
    import sqlite3

    import psycopg
    from pymysql.connections import Connection as MySQLConnection
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    class DjangoConnection(Protocol):
        """The part of `django.db.connection` that is used; Django has no type hints."""

        vendor: str
        in_atomic_block: bool

        def get_autocommit(self) -> bool: ...

    Handle: TypeAlias = (
        Session
        | scoped_session[Any]
        | Connection
        | psycopg.Connection[Any]
        | MySQLConnection[Any]
        | sqlite3.Connection
        | DjangoConnection
    )
    PublishCoroutine: TypeAlias = Coroutine[Any, Any, None]
    AsyncHandle: TypeAlias = AsyncSession | async_scoped_session[Any] | AsyncConnection | psycopg.AsyncConnection[Any]


class Outbox:
    """Writes messages into the outbox table, in your transaction and nowhere else.

    Nothing is committed or rolled back here. The rows become visible with your commit and disappear with your
    rollback; the order of publish calls in a transaction is the order of the rows. All messages are checked
    before the first one is written. With an async session or connection the calls return an awaitable.

    A `Session` is flushed first, so that the rows that a message describes are written and locked before it gets
    its id: `outbox/append.py` says why. With `flush=False` pending objects stay pending; pass it if you have
    locked the rows already. A message that needs an id that the database generates is built after a
    `session.flush()` of yours. For a session with several binds, flush and pass `session.connection(…)`.

    >>> import sqlite3
    >>> from inorder.outbox.layouts import install_statements
    >>> connection = sqlite3.connect(":memory:")
    >>> for statement in install_statements("native", "sqlite", "outbox"):
    ...     _ = connection.execute(statement)
    >>> Outbox("outbox").publish(connection, Message("orders", key=42, value={"enabled": True}))
    >>> connection.commit()
    >>> connection.close()
    """

    def __init__(
        self,
        table: str = "outbox",
        *,
        layout: str = "native",
        limits: Limits | None = None,
        checks: Checks | None = None,
        traces: bool = False,
    ) -> None:
        """`layout` is that of the table: `native`, or one with fewer columns.

        `deimos` has no headers, partition or timestamp. `trendyol` has no partition or timestamp; its keys (of up to
        200 characters), values and headers are text, and a value is required. `checks` are those of
        `inorder.message_checks(settings)`: what the readers of a topic require. With `traces` a message carries the
        context of the current OpenTelemetry span in its headers.
        """
        self._table = OutboxTable(table, layout)
        if traces and layout == "deimos":
            raise ConfigurationError(
                "traces=True needs headers, and the layout 'deimos' has no column for them.",
                hint='Leave traces out, or use layout="native".',
            )
        self._rules = Rules(limits or Limits(), checks or {}, trace_headers() if traces else None)

    @overload
    def publish(self, connection: AsyncHandle, message: Message, *, flush: bool = True) -> PublishCoroutine: ...
    @overload
    def publish(self, connection: Handle, message: Message, *, flush: bool = True) -> None: ...
    def publish(self, connection: Any, message: Message, *, flush: bool = True) -> PublishResult:
        """Adds one message, in one round trip.

        Raises `ValidationError` for a message that cannot be sent and `ConfigurationError` for an object without
        a transaction; nothing is written then.
        """
        writer_of(connection)
        records = (encode_checked("message", message, self._rules),)
        self._table.check(records, in_list=False)
        return self._write(connection, records, flush)

    @overload
    def publish_list(
        self, connection: AsyncHandle, messages: Iterable[Message], *, flush: bool = True
    ) -> PublishCoroutine: ...
    @overload
    def publish_list(self, connection: Handle, messages: Iterable[Message], *, flush: bool = True) -> None: ...
    def publish_list(self, connection: Any, messages: Iterable[Message], *, flush: bool = True) -> PublishResult:
        """Adds messages in the order of the list, in one round trip for up to 10,000 messages or 4 MiB.

        One invalid message refuses the whole list; the error names its position, as in `messages[3].value`.
        """
        writer_of(connection)
        return self.append(connection, encode_list(messages, self._rules), flush=flush)

    def append(self, connection: Any, records: Sequence[Record], *, flush: bool = True) -> PublishResult:
        """Adds records that are already encoded, in their order; `publish_list` is the call for applications."""
        writer_of(connection)
        self._table.check(records, in_list=True)
        return self._write(connection, records, flush)

    def _write(self, connection: Any, records: Sequence[Record], flush: bool) -> PublishResult:
        write = write_flushed if flush else writer_of(connection)
        written = write(connection, self._table, records)
        return None if written is None else PublishCall(written, [record.topic for record in records])


class Refusal(Protocol):
    """Why the readers of a topic would reject a record: a stable code for programs, a detail for people."""

    @property
    def code(self) -> str: ...

    @property
    def detail(self) -> str: ...


Checks: TypeAlias = Mapping[str, Callable[[bytes | None, bytes | None], Refusal | None]]
"""By topic, the check of key and value of each record; a topic without one accepts everything.

A check with a method `derive_key(value)` also gives records without a key the one that it returns."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a message must satisfy: Kafka's limits, and the checks of its topic."""

    limits: Limits = field(default_factory=Limits)
    checks: Checks = field(default_factory=dict)
    trace: Callable[[RecordHeaders], RecordHeaders] | None = None
    """Adds the context of the current span to headers; None without traces."""


def trace_headers() -> Callable[[RecordHeaders], RecordHeaders]:
    """Adds the context of the current span to headers; raises `ConfigurationError` without OpenTelemetry."""
    try:
        from inorder.observe.tracing import with_context
    except ImportError as error:
        raise ConfigurationError(
            f"Traces need packages that are not installed: {error.name} is missing.",
            hint='Install the extra: pip install "inorder[otel]".',
        ) from error
    return with_context


def require_list(messages: Iterable[Message] | Message) -> list[Message]:
    """The messages of a call; raises `ValidationError` for a single message, which is meant for `publish`."""
    if isinstance(messages, Message):
        raise ValidationError("messages", "a Message is not a list.", hint="Use publish(…) for a single one.")
    return list(messages)


def encode_list(messages: Iterable[Message], rules: Rules) -> list[Record]:
    """The records of a list; raises `ValidationError` for one invalid message, with its position."""
    records = []
    for position, message in enumerate(require_list(messages)):
        try:
            records.append(encode_checked("", message, rules))
        except ValidationError as error:
            raise _with_position(f"messages[{position}]", error) from error
    return records


def encode_checked(field: str, message: object, rules: Rules) -> Record:
    """The record of a message; `field` names an argument that is not a message in the error."""
    if not isinstance(message, Message):
        raise ValidationError(field, f"a {type(message).__name__} is not a Message.", hint=_MESSAGE_HINT)
    record = encode(message, rules.limits)
    check = rules.checks.get(record.topic)
    if record.key is None and (derive_key := getattr(check, "derive_key", None)):
        record = replace(record, key=derive_key(record.value))
    if check and (refusal := check(record.key, record.value)):
        raise ValidationError("value", f"{refusal.detail} ({refusal.code})", hint=_hint(record), rule=refusal.code)
    return record if rules.trace is None else replace(record, headers=rules.trace(record.headers))


_MESSAGE_HINT = 'Write Message("topic", key=…, value=…).'


def _hint(record: Record) -> str:
    return f"Readers of topic {record.topic!r} would reject it: docs/pipeline.md has the rules for messages."


def _with_position(place: str, error: ValidationError) -> ValidationError:
    """The same error, with the position in the list before its field."""
    field = f"{place}.{error.field}" if error.field else place
    return ValidationError(field, error.message.removeprefix(f"{error.field}: "), hint=error.hint, rule=error.rule)


# A missing outbox table, or one of another layout.
#
# The statements are fixed, so when a database does not understand one, the table is not what the settings say. The
# driver's error is recognised by its code, also where SQLAlchemy or Django wraps it, and no driver is imported for it.

_SQLSTATES = frozenset({"42P01", "42703", "42804", "3F000"})
"""PostgreSQL: no such table, no such column, a column of another type, no such schema."""
_MYSQL_NUMBERS = frozenset({1146, 1054, 1049})
"""No such table, no such column, no such database."""


@contextmanager
def table_errors(table: str, layout: str) -> Iterator[None]:
    """Raises `ConfigurationError` for errors which show that the table is missing or has other columns."""
    try:
        yield
    except Exception as error:
        if (cause := _cause(error)) is None:
            raise
        raise ConfigurationError(
            f"Nothing was written: {table!r} is not an outbox table of layout {layout!r}. {_quote(cause)}",
            hint=(
                f"`inorder schema sql --layout {layout}` prints the DDL, `inorder schema install --layout "
                f"{layout}` runs it; or set relay.table and relay.layout to the table you have. Then publish again."
            ),
        ) from error


def _cause(error: BaseException | None) -> BaseException | None:
    while error is not None:
        if _concerns_table(error):
            return error
        error = getattr(error, "orig", None) or error.__cause__
    return None


def _concerns_table(error: BaseException) -> bool:
    import sqlite3  # a driver like the others: not loaded when publishing through another one

    if isinstance(error, sqlite3.Error):
        # SQLite has one code for all errors in a statement.
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    if getattr(error, "sqlstate", None) in _SQLSTATES:
        return True
    is_mysql = type(error).__module__.startswith("pymysql")
    return is_mysql and bool(error.args) and error.args[0] in _MYSQL_NUMBERS


def _quote(cause: BaseException) -> str:
    text = str(cause.args[-1]) if cause.args else type(cause).__name__
    return f"The database says: {text.strip().splitlines()[0]}."
