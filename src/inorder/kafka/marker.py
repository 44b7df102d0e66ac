"""Reading the last committed marker of a shard back from its compacted topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException, Message

from inorder.kafka.committed import committed_consumer
from inorder.kafka.errors import error_of, meaning
from inorder.kafka.last_record import read_last_record
from inorder.model.errors import RejectedError, UnreachableError

BATCH_NAME = "batch"
"""The header that names the batch of a marker."""


class Marker(NamedTuple):
    """A committed marker; the name of its batch tells it from every other one, also from one of the same content."""

    value: bytes | None = None
    batch: bytes | None = None


def read_last_marker(properties: Mapping[str, object], topic: str, partition: int) -> Marker:
    """The newest committed record of the partition; an empty marker if there was never one.

    To be called after `init_transactions`, so that no transaction is open on the partition.
    """
    consumer = committed_consumer(properties, f"{topic}.reader")
    try:
        last = read_last_record(consumer, topic, partition)
        return Marker() if last is None else Marker(last.value(), _header(last, BATCH_NAME))
    except KafkaException as exception:
        found = meaning(error_of(exception), f"Reading the marker in {topic}/{partition}")
        # A partition that was made a moment ago may not be known everywhere yet: no record is to blame.
        raise (UnreachableError(found.message) if isinstance(found, RejectedError) else found) from exception
    finally:
        consumer.close()


def _header(message: Message, name: str) -> bytes | None:
    value = dict(message.headers() or ()).get(name)
    return value.encode() if isinstance(value, str) else value
