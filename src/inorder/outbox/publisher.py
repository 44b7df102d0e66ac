"""One call for applications; the settings choose where messages go. `pipeline.checks.Publisher` adds the checks."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from inorder.database.database import open_database
from inorder.kafka.admin import Cluster
from inorder.model.message import Limits, Message, Record
from inorder.model.names import BackendName
from inorder.outbox import Outbox
from inorder.outbox.append import PublishCall, PublishResult, flush_pending
from inorder.outbox.direct import (
    Backend,
    PositionsByBackend,
    QueueingBackend,
    SendQueues,
    WaitingBackend,
    group_by_backend,
    queued_messages,
    require_connection,
    send_all,
)
from inorder.outbox.memory import Published
from inorder.outbox.outbox import (
    Checks,
    Rules,
    encode_checked,
    encode_list,
    require_list,
    table_errors,
    trace_headers,
)
from inorder.outbox.request import OnDelivery, PublishRequest
from inorder.outbox.send_queue import QueueBounds
from inorder.outbox.stores.table import require_outbox_table
from inorder.settings import Settings
from inorder.topics.routes import Routes
from inorder.topics.stores.kafka_topics import QUICK_SECONDS, MirrorReader

if TYPE_CHECKING:
    from inorder.outbox.outbox import AsyncHandle, Handle, PublishCoroutine

log = logging.getLogger("inorder.publisher")

_MEBIBYTE = 1024 * 1024
_ANY_OTHER = ""
"""A topic without a section of its own."""


class MessagePublisher:
    """Publishes messages to where `publisher.backend` or `[topics.NAME] backend` says. Any thread may call it.

    ```
    publisher = Publisher(Settings.load())
    publisher.publish_list([Message("orders", key=42, value={"id": 42})], session)
    ```

    `db` writes in your transaction and needs it; the other backends ignore the connection, so the call can be the same
    for all. With an async session or connection the calls return an awaitable, whatever the backend.

    Create one per process, and close it at the end; `with` does. It connects at the first message, so a publisher that
    was created before a fork works as long as it was not used.
    """

    def __init__(self, settings: Settings, checks: Checks, *, on_delivery: OnDelivery | None = None) -> None:
        """`on_delivery(message, error)` gets each message of `kafka_async`, on the thread that sends: be quick."""
        self._settings = settings
        trace = trace_headers() if settings.observe.traces else None
        self._rules = Rules(Limits(max_value_bytes=settings.outbox.max_value_bytes), checks, trace)
        self.published = Published()
        """The messages of the backend `memory`, with assertions for tests."""
        partitioners, named, bound = settings.partitioners(), settings.named_topics(), settings.publisher
        # A publisher may have no database, and what goes to Kafka must not depend on one.
        routes = Routes(MirrorReader(settings.kafka.properties, answer_seconds=QUICK_SECONDS))
        self._waiting = SendQueues(settings.producer_properties, partitioners, named_topics=named, routes=routes)
        bounds = QueueBounds(bound.queue_messages, bound.queue_megabytes * _MEBIBYTE)
        # atexit keeps the publisher alive from the first queued message on.
        flush_at_exit = partial(atexit.register, self.close)
        self._queueing = SendQueues(
            settings.producer_properties,
            partitioners,
            bounds,
            named_topics=named,
            routes=routes,
            on_first=flush_at_exit,
        )
        self._backends: dict[BackendName, Backend] = {
            "kafka": WaitingBackend(self._waiting, bound.timeout_seconds),
            "kafka_async": QueueingBackend(self._queueing, on_delivery),
            "memory": self.published,
        }

    @overload
    def publish(self, message: Message, connection: AsyncHandle, *, flush: bool = True) -> PublishCoroutine: ...
    @overload
    def publish(self, message: Message, connection: Handle | None = None, *, flush: bool = True) -> None: ...
    def publish(self, message: Message, connection: Any = None, *, flush: bool = True) -> PublishResult:
        """Publishes one message; see `publish_list`."""
        return self._send([message], [encode_checked("message", message, self._rules)], connection, flush)

    @overload
    def publish_list(
        self, messages: Iterable[Message], connection: AsyncHandle, *, flush: bool = True
    ) -> PublishCoroutine: ...
    @overload
    def publish_list(
        self, messages: Iterable[Message], connection: Handle | None = None, *, flush: bool = True
    ) -> None: ...
    def publish_list(self, messages: Iterable[Message], connection: Any = None, *, flush: bool = True) -> PublishResult:
        """Publishes messages in the order of the list; all are checked before any is written or sent.

        With the backend `db` a session is flushed before its messages are written, unless `flush` is False: see
        `Outbox`.

        Raises `ValidationError` for a message that cannot be sent, or that the pipeline of its topic would reject, and
        `ConfigurationError` where the backend is `db` and `connection` or the table is missing; nothing is done then.
        Backend `kafka` raises `PublishError` at the first failure, with what was sent and what was not.
        """
        kept = require_list(messages)
        return self._send(kept, encode_list(kept, self._rules), connection, flush)

    def check(self) -> None:
        """Raises an error if a backend in use cannot work: brokers do not answer, or the table does not exist.

        The database is checked through `database.url`, if that is set.
        """
        topics = [_ANY_OTHER, *self._settings.topics]
        for topic in topics:
            if self._backend_of(topic) in ("kafka", "kafka_async"):
                Cluster(self._settings.producer_properties(topic)).info()
        url = self._settings.database.url
        if url is not None and any(self._backend_of(topic) == "db" for topic in topics):
            relay = self._settings.relay
            with closing(open_database(url.get_secret_value(), "inorder publisher")) as database:
                require_outbox_table(database, relay.table, relay.layout)

    def flush(self, seconds: float | None = None) -> int:
        """Waits until the queue of `kafka_async` is sent; returns how many messages are left after `seconds`."""
        return self._queueing.flush(self._settings.publisher.flush_seconds if seconds is None else seconds)

    def close(self, seconds: float | None = None) -> list[Message]:
        """Flushes and closes; returns the messages of `kafka_async` that are not known to be sent, in order per topic.

        It takes up to `seconds`, or `publisher.flush_seconds`, and a few more to give up what is under way. May be
        called twice.
        """
        atexit.unregister(self.close)
        self.flush(seconds)
        self._waiting.close()
        left = queued_messages(self._queueing.close())
        if left:
            log.error("publisher.left", extra={"messages": len(left), "topics": sorted({one.topic for one in left})})
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(
        self, messages: Sequence[Message], records: Sequence[Record], connection: Any, flush: bool
    ) -> PublishResult:
        parts = group_by_backend(messages, self._backend_of)
        written = [records[position] for position in parts.get("db", ())]
        if written:
            require_connection(written[0].topic, connection)
        request = PublishRequest(messages, records)
        if _is_async(connection):
            later = self._send_later(request, parts, written, connection, flush)
            return PublishCall(later, [message.topic for message in messages])
        if written:
            if flush:  # by itself: its errors concern your tables and not ours
                flush_pending(connection)
            with self._table_errors():
                self._outbox.append(connection, written, flush=False)
        self._send_rest(request, parts)
        return None

    async def _send_later(
        self,
        request: PublishRequest,
        parts: PositionsByBackend,
        written: Sequence[Record],
        connection: Any,
        flush: bool,
    ) -> None:
        if written:
            if flush and (flushed := flush_pending(connection)) is not None:
                await flushed
            with self._table_errors():
                outcome = self._outbox.append(connection, written, flush=False)
                if outcome is not None:
                    await outcome
        if parts.keys() - {"db"}:
            # Waiting for Kafka must not block the event loop.
            await asyncio.to_thread(self._send_rest, request, parts)

    def _send_rest(self, request: PublishRequest, parts: PositionsByBackend) -> None:
        request.arrived(*parts.get("db", ()))
        send_all(request, parts, self._backends)

    @cached_property
    def _outbox(self) -> Outbox:
        relay = self._settings.relay
        return Outbox(relay.table, layout=relay.layout, limits=self._rules.limits)

    def _table_errors(self) -> Any:
        return table_errors(self._settings.relay.table, self._settings.relay.layout)

    def _backend_of(self, topic: str) -> BackendName:
        own = self._settings.topics.get(topic)
        return (own.backend if own else None) or self._settings.publisher.backend


def _is_async(connection: object) -> bool:
    """Whether its commit is a coroutine: then the result is one too."""
    return inspect.iscoroutinefunction(getattr(type(connection), "commit", None))
