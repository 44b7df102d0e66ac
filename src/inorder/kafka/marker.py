"""Reading the last committed marker of a shard back from its compacted topic."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from inorder.kafka.committed import committed_consumer
from inorder.kafka.errors import error_of, meaning
from inorder.model.errors import RejectedError, UnreachableError

TIMEOUT_SECONDS = 20.0
FIRST_LOOK_BACK = 64
BATCH_NAME = "batch"
"""The header that names the batch of a marker."""


class Marker(NamedTuple):
    """A committed marker; the name of its batch tells it from every other one, also from one of the same content."""

    value: bytes | None = None
    batch: bytes | None = None


def read_last_marker(properties: Mapping[str, object], topic: str, partition: int) -> Marker:
    """The newest committed record of the partition; an empty marker if there was never one.

    To be called after `init_transactions`, so that no transaction is open on the partition. Looks at the end first and
    farther back only if it finds nothing but aborted records and transaction markers there.
    """
    consumer = committed_consumer(properties, f"{topic}.reader")
    try:
        return _search_back(consumer, topic, partition)
    except KafkaException as exception:
        found = meaning(error_of(exception), f"Reading the marker in {topic}/{partition}")
        # A partition that was made a moment ago may not be known everywhere yet: no record is to blame.
        raise (UnreachableError(found.message) if isinstance(found, RejectedError) else found) from exception
    finally:
        consumer.close()


def _search_back(consumer: Consumer, topic: str, partition: int) -> Marker:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_SECONDS)
    look_back = FIRST_LOOK_BACK
    while True:
        start = max(low, high - look_back)
        last = _last_from(consumer, TopicPartition(topic, partition, start))
        if last is not None or start == low:
            return last or Marker()
        look_back *= 16


def _last_from(consumer: Consumer, start: TopicPartition) -> Marker | None:
    consumer.assign([start])
    last: Marker | None = None
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            last = Marker(message.value(), _header(message, BATCH_NAME))
        elif error.code() == KafkaError._PARTITION_EOF:
            return last
        elif not error.retriable():
            raise KafkaException(error)
    raise UnreachableError(
        f"The end of {start.topic}/{start.partition} was not reached within {TIMEOUT_SECONDS:.0f} s.",
        hint="Is the broker that leads this partition up?",
    )


def _header(message: Message, name: str) -> bytes | None:
    value = dict(message.headers() or ()).get(name)
    return value.encode() if isinstance(value, str) else value
