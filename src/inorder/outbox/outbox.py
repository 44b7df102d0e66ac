"""`Outbox`: messages written in the caller's transaction, as rows that the relay carries to Kafka."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, overload

from inorder.model.message import Limits, Message, Record
from inorder.outbox.append import Target
from inorder.outbox.connections import Outcome, writer_of
from inorder.outbox.encoding import Checks, Rules, encoded, encoded_list

if TYPE_CHECKING:
    import sqlite3

    import psycopg
    from pymysql.connections import Connection as MySQLConnection
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    class DjangoConnection(Protocol):
        """The part of `django.db.connection` that is used; Django ships no types."""

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
    Written: TypeAlias = Coroutine[Any, Any, None]
    AsyncHandle: TypeAlias = AsyncSession | async_scoped_session[Any] | AsyncConnection | psycopg.AsyncConnection[Any]


class Outbox:
    """Writes messages into the outbox table, in your transaction and nowhere else.

    Nothing is committed, rolled back or flushed here. The rows become visible with your commit and vanish
    with your rollback; the order of publish calls in a transaction is the order of the rows. All messages are
    checked before the first one is written. With an async session or connection the calls return an
    awaitable.

    On a `Session`, pending objects stay pending: call `session.flush()` yourself when a message needs an id
    that the database gives. A session with several binds cannot tell which one is meant: pass
    `session.connection(…)` instead.

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
    ) -> None:
        """`layout` is that of the table: `native`, or one that keeps less.

        `deimos` has no headers, partition or timestamp. `trendyol` has no partition or timestamp; its keys (of up to
        200 characters), values and headers are text, and a value is always there. `checks` are those that
        `inorder.message_checks(settings)` makes, of what the readers of a topic ask for.
        """
        self._target = Target(table, layout)
        self._rules = Rules(limits or Limits(), checks or {})

    @overload
    def publish(self, connection: AsyncHandle, message: Message) -> Written: ...
    @overload
    def publish(self, connection: Handle, message: Message) -> None: ...
    def publish(self, connection: Any, message: Message) -> Outcome:
        """Adds one message, in one round trip.

        Raises `ValidationError` for a message that cannot be sent and `ConfigurationError` for an object that
        holds no transaction; nothing is written then.
        """
        write = writer_of(connection)
        records = (encoded("message", message, self._rules),)
        self._target.refuse(records, in_list=False)
        return write(connection, self._target, records)

    @overload
    def publish_list(self, connection: AsyncHandle, messages: Iterable[Message]) -> Written: ...
    @overload
    def publish_list(self, connection: Handle, messages: Iterable[Message]) -> None: ...
    def publish_list(self, connection: Any, messages: Iterable[Message]) -> Outcome:
        """Adds messages in the order of the list, in one round trip for up to 10,000 messages or 4 MiB.

        One bad message refuses the whole list; its field is named with its place, as in `messages[3].value`.
        """
        writer_of(connection)
        return self.append(connection, encoded_list(messages, self._rules))

    def append(self, connection: Any, records: Sequence[Record]) -> Outcome:
        """Adds records that were encoded before, in their order; `publish_list` is the call for applications."""
        write = writer_of(connection)
        self._target.refuse(records, in_list=True)
        return write(connection, self._target, records)
