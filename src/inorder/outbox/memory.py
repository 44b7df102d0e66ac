"""The backend `memory`: keeps published messages, with assertions for the tests of applications."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from inorder.model.message import Limits, Message, Record, encode
from inorder.outbox.request import PublishRequest

_ANY: Final = object()
_SHOWN = 10


class Published:
    """The messages that would have been sent, in order. They are checked as for Kafka.

    >>> published = Published()
    >>> published.add(Message("orders", key=42, value={"id": 42}))
    >>> published.assert_published("orders", key="42", value={"id": 42}).topic
    'orders'
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[tuple[Message, Record]] = []

    def send(self, request: PublishRequest, positions: Sequence[int]) -> None:
        """Keeps messages of a request; called by the publisher."""
        with self._lock:
            self._kept += [(request.messages[position], request.records[position]) for position in positions]
        request.arrived(*positions)

    def add(self, message: Message) -> None:
        self.send(PublishRequest([message], [encode(message, Limits())]), [0])

    def messages(self, topic: str | None = None) -> list[Message]:
        """All messages, or those of a topic."""
        with self._lock:
            return [message for message, _ in self._kept if topic in (None, message.topic)]

    def clear(self) -> None:
        """Removes all messages, for the next test."""
        with self._lock:
            self._kept.clear()

    def assert_published(
        self, topic: str, *, key: object = _ANY, value: object = _ANY, headers: object = _ANY, times: int | None = None
    ) -> Message:
        """Fails unless such a message was published, `times` times if that is given; returns the first of them.

        Arguments that are left out match anything. Those that are given are compared as the bytes that Kafka would
        carry, so a key of 42 equals a key of "42".
        """
        wanted = {"key": key, "value": value, "headers": headers}
        given = {name: content for name, content in wanted.items() if content is not _ANY}
        expected = encode(Message(topic, **given), Limits(max_value_bytes=2**31))  # type: ignore[arg-type]  # it checks
        with self._lock:
            of_topic = [(message, record) for message, record in self._kept if record.topic == topic]
        found = [
            message
            for message, record in of_topic
            if all(getattr(record, name) == getattr(expected, name) for name in given)
        ]
        if not found or times not in (None, len(found)):
            raise AssertionError(_difference(topic, given, times, len(found), [message for message, _ in of_topic]))
        return found[0]

    def assert_nothing_published(self, topic: str | None = None) -> None:
        """Fails if anything was published, to this topic if one is given."""
        if found := self.messages(topic):
            raise AssertionError(f"Expected no messages, but these were published:{_render(found)}")


def _difference(topic: str, given: dict[str, object], times: int | None, count: int, found: Sequence[Message]) -> str:
    wanted = ", ".join(f"{name}={content!r}" for name, content in given.items()) or "anything"
    often = "" if times is None else f" {times} times"
    there = f"It got:{_render(found)}" if found else "It got no messages."
    return f"Expected topic {topic!r} to get {wanted}{often}; it got it {count} times. {there}"


def _render(messages: Sequence[Message]) -> str:
    more = [f"… and {len(messages) - _SHOWN} more"] if len(messages) > _SHOWN else []
    return "".join(f"\n  {line}" for line in [*map(repr, messages[:_SHOWN]), *more])
