"""What we work out without a broker is what the client and the broker do."""

from __future__ import annotations

import random
from collections.abc import Callable

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from inorder.model.message import Limits, Message, encode
from inorder.model.partitioning import Partitioner, partition_of

PARTITIONS = 7
Sent = tuple[bytes, bytes, list[tuple[str, str | bytes | None]]]


def produce(bootstrap: str, topic: str, records: list[Sent]) -> list[int]:
    """Sends with librdkafka's defaults but for the partitioner, and says where each record went."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic(topic, PARTITIONS)]).values()
    created.result(timeout=60)
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    places: list[int] = [-1] * len(records)

    def noting(number: int) -> Callable[[KafkaError | None, Delivered], None]:
        def delivered(error: KafkaError | None, message: Delivered) -> None:
            assert error is None, error
            places[number] = message.partition() or 0

        return delivered

    for number, (key, value, headers) in enumerate(records):
        producer.produce(topic, value, key, headers=headers, on_delivery=noting(number))
    assert producer.flush(60) == 0
    return places


def test_librdkafka_puts_keys_where_partition_of_says(kafka_bootstrap: str, unique: str) -> None:
    chance = random.Random(20261115)
    keys = [chance.randbytes(length) for length in range(65) for _ in range(4)] + [
        b"42",
        b"-7",
        "ключ".encode(),
    ]
    places = produce(kafka_bootstrap, unique, [(key, b"", []) for key in keys])
    assert places == [partition_of(key, PARTITIONS, Partitioner.MURMUR2) for key in keys]


def test_a_message_at_all_default_limits_passes_a_default_client_and_broker(kafka_bootstrap: str, unique: str) -> None:
    limits = Limits()
    message = Message(
        unique,
        key=b"k" * limits.max_key_bytes,
        value=random.Random(1).randbytes(limits.max_value_bytes),
        headers={"h": b"h" * (limits.max_headers_bytes - 11)},
    )
    record = encode(message, limits)
    assert record.key is not None
    assert record.value is not None
    assert produce(kafka_bootstrap, unique, [(record.key, record.value, [*record.headers])]) == [
        partition_of(record.key, PARTITIONS, Partitioner.MURMUR2)
    ]
