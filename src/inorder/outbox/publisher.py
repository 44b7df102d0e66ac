"""Which backend each message of a call goes to, and in which order the backends are asked.

A topic has one backend, so the order of a topic's messages is the order of the call. Backends are asked one after the
other, and what can fail without a trace comes first: the database, whose rows vanish with a rollback, then memory, then
Kafka with its answers, then the queue. When one fails, those after it are not asked, and the error counts their
messages among the unsent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol

from inorder.model.errors import ConfigurationError
from inorder.model.message import Message
from inorder.outbox.call import Call

BackendName = Literal["db", "kafka", "kafka_async", "memory"]

ORDER: Final[tuple[BackendName, ...]] = ("db", "memory", "kafka", "kafka_async")

Parts = Mapping[BackendName, Sequence[int]]


class Backend(Protocol):
    """Where messages go that need no transaction. Any thread may call it."""

    def send(self, call: Call, positions: Sequence[int]) -> None:
        """Sends these messages of the call in their order and marks what arrived; raises `PublishError`."""


def parts_of(messages: Iterable[Message], backend_of: Callable[[str], BackendName]) -> Parts:
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


def send_all(call: Call, parts: Parts, backends: Mapping[BackendName, Backend]) -> None:
    """Asks each backend but the database."""
    for name, positions in parts.items():
        if name != "db":
            backends[name].send(call, positions)
