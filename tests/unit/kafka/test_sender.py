"""Rows reach the client whole and in their order, and nothing passes one that it does not take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from inorder.kafka.known_topics import KnownTopics
from inorder.kafka.sender import BY_THE_CLIENT, NOW, Book, Sender
from inorder.model.errors import RejectedError, TransientError
from inorder.model.partition import Partitioner
from inorder.ports.outbox_store import OutboxRow

PARTITIONS = 3
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
HEADERS = (("h", b"1"), ("h", None))


class Trusting(KnownTopics):
    """Every topic is there."""

    def __init__(self) -> None:
        super().__init__({})

    def require(self, *_arguments: Any, **_options: Any) -> None: ...

    def count(self, topic: str) -> int:  # noqa: ARG002 - they are all alike
        return PARTITIONS


class Client:
    """Takes records as the real one does, and refuses some."""

    def __init__(self, refused: Callable[[bytes | None], bool] = lambda _value: False) -> None:
        self.taken: list[tuple[str, bytes | None, int]] = []
        self.rest: list[tuple[Any, ...]] = []
        self.callbacks: dict[bytes | None, Any] = {}
        self.is_full = False
        self._refused = refused

    def produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int, *rest: Any) -> None:
        report, _, at, headers = rest
        if self.is_full:
            raise BufferError
        if self._refused(value):
            raise KafkaException(TOO_LARGE)
        self.taken.append((topic, value, partition))
        self.rest.append((key, at, headers))
        self.callbacks[value] = report

    @property
    def values(self) -> list[bytes | None]:
        return [value for _, value, _ in self.taken]


def row(id: int, *, key: bytes | None = b"k", **fields: Any) -> OutboxRow:
    return OutboxRow(id, "t", key, b"%d" % id, (), None, None)._replace(**fields)


def send(
    client: Client,
    rows: Sequence[OutboxRow],
    book: Book | None = None,
    partitioners: Mapping[str, Partitioner] | None = None,
) -> None:
    Sender(partitioners or {}, Trusting()).send(cast("Producer", client), rows, book)


def test_rows_of_every_form_go_in_their_order_and_as_they_are() -> None:
    client = Client()
    rows = [
        row(1),
        row(2, headers=HEADERS, partition=2, timestamp_ms=5),
        row(3, topic="u", key=None),
        row(4, value=None),
        row(5, partition=0),
    ]
    send(client, rows)
    assert client.taken == [
        ("t", b"1", BY_THE_CLIENT),
        ("t", b"2", 2),
        ("u", b"3", BY_THE_CLIENT),
        ("t", None, BY_THE_CLIENT),
        ("t", b"5", 0),
    ]
    plain = (b"k", NOW, None)
    assert client.rest == [plain, (b"k", 5, list(HEADERS)), (None, NOW, None), plain, plain]


def test_partitions_are_chosen_by_the_rule_of_the_topic_and_by_the_key_that_routes() -> None:
    rows = [row(id, key=b"%d" % id, headers=HEADERS if id % 2 else ()) for id in range(6)]
    client = Client()
    send(client, [*rows, row(6, key=b"x", partition_key=b"4")], partitioners={"t": Partitioner.ID_MODULO})
    assert {value: partition for _, value, partition in client.taken} == {b"%d" % id: id % 3 for id in range(6)} | {
        b"6": 4 % PARTITIONS
    }


def test_the_row_that_the_client_refuses_is_named_and_nothing_passes_it() -> None:
    client, book = Client(lambda value: value == b"3"), Book()
    with pytest.raises(RejectedError, match="outbox row 3 to topic 't'") as caught:
        send(client, [row(id) for id in range(1, 6)], book)
    assert caught.value.row_id == 3
    assert client.values == [b"1", b"2"]
    assert book.delivered() == {1, 2}


def test_a_delivery_report_is_noted_for_its_row() -> None:
    client, book = Client(), Book()
    send(client, [row(id) for id in range(1, 4)], book)
    client.callbacks[b"1"](None, None)
    client.callbacks[b"2"](TOO_LARGE, None)
    assert book.failed == {2: TOO_LARGE}
    assert book.delivered() == {1, 3}


def test_without_a_book_nobody_asks_for_reports() -> None:
    client = Client()
    send(client, [row(1), row(2, headers=HEADERS)])
    assert client.callbacks == {b"1": None, b"2": None}


def test_a_full_queue_is_an_error_of_the_environment() -> None:
    client, book = Client(), Book()
    client.is_full = True
    with pytest.raises(TransientError, match="queue is full at outbox row 1"):
        send(client, [row(1, headers=HEADERS)], book)
    assert book.queued == []
