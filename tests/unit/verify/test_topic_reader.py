"""The topic is read to its end only if nothing in it is still undecided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from inorder.model.errors import InorderError
from inorder.verify.history import MarkedEvent, RecordRead
from inorder.verify.stores import kafka_topic
from inorder.verify.stores.kafka_topic import TopicReader


class Message:
    """A record, or the report that the partition ends here."""

    def __init__(self, offset: int, *, code: int | None = None) -> None:
        self._offset = offset
        self._code = code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"a"

    def value(self) -> bytes:
        return b"%d" % self._offset


class Broker:
    """One partition with records up to `written`, of which an open transaction begins at `stable`."""

    def __init__(self, *, written: int, stable: int) -> None:
        self.written = written
        self.stable = stable
        self.refusal: int | None = None

    def consumer(self, properties: Mapping[str, Any], **_: object) -> FakeConsumer:
        return FakeConsumer(self, is_committed=properties["isolation.level"] == "read_committed")


class FakeConsumer:
    def __init__(self, broker: Broker, *, is_committed: bool) -> None:
        self._broker = broker
        self._is_committed = is_committed
        self._next = 0
        self._reported = -1

    def list_topics(self, topic: str, **_: object) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None})})

    def _end(self) -> int:
        return self._broker.stable if self._is_committed else self._broker.written

    def get_watermark_offsets(self, _: TopicPartition, **__: object) -> tuple[int, int]:
        return 0, self._end()

    def assign(self, places: list[TopicPartition]) -> None:
        self._next = places[0].offset

    def poll(self, _: float) -> Message | None:
        if self._broker.refusal is not None:
            return Message(-1001, code=self._broker.refusal)
        if self._next < self._end():
            self._next += 1
            return Message(self._next - 1)
        if self._reported == self._next:
            return None
        self._reported = self._next
        return Message(self._next, code=KafkaError._PARTITION_EOF)

    def close(self) -> None:
        pass


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broker, Callable[[], bool]], tuple[bool, list[int]]]:
    """Makes a reader of an empty topic, lets the broker have its records, and reads them."""
    monkeypatch.setattr(kafka_topic, "_SECONDS", 0.0)

    def read(broker: Broker, is_over: Callable[[], bool]) -> tuple[bool, list[int]]:
        written, stable, broker.written, broker.stable = broker.written, broker.stable, 0, 0
        monkeypatch.setattr(kafka_topic, "Consumer", broker.consumer)
        reader = TopicReader({}, "topic", lambda _key, value: MarkedEvent("a", int(value or 0)))
        broker.written, broker.stable = written, stable
        noted: list[RecordRead] = []
        is_read = reader.read_again(noted.append, is_over)
        return is_read, [record.offset for record in noted]

    return read


Read = Callable[[Broker, Callable[[], bool]], tuple[bool, list[int]]]


def test_a_topic_without_open_transactions_is_read_to_its_end(read_again: Read) -> None:
    assert read_again(Broker(written=3, stable=3), lambda: True) == (True, [0, 1, 2])


def test_a_topic_that_is_empty_is_read_to_its_end(read_again: Read) -> None:
    assert read_again(Broker(written=0, stable=0), lambda: True) == (True, [])


def test_a_topic_is_not_read_to_its_end_while_a_transaction_is_open_in_it(read_again: Read) -> None:
    assert read_again(Broker(written=3, stable=1), lambda: True) == (False, [0])


def test_a_transaction_that_ends_in_time_is_waited_for(read_again: Read) -> None:
    broker = Broker(written=3, stable=1)

    def is_over() -> bool:
        broker.stable = broker.written
        return False

    assert read_again(broker, is_over) == (True, [0, 1, 2])


def test_a_topic_that_may_not_be_read_is_an_error_and_not_an_end_that_is_late(read_again: Read) -> None:
    broker = Broker(written=3, stable=3)
    broker.refusal = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(InorderError):
        read_again(broker, lambda: True)
