"""Kafka's part of a switch: the topics themselves, and the mirror of all states.

**The mirror** is the compacted topic `inorder.topics`: a copy of all topics' states for publishers that cannot read the
database. It has one record per topic, whose key is the name and whose value is the state. The fence serialises writers:
a writer takes the one transactional id over (`kafka/fenced_producer.py`) and only then reads the database. So every
state that is written was read after all earlier writers were stopped, and the last record of a key is never older than
an earlier one. Each change of the database is followed by a write of the mirror, so in the end the mirror has the
newest state.

A reader asks for the end of the topic, and reads on if it is farther than it has read: one small request where nothing
has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from inorder.kafka.admin import BROKER_DEFAULT, SECONDS, Cluster, ensure_compacted_topic, ensure_topic
from inorder.kafka.errors import BEING_MADE, error_of, meaning
from inorder.kafka.fenced_producer import NO_PROPERTIES, FencedProducer, Timeouts
from inorder.kafka.readers import committed_consumer, read_last_record
from inorder.model.errors import TransientError, UnreachableError
from inorder.topics.generations import Target, TopicGenerations, TopicState, decode, encode
from inorder.topics.stores.kafka_copy import ORIGIN


class KafkaTopicCluster(Cluster):
    """The `TopicCluster` of a Kafka cluster."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(properties)
        self._properties = dict(properties)

    def is_empty(self, topic: str) -> bool:
        """Whether nothing was ever written to any partition."""
        partitions = self.partitions(topic) or 0
        return not any(self.written_ends(topic, partitions).values())

    def make(self, target: Target, like: str) -> None:
        """Creates a topic with the settings that were set on another one, and as many replicas."""
        self.make_topic(target, self.given_settings(like), self.replicas(like))

    def make_topic(self, target: Target, config: Mapping[str, str], replicas: int | None) -> None:
        """Creates a topic unless it exists."""
        ensure_topic(self._properties, target.topic, target.partitions, config, replicas=replicas or BROKER_DEFAULT)

    def ends(self, topic: str, partitions: int) -> tuple[int, ...] | None:
        """The offset after each partition's last committed record; None while a transaction is open."""
        written = self.written_ends(topic, partitions)
        # Records beyond the last stable offset belong to an open transaction, or follow one.
        if written != self.committed_ends(topic, partitions):
            return None
        return tuple(_end_after(last) for last in self._last_records(topic, partitions))

    def late(self, topic: str, ends: Sequence[int]) -> int:
        """Counts the offsets after the ends, except in partitions that end with a copy (`kafka_copy.py`)."""
        found = self._last_records(topic, len(ends))
        behind = [max(0, _end_after(last) - end) for last, end in zip(found, ends, strict=True)]
        return sum(0 if _is_copy(last) else count for last, count in zip(found, behind, strict=True))

    def _last_records(self, topic: str, partitions: int) -> list[Message | None]:
        consumer = committed_consumer(self._properties, "inorder.topics.ends")
        try:
            return [read_last_record(consumer, topic, partition) for partition in range(partitions)]
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Reading the ends of {topic!r}") from exception
        finally:
            consumer.close()

    def replicas(self, topic: str) -> int:
        """The number of replicas of the topic's first partition."""
        future = self._client.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic]
        return len(self._answer(future).partitions[0].replicas)

    def given_settings(self, topic: str) -> dict[str, str]:
        """The settings that were set on the topic, without the broker's defaults."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answers = self._client.describe_configs([resource], request_timeout=SECONDS)
        found = self._answer(answers[resource])
        given = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in found.items() if entry.source == given}

    def change_settings(self, topic: str, config: Mapping[str, str]) -> None:
        """Changes some of the topic's settings; the others stay."""
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        answers = self._client.incremental_alter_configs([resource], request_timeout=SECONDS)
        self._answer(answers[resource])


def _end_after(last: Message | None) -> int:
    return 0 if last is None else (last.offset() or 0) + 1


def _is_copy(message: Message | None) -> bool:
    return message is not None and ORIGIN in dict(message.headers() or ())


TOPIC = "inorder.topics"
MIRROR_SECONDS = 10.0
MIRROR_TIMEOUTS = Timeouts(init=MIRROR_SECONDS, commit=MIRROR_SECONDS)
"""The commit is tried once: the operator repeats the whole write."""
STEP_SECONDS = 0.2
VISIBLE_SECONDS = 0.01
QUICK_SECONDS = 1.0
"""How long a publisher waits for an answer: its callers may have little time."""


class KafkaTopicMirror:
    """Writes the mirror, and reads its epochs."""

    def __init__(self, properties: Mapping[str, object], topic: str = TOPIC) -> None:
        self._properties = dict(properties)
        self._topic = topic
        self._reader = MirrorReader(properties, topic)

    def epoch(self, topic: str) -> int:
        """The epoch of a topic that readers see."""
        return next((state.epoch for state in self._reader.read_all() if state.topic == topic), 0)

    def write(self, authority: TopicGenerations, topic: str) -> None:
        """Fences every other writer and copies the present state; returns when all readers can see it."""
        ensure_compacted_topic(self._properties, self._topic, 1)
        try:
            written = self._write(authority, topic)
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Writing {topic!r} to {self._topic!r}") from exception
        deadline = time.monotonic() + MIRROR_SECONDS
        # A transaction becomes visible a moment after the broker has answered the commit.
        while self.epoch(topic) < written:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"What was written to {self._topic!r} did not become visible within {MIRROR_SECONDS:.0f} s."
                )
            time.sleep(VISIBLE_SECONDS)

    def _write(self, authority: TopicGenerations, topic: str) -> int:
        producer = FencedProducer(
            self._properties,
            f"{self._topic}.mirror",
            defaults=NO_PROPERTIES,
            overrides={"transaction.timeout.ms": 10_000},
            timeouts=MIRROR_TIMEOUTS,
        )
        state = authority.read(topic)
        if state is None:
            return 0
        producer.begin()
        producer.client.produce(self._topic, encode(state), topic, partition=0)
        producer.commit()
        return state.epoch

    def close(self) -> None:
        """Closes the reader; may be called twice."""
        self._reader.close()


class MirrorReader:
    """Reads the mirror; thread-safe. Connects with the first read."""

    def __init__(
        self, properties: Mapping[str, object], topic: str = TOPIC, *, answer_seconds: float = MIRROR_SECONDS
    ) -> None:
        self._properties = dict(properties)
        self._topic = topic
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._states: dict[str, TopicState] = {}
        self._next_offset = 0

    def read_all(self) -> Sequence[TopicState]:
        """All states; none if no topic was ever switched. Raises `TransientError` if there is no answer."""
        with self._lock:
            try:
                self._read_on()
            except KafkaException as exception:
                raise meaning(error_of(exception), f"Reading {self._topic!r}") from exception
            return list(self._states.values())

    def close(self) -> None:
        """Closes the connection; may be called twice."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _read_on(self) -> None:
        if self._consumer is None:
            self._consumer = committed_consumer(self._properties, f"{self._topic}.reader")
        if not self._next_offset and not self._exists(self._consumer):
            return
        place = TopicPartition(self._topic, 0)
        _, end = self._consumer.get_watermark_offsets(place, timeout=self._answer_seconds)
        if end <= self._next_offset:
            return
        self._consumer.assign([TopicPartition(self._topic, 0, self._next_offset)])
        for message in self._read_to_end(self._consumer):
            self._note(message)
        self._next_offset = end

    def _exists(self, consumer: Consumer) -> bool:
        found = consumer.list_topics(self._topic, timeout=self._answer_seconds).topics[self._topic]
        if found.error is None:
            return True
        if found.error.code() not in BEING_MADE:
            raise KafkaException(found.error)
        return False

    def _read_to_end(self, consumer: Consumer) -> Sequence[Message]:
        messages: list[Message] = []
        for _ in range(round(self._answer_seconds / STEP_SECONDS)):
            for message in consumer.consume(1000, STEP_SECONDS):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return messages
                elif not error.retriable():
                    raise KafkaException(error)
        raise UnreachableError(f"The end of {self._topic!r} was not reached within {self._answer_seconds:g} s.")

    def _note(self, message: Message) -> None:
        value = message.value()
        if value is None:
            raise TransientError(f"A record of {self._topic!r} has no value.")
        state = decode(value)
        known = self._states.get(state.topic)
        if known is None or known.epoch < state.epoch:
            self._states[state.topic] = state
