"""Publishing straight to Kafka: with or without waiting for acknowledgements.

Both backends have queues (`outbox/send_queue.py`), one for each distinct set of producer properties, opened when a
topic first needs it. They do not share queues, so that a call that waits is never behind a long backlog. A queue sends
with the relay's producer for delivery at-least-once (`kafka/idempotent_producer.py`): idempotent, `acks=all`, gapless,
and it reports for each record whether it was acknowledged.

**What waiting promises.** On return every message is acknowledged by all in-sync replicas. An error says for each
message whether it was sent; within a key, no sent message follows an unsent one. Only if the broker took a record and
its response was lost, the message is unsent and in doubt.

**What not waiting promises.** Nothing is dropped to make room: with a full queue `publish` blocks. The queue is memory:
`close` and the end of the program wait for it, a kill loses it.

**Several backends in one call.** A topic has one backend, so the order of a topic's messages is the order of the call.
Backends run one after the other, those that can be undone first: the database, whose rows disappear with a rollback,
then memory, then Kafka with acknowledgements, then the queue. When one fails, the later ones do not run, and the error
lists their messages as unsent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from inorder.kafka.admin import check_properties
from inorder.kafka.idempotent_producer import IdempotentShardLog
from inorder.kafka.shard_log import UnfencedLog
from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.message import Message
from inorder.model.names import BackendName
from inorder.model.partitioning import Partitioner
from inorder.outbox.request import Awaited, OnDelivery, PendingMessage, PublishRequest, Queued
from inorder.outbox.send_queue import QueueBounds, SendQueue
from inorder.topics.routes import RoutedUnfencedLog, Routes

PropertiesOf = Callable[[str], Mapping[str, Any]]

GRACE_SECONDS = 3.0
"""How long to wait for responses after a failure: longer than in a relay, since the caller learns what is in doubt."""

CLOSED = "The publisher is closed."


class SendQueues:
    """The queues of one backend, by the producer properties of the topics."""

    def __init__(
        self,
        properties_of: PropertiesOf,
        partitioners: Mapping[str, Partitioner],
        bounds: QueueBounds | None = None,
        *,
        named_topics: Collection[str] = (),
        routes: Routes | None = None,
        on_first: Callable[[], object] | None = None,
    ) -> None:
        """With `routes`, messages go to the current generations of their topics; brokers may create `named_topics`."""
        self._properties_of = properties_of
        self._partitioners = dict(partitioners)
        self._named_topics = frozenset(named_topics)
        self._routes = routes
        self._bounds = bounds
        self._on_first = on_first
        self._lock = threading.Lock()
        self._by_topic: dict[str, SendQueue] = {}
        self._by_properties: dict[frozenset[tuple[str, Any]], SendQueue] = {}
        self._is_closed = False

    def put(self, messages: Sequence[PendingMessage]) -> int:
        """Queues messages in order, each in the queue of its topic; returns how many, fewer than all once closed."""
        queues = [self._queue(message.record.topic) for message in messages]
        start = 0
        while start < len(messages):
            end = next((at for at in range(start, len(messages)) if queues[at] is not queues[start]), len(messages))
            queue = queues[start]
            queued = queue.put(messages[start:end]) if queue is not None else 0
            if queued < end - start:
                return start + queued
            start = end
        return start

    def flush(self, seconds: float) -> int:
        """Waits for all queues; returns how many messages are left."""
        deadline = time.monotonic() + seconds
        return sum(queue.flush(deadline - time.monotonic()) for queue in self._all())

    def close(self) -> list[PendingMessage]:
        """Ends all queues; returns what was not sent."""
        with self._lock:
            self._is_closed = True
        return [message for queue in self._all() for message in queue.close()]

    def _all(self) -> list[SendQueue]:
        with self._lock:
            return list(self._by_properties.values())

    def _queue(self, topic: str) -> SendQueue | None:
        queue = self._by_topic.get(topic)
        return queue if queue is not None else self._open_queue(topic)

    def _open_queue(self, topic: str) -> SendQueue | None:
        properties = self._properties_of(topic)
        with self._lock:
            if self._is_closed:
                return None
            same = frozenset(properties.items())
            if same not in self._by_properties:
                check_properties(properties)
                if self._on_first is not None and not self._by_properties:
                    self._on_first()
                self._by_properties[same] = SendQueue(self._log(properties), self._bounds)
            return self._by_topic.setdefault(topic, self._by_properties[same])

    def _log(self, properties: Mapping[str, Any]) -> UnfencedLog:
        log = IdempotentShardLog(
            properties,
            partitioners=self._partitioners,
            grace_seconds=GRACE_SECONDS,
            named_topics=self._named_topics,
        )
        return log if self._routes is None else RoutedUnfencedLog(log, self._routes)


class WaitingBackend:
    """`kafka`: returns when every message is acknowledged, or raises `PublishError`."""

    def __init__(self, queues: SendQueues, timeout_seconds: float) -> None:
        self._queues = queues
        self._timeout_seconds = timeout_seconds

    def send(self, request: PublishRequest, positions: Sequence[int]) -> None:
        if self._queues.put([Awaited(request, position) for position in positions]) < len(positions):
            request.fail(TransientError(CLOSED))
        request.wait(positions, self._timeout_seconds)


class QueueingBackend:
    """`kafka_async`: returns when every message is queued; a callback is called for each."""

    def __init__(self, queues: SendQueues, on_delivery: OnDelivery | None) -> None:
        self._queues = queues
        self._on_delivery = on_delivery

    def send(self, request: PublishRequest, positions: Sequence[int]) -> None:
        """Queues, and blocks while there is no room."""
        pending = [Queued(request.messages[at], request.records[at], self._on_delivery) for at in positions]
        queued = self._queues.put(pending)
        request.arrived(*positions[:queued])
        if queued < len(positions):
            request.fail(TransientError(CLOSED))
            request.raise_failure()


def queued_messages(left: Sequence[PendingMessage]) -> list[Message]:
    """The messages that no call waits for."""
    return [pending.message for pending in left if isinstance(pending, Queued)]


ORDER: Final[tuple[BackendName, ...]] = ("db", "memory", "kafka", "kafka_async")

PositionsByBackend = Mapping[BackendName, Sequence[int]]


class Backend(Protocol):
    """A destination that needs no transaction. Any thread may call it."""

    def send(self, request: PublishRequest, positions: Sequence[int]) -> None:
        """Sends these messages of the request in order and marks those that arrived; raises `PublishError`."""


def group_by_backend(messages: Iterable[Message], backend_of: Callable[[str], BackendName]) -> PositionsByBackend:
    """The positions of the messages of each backend, in the order of the call; backends in the order of `ORDER`.

    >>> parts_of([Message("a"), Message("b"), Message("a")], {"a": "kafka", "b": "db"}.__getitem__)
    {'db': [1], 'kafka': [0, 2]}
    """
    found: dict[BackendName, list[int]] = {}
    for position, message in enumerate(messages):
        found.setdefault(backend_of(message.topic), []).append(position)
    return {name: found[name] for name in ORDER if name in found}


def require_connection(topic: str, connection: object) -> None:
    """Raises `ConfigurationError` for a message for the database without a transaction."""
    if connection is None:
        raise ConfigurationError(
            f"Messages of topic {topic!r} are written into the database, and no connection was given.",
            hint=(
                "Pass the object that holds your transaction: publish_list(messages, session). Or set "
                f'publisher.backend, or [topics."{topic}"] backend, to "kafka".'
            ),
        )


def send_all(request: PublishRequest, positions: PositionsByBackend, backends: Mapping[BackendName, Backend]) -> None:
    """Runs each backend but the database."""
    for name, at in positions.items():
        if name != "db":
            backends[name].send(request, at)
