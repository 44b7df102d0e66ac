"""The publisher's way straight to Kafka: waiting for every acknowledgement, or not waiting.

Both have lanes (`outbox/lane.py`), one for each distinct set of producer properties, made when a topic first needs it.
The lanes of the two are apart, so that a call that waits never stands behind a long queue. A lane sends with the
relay's producer for delivery at-least-once (`kafka/idempotent_log.py`): idempotent, `acks=all`, gapless, and it tells
for each record whether it arrived.

**What waiting promises.** On return every message is acknowledged by all in-sync replicas. An error says for each
message whether it was sent; of a key, a message that was sent never stands behind one that was not. Only if the broker
took a record and its answer never came, the message is unsent and in doubt.

**What not waiting promises.** Nothing is dropped to make room: with a full queue `publish` blocks. What is queued is
memory: `close` and the end of the program wait for it, a kill loses it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from inorder.kafka.admin import check_properties
from inorder.kafka.idempotent_producer import IdempotentShardLog
from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.message import Message
from inorder.model.names import BackendName
from inorder.model.partitioning import Partitioner
from inorder.outbox.request import Awaited, OnDelivery, PendingMessage, PublishRequest, Queued
from inorder.outbox.send_queue import Log, QueueBounds, SendQueue
from inorder.topics.routes import RoutedUnfencedLog, Routes

PropertiesOf = Callable[[str], Mapping[str, Any]]

GRACE_SECONDS = 3.0
"""How long answers are waited for after a failure: longer than in a relay, since a caller hears what is in doubt."""

CLOSED = "The publisher is closed."


class SendQueues:
    """The lanes of one backend, by the producer properties of the topics."""

    def __init__(
        self,
        properties_of: PropertiesOf,
        partitioners: Mapping[str, Partitioner],
        bounds: QueueBounds | None = None,
        *,
        routes: Routes | None = None,
        on_first: Callable[[], object] | None = None,
    ) -> None:
        """With `routes`, messages go to the generations of their topics."""
        self._properties_of = properties_of
        self._partitioners = dict(partitioners)
        self._routes = routes
        self._bounds = bounds
        self._on_first = on_first
        self._lock = threading.Lock()
        self._by_topic: dict[str, SendQueue] = {}
        self._by_properties: dict[frozenset[tuple[str, Any]], SendQueue] = {}
        self._is_closed = False

    def put(self, errands: Sequence[PendingMessage]) -> int:
        """Queues errands in order, each in the lane of its topic; returns how many, fewer than all once closed."""
        lanes = [self._lane(errand.record.topic) for errand in errands]
        start = 0
        while start < len(errands):
            end = next((at for at in range(start, len(errands)) if lanes[at] is not lanes[start]), len(errands))
            lane = lanes[start]
            queued = lane.put(errands[start:end]) if lane is not None else 0
            if queued < end - start:
                return start + queued
            start = end
        return start

    def flush(self, seconds: float) -> int:
        """Waits for all lanes; returns how many errands are left."""
        deadline = time.monotonic() + seconds
        return sum(lane.flush(deadline - time.monotonic()) for lane in self._all())

    def close(self) -> list[PendingMessage]:
        """Ends all lanes; returns what was not sent."""
        with self._lock:
            self._is_closed = True
        return [errand for lane in self._all() for errand in lane.close()]

    def _all(self) -> list[SendQueue]:
        with self._lock:
            return list(self._by_properties.values())

    def _lane(self, topic: str) -> SendQueue | None:
        lane = self._by_topic.get(topic)
        return lane if lane is not None else self._new_lane(topic)

    def _new_lane(self, topic: str) -> SendQueue | None:
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

    def _log(self, properties: Mapping[str, Any]) -> Log:
        log = IdempotentShardLog(properties, partitioners=self._partitioners, grace_seconds=GRACE_SECONDS)
        return log if self._routes is None else RoutedUnfencedLog(log, self._routes, self._partitioners)


class WaitingBackend:
    """`kafka`: returns when every message is acknowledged, or raises `PublishError`."""

    def __init__(self, lanes: SendQueues, timeout_seconds: float) -> None:
        self._lanes = lanes
        self._timeout_seconds = timeout_seconds

    def send(self, call: PublishRequest, positions: Sequence[int]) -> None:
        """Sends and waits."""
        if self._lanes.put([Awaited(call, position) for position in positions]) < len(positions):
            call.fail(TransientError(CLOSED))
        call.wait(positions, self._timeout_seconds)


class QueueingBackend:
    """`kafka_async`: returns when every message is queued; a callback hears what became of each."""

    def __init__(self, lanes: SendQueues, on_delivery: OnDelivery | None) -> None:
        self._lanes = lanes
        self._on_delivery = on_delivery

    def send(self, call: PublishRequest, positions: Sequence[int]) -> None:
        """Queues, and blocks while there is no room."""
        errands = [Queued(call.messages[at], call.records[at], self._on_delivery) for at in positions]
        queued = self._lanes.put(errands)
        call.arrived(*positions[:queued])
        if queued < len(positions):
            call.fail(TransientError(CLOSED))
            call.raise_failure()


def queued_messages(left: Sequence[PendingMessage]) -> list[Message]:
    """The messages of errands that nobody waits for."""
    return [errand.message for errand in left if isinstance(errand, Queued)]


# Which backend each message of a call goes to, and in which order the backends are asked.
#
# A topic has one backend, so the order of a topic's messages is the order of the call. Backends are asked one after
# the other, and what can fail without a trace comes first: the database, whose rows vanish with a rollback, then
# memory, then Kafka with its answers, then the queue. When one fails, those after it are not asked, and the error
# counts their messages among the unsent.

ORDER: Final[tuple[BackendName, ...]] = ("db", "memory", "kafka", "kafka_async")

PositionsByBackend = Mapping[BackendName, Sequence[int]]


class Backend(Protocol):
    """Where messages go that need no transaction. Any thread may call it."""

    def send(self, call: PublishRequest, positions: Sequence[int]) -> None:
        """Sends these messages of the call in their order and marks what arrived; raises `PublishError`."""


def group_by_backend(messages: Iterable[Message], backend_of: Callable[[str], BackendName]) -> PositionsByBackend:
    """The positions of the messages for each backend, in the order of the call; backends in the order of asking.

    >>> parts_of([Message("a"), Message("b"), Message("a")], {"a": "kafka", "b": "db"}.__getitem__)
    {'db': [1], 'kafka': [0, 2]}
    """
    found: dict[BackendName, list[int]] = {}
    for position, message in enumerate(messages):
        found.setdefault(backend_of(message.topic), []).append(position)
    return {name: found[name] for name in ORDER if name in found}


def require_connection(topic: str, connection: object) -> None:
    """Refuses a message for the database when there is no transaction to write it in."""
    if connection is None:
        raise ConfigurationError(
            f"Messages of topic {topic!r} are written into the database, and no connection was given.",
            hint=(
                "Pass what holds your transaction: publish_list(messages, session). Or set publisher.backend, or "
                f'[topics."{topic}"] backend, to "kafka".'
            ),
        )


def send_all(call: PublishRequest, parts: PositionsByBackend, backends: Mapping[BackendName, Backend]) -> None:
    """Asks each backend but the database."""
    for name, positions in parts.items():
        if name != "db":
            backends[name].send(call, positions)
