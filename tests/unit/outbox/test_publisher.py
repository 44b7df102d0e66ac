"""Which backend gets which message, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.message import Limits, Message, encode
from inorder.model.names import BackendName
from inorder.outbox.direct import ORDER, Backend, group_by_backend, require_connection, send_all
from inorder.outbox.request import PublishRequest

TOPICS: dict[str, BackendName] = {"a": "kafka", "b": "db", "c": "kafka_async", "d": "memory", "e": "kafka"}


def call_of(*topics: str) -> PublishRequest:
    messages = [Message(topic, value=position) for position, topic in enumerate(topics)]
    return PublishRequest(messages, [encode(message, Limits()) for message in messages])


@dataclass
class Recording:
    """A backend that notes what it was asked for, and fails if it is told to."""

    asked: list[int]
    fails: bool = False

    def send(self, call: PublishRequest, positions: Sequence[int]) -> None:
        if self.fails:
            call.fail(TransientError("away"))
            call.raise_failure()
        self.asked += positions
        call.arrived(*positions)


@dataclass
class Recorded:
    asked: list[int] = field(default_factory=list)

    def backends(self, failing: BackendName | None = None) -> dict[BackendName, Backend]:
        return {name: Recording(self.asked, name == failing) for name in ORDER}


@given(st.lists(st.sampled_from(sorted(TOPICS))))
def test_every_message_has_one_backend_and_each_topic_keeps_its_order(topics: list[str]) -> None:
    parts = group_by_backend([Message(topic) for topic in topics], TOPICS.__getitem__)
    assert sorted(position for part in parts.values() for position in part) == list(range(len(topics)))
    for name, positions in parts.items():
        assert list(positions) == sorted(positions)
        assert {TOPICS[topics[position]] for position in positions} == {name}


def test_the_database_is_asked_first_and_the_queue_last() -> None:
    parts = group_by_backend([Message(topic) for topic in "cadb"], TOPICS.__getitem__)
    assert list(parts) == ["db", "memory", "kafka", "kafka_async"]


def test_a_call_without_messages_asks_nobody() -> None:
    recorded = Recorded()
    send_all(call_of(), group_by_backend([], TOPICS.__getitem__), recorded.backends())
    assert recorded.asked == []


def test_each_backend_but_the_database_is_asked() -> None:
    recorded, call = Recorded(), call_of("c", "a", "d", "b", "e")
    send_all(call, group_by_backend(call.messages, TOPICS.__getitem__), recorded.backends())
    assert recorded.asked == [2, 1, 4, 0]


def test_after_a_failure_the_backends_behind_it_are_not_asked() -> None:
    recorded, call = Recorded(), call_of("c", "a", "d")
    with pytest.raises(TransientError, match="Of 3 messages 1 were sent, 2 were not"):
        send_all(call, group_by_backend(call.messages, TOPICS.__getitem__), recorded.backends("kafka"))
    assert recorded.asked == [2]


def test_the_database_needs_a_connection() -> None:
    require_connection("orders", object())
    with pytest.raises(ConfigurationError, match="'orders'") as caught:
        require_connection("orders", None)
    assert 'topics."orders"' in caught.value.hint
