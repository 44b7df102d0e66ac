"""Reading a topic from its beginning to its present end, committed records only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from inorder.kafka.committed import committed_consumer
from inorder.kafka.errors import error_of, meaning
from inorder.model.errors import UnreachableError
from inorder.model.message import RecordHeaders

TIMEOUT_SECONDS = 30.0
CHUNK = 10_000


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record with its coordinates."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    timestamp_ms: int


def read_back(properties: Mapping[str, object], topic: str) -> Iterator[ReadRecord]:
    """Every committed record of the topic, in offset order within each partition."""
    consumer = committed_consumer(properties, "inorder.read-back")
    try:
        yield from _read_to_the_end(consumer, topic, _partitions(consumer, topic))
    except KafkaException as exception:
        raise meaning(error_of(exception), f"Reading {topic!r} back") from exception
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> set[int]:
    found = consumer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic]
    return set(found.partitions) if found.error is None else set()


def _read_to_the_end(consumer: Consumer, topic: str, unread: set[int]) -> Iterator[ReadRecord]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in unread])
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while unread:
        if time.monotonic() > deadline:
            raise UnreachableError(f"The end of {topic!r} was not reached within {TIMEOUT_SECONDS:.0f} s.")
        for message in consumer.consume(CHUNK, 0.02):
            error = message.error()
            if error is None:
                deadline = time.monotonic() + TIMEOUT_SECONDS
                yield _record(topic, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition() or 0)
            elif not error.retriable():
                raise KafkaException(error)


def _record(topic: str, message: Message) -> ReadRecord:
    # The client's stubs allow more shapes of headers than a received message has.
    headers = cast("RecordHeaders", tuple(message.headers() or ()))
    partition, offset, timestamp = message.partition() or 0, message.offset() or 0, message.timestamp()[1]
    return ReadRecord(topic, partition, offset, message.key(), message.value(), headers, timestamp)
