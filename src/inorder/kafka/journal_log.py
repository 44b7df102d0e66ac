"""The topics of journals on a Kafka cluster: a `JournalLog`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from inorder.kafka.admin import Cluster, check_properties
from inorder.kafka.committed import committed_consumer
from inorder.kafka.errors import error_of, meaning
from inorder.kafka.journal_producer import JournalProducer
from inorder.kafka.journal_windows import (
    GROUP,
    PROPERTIES,
    consumer_pool,
    continue_or_raise,
    lost,
    record_of,
    window_records,
)
from inorder.model.errors import TopicUnavailableError
from inorder.model.journal import PartitionOffset
from inorder.model.message import Record
from inorder.model.partition import Partitioner, partition_of
from inorder.ports.deadline import Deadline
from inorder.ports.journal_log import LogRecord, TopicTail, Window
from inorder.ports.pool import OnLent, untold

CHUNK = 5_000


class KafkaJournalLog:
    """Sends, reads windows and follows topics; nothing connects before it is needed."""

    def __init__(self, properties: Mapping[str, Any], *, on_lent: OnLent = untold) -> None:
        """`on_lent` is told of every loan of a consumer."""
        check_properties(properties)
        self._properties = dict(properties)
        self._producer = JournalProducer(properties)
        self._pool = consumer_pool(properties, on_lent)

    def send(self, record: Record) -> Future[PartitionOffset]:
        """Sends without waiting."""
        return self._producer.send(record)

    def partition_of(self, topic: str, key: bytes) -> int | None:
        """Where the key's records go, as long as the topic keeps its partitions."""
        partitions = self._producer.partitions(topic)
        return None if partitions is None else partition_of(key, partitions, Partitioner.MURMUR2)

    def records(self, window: Window, key: bytes, deadline: Deadline) -> Generator[LogRecord, None, None]:
        """The records with this key in a window."""
        with self._pool.lent() as consumer:
            yield from window_records(consumer, window, key, deadline)

    def tail(self, topic: str) -> TopicTail:
        """A consumer of its own."""
        return KafkaTail(self._properties, topic)

    def close(self) -> None:
        """Sends what waits, then lets everything go."""
        self._producer.close()
        self._pool.close()


class KafkaTail:
    """Follows all partitions of a topic."""

    def __init__(self, properties: Mapping[str, Any], topic: str, more: Mapping[str, object] = PROPERTIES) -> None:
        self._properties = dict(properties)
        self._topic = topic
        self._more = more
        self._consumer: Consumer | None = None
        self._next: dict[int, int] = {}

    def partitions(self) -> Sequence[int]:
        """As the broker knows them now."""
        count = Cluster(self._properties).partitions(self._topic)
        if count is None:
            raise TopicUnavailableError(self._topic, f"Topic {self._topic!r} does not exist.", hint="Create it.")
        return range(count)

    def start(self, offsets: Mapping[int, int]) -> None:
        """Reads from these offsets on."""
        consumer = self._consumer = self._consumer or committed_consumer(self._properties, GROUP, self._more)
        try:
            for partition, offset in offsets.items():
                first, _ = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=5)
                if first > offset:
                    raise lost(consumer, self._topic, partition, offset)
            consumer.assign([TopicPartition(self._topic, partition, at) for partition, at in offsets.items()])
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Following {self._topic!r}") from exception
        self._next = dict(offsets)

    def poll(self, timeout_seconds: float) -> Mapping[int, Sequence[LogRecord]]:
        """Waits for the first record, then takes what is there."""
        assert self._consumer is not None, "start comes first"  # noqa: S101 - the port says so
        found: dict[int, list[LogRecord]] = {}
        try:
            messages = self._consumer.consume(1, timeout_seconds)
            messages += self._consumer.consume(CHUNK - 1, 0) if messages else []
            for message in messages:
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    found.setdefault(partition, []).append(record_of(message))
                elif error.code() != KafkaError._PARTITION_EOF:
                    continue_or_raise(self._consumer, error, self._topic, partition, self._next.get(partition, 0))
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Following {self._topic!r}") from exception
        for partition, records in found.items():
            self._next[partition] = records[-1].offset + 1
        return found

    def close(self) -> None:
        """Leaves the broker."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
