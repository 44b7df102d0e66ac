"""The partitions of topics, shared by the instances of a consumer group: a `SharedTail`.

The group only assigns partitions. Where each begins is the owner's decision, and no offset is committed. A consumer
that is not to share takes all partitions by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from inorder.journal.projection_runner import Polled
from inorder.journal.stores.kafka_log import GROUP, OFFSET_GONE, PROPERTIES, TAIL_CHUNK, continue_or_raise, record_of
from inorder.journal.stores.ports import LogRecord
from inorder.kafka.admin import Cluster
from inorder.kafka.errors import error_of, meaning
from inorder.kafka.readers import committed_consumer
from inorder.model.errors import TopicUnavailableError
from inorder.model.partitioning import Extent, Place

SHARED: Final[Mapping[str, object]] = {
    **PROPERTIES,
    # Each rebalance revokes everything first: what was assigned is opened again at its row.
    "partition.assignment.strategy": "range",
    # Topics and partitions that are added are found so soon.
    "topic.metadata.refresh.interval.ms": 30_000,
}
WATERMARK_SECONDS: Final = 5.0


class KafkaSharedTail:
    """Follows the partitions that the group has assigned to this instance; without a group, all of them."""

    def __init__(self, properties: Mapping[str, Any], topics: Sequence[str], group: str | None) -> None:
        """Raises `TopicUnavailableError` if a topic does not exist."""
        self._cluster = Cluster(properties)
        self._assigned: dict[Place, int] = {}
        self._next: dict[Place, int] = {}
        self._generation = 0
        counts = {topic: self.partitions(topic) for topic in topics}
        self._consumer = committed_consumer(properties, group or GROUP, SHARED)
        if group is None:
            self._assigned = {(topic, number): 0 for topic, count in counts.items() for number in range(count)}
        else:
            self._consumer.subscribe(list(topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)

    def assigned(self) -> Mapping[Place, int]:
        return self._assigned

    def partitions(self, topic: str) -> int:
        count = self._cluster.partitions(topic)
        if count is None:
            raise TopicUnavailableError(topic, f"Topic {topic!r} does not exist.", hint="Create it.")
        return count

    def topic_id(self, topic: str) -> str | None:
        return self._cluster.topic_id(topic)

    def extent(self, place: Place) -> Extent:
        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=WATERMARK_SECONDS)
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Reading {place[0]}[{place[1]}]") from exception
        return Extent(*found)

    def end(self, place: Place) -> int:
        known = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        return max(0, known[1])

    def start(self, place: Place, offset: int) -> None:
        self._next[place] = offset
        self._position()

    def stop(self, place: Place) -> None:
        if self._next.pop(place, None) is not None:
            self._position()

    def poll(self, timeout_seconds: float) -> Polled:
        records: dict[Place, list[LogRecord]] = {}
        ends: dict[Place, int] = {}
        lost: set[Place] = set()
        try:
            messages = self._consumer.consume(1, timeout_seconds)
            messages += self._consumer.consume(TAIL_CHUNK - 1, 0) if messages else []
        except KafkaException as exception:
            raise meaning(error_of(exception), "Following topics") from exception
        for message in messages:
            place, error = (message.topic() or "", message.partition() or 0), message.error()
            if error is None:
                records.setdefault(place, []).append(record_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[place] = message.offset() or 0
            elif error.code() in OFFSET_GONE:
                lost.add(place)
            else:
                continue_or_raise(self._consumer, error, *place, self._next.get(place, 0))
        for place, found in records.items():
            if place in self._next:
                self._next[place] = found[-1].offset + 1
        return Polled(records, ends, lost)

    def close(self) -> None:
        self._consumer.close()

    def _position(self) -> None:
        places = [TopicPartition(*place, offset) for place, offset in self._next.items()]
        try:
            self._consumer.assign(places)
        except KafkaException as exception:
            raise meaning(error_of(exception), "Following topics") from exception

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Takes part in the group with nothing to read yet: the owner starts each partition at its row."""
        self._generation += 1
        self._assigned = {(each.topic, each.partition): self._generation for each in partitions}
        self._next.clear()
        consumer.assign([])

    def _revoke(self, consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._assigned = {}
        self._next.clear()
        consumer.unassign()
