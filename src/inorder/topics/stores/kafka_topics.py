"""What a switch of generations, and `inorder topics apply`, ask of the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from inorder.kafka.admin import BROKERS_CHOICE, SECONDS, Cluster, ensure_compacted_topic, ensure_topic
from inorder.kafka.errors import BEING_MADE, CLIENT_LOG, error_of, meaning
from inorder.kafka.fenced_producer import OURS
from inorder.kafka.readers import committed_consumer, read_last_record
from inorder.model.errors import TransientError, UnreachableError
from inorder.topics.generations import Target, TopicGenerations, TopicState, decode, encode
from inorder.topics.stores.kafka_copy import ORIGIN


class KafkaTopicCluster(Cluster):
    """The topics of a cluster, as a `TopicCluster`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(properties)
        self._properties = dict(properties)

    def is_empty(self, topic: str) -> bool:
        """Whether no partition ever got anything."""
        partitions = self.partitions(topic) or 0
        return not any(self.written_ends(topic, partitions).values())

    def make(self, target: Target, like: str) -> None:
        """Makes a topic with the settings that somebody gave another one, and as many replicas."""
        self.make_topic(target, self.given_settings(like), self.replicas(like))

    def make_topic(self, target: Target, config: Mapping[str, str], replicas: int | None) -> None:
        """Makes a topic unless it is there."""
        ensure_topic(self._properties, target.topic, target.partitions, config, replicas=replicas or BROKERS_CHOICE)

    def ends(self, topic: str, partitions: int) -> tuple[int, ...] | None:
        """The offset behind each partition's last committed record; None while a transaction is open."""
        written = self.written_ends(topic, partitions)
        # What is behind the last stable offset belongs to a transaction that is open, or follows one.
        if written != self.committed_ends(topic, partitions):
            return None
        return tuple(map(_end, self._last_records(topic, partitions)))

    def late(self, topic: str, ends: Sequence[int]) -> int:
        """How many offsets stand behind the ends, but for partitions that end with a copy (`kafka/copying.py`)."""
        found = self._last_records(topic, len(ends))
        behind = [max(0, _end(last) - end) for last, end in zip(found, ends, strict=True)]
        return sum(0 if _is_copy(last) else count for last, count in zip(found, behind, strict=True))

    def _last_records(self, topic: str, partitions: int) -> list[Message | None]:
        consumer = committed_consumer(self._properties, "inorder.topics.ends")
        try:
            return [read_last_record(consumer, topic, partition) for partition in range(partitions)]
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Looking for the ends of {topic!r}") from exception
        finally:
            consumer.close()

    def replicas(self, topic: str) -> int:
        """How many replicas the topic's first partition has."""
        future = self._client.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic]
        return len(self._answer(future).partitions[0].replicas)

    def given_settings(self, topic: str) -> dict[str, str]:
        """The settings that somebody gave the topic, without what the broker does by itself."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answers = self._client.describe_configs([resource], request_timeout=SECONDS)
        found = self._answer(answers[resource])
        given = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in found.items() if entry.source == given}

    def change_settings(self, topic: str, config: Mapping[str, str]) -> None:
        """Sets some of the topic's settings; the others stay."""
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        answers = self._client.incremental_alter_configs([resource], request_timeout=SECONDS)
        self._answer(answers[resource])


def _end(last: Message | None) -> int:
    return 0 if last is None else (last.offset() or 0) + 1


def _is_copy(message: Message | None) -> bool:
    return message is not None and ORIGIN in dict(message.headers() or ())


# The compacted topic `inorder.topics`: a copy of all topics' states for those who cannot ask the database.
#
# A record a topic, its key the name, its value the state. Writers take turns by the broker's fence: whoever writes
# first initialises the one transactional id and only then asks the database. So a state that is written was read
# after every earlier writer was stopped, and the last record of a key is never older than one before it. Whoever
# changes the database writes the copy afterwards, so in the end it is the newest.
#
# A reader asks how far the topic goes, and reads on if it goes farther than it has read: one small request where
# nothing has changed.

TOPIC = "inorder.topics"
MIRROR_SECONDS = 10.0
STEP_SECONDS = 0.2
VISIBLE_SECONDS = 0.01
QUICK_SECONDS = 1.0
"""How long a publisher waits for an answer: its callers may have little time, and hear meanwhile that they wait."""


class KafkaTopicMirror:
    """Writes the copy, and tells how far it is."""

    def __init__(self, properties: Mapping[str, object], topic: str = TOPIC) -> None:
        self._properties = dict(properties)
        self._topic = topic
        self._reader = MirrorReader(properties, topic)

    def epoch(self, topic: str) -> int:
        """The epoch of a topic that readers find."""
        return next((state.epoch for state in self._reader.read_all() if state.topic == topic), 0)

    def write(self, authority: TopicGenerations, topic: str) -> None:
        """Stops every other writer, asks the authority, and copies what it says; returns when everybody can read it."""
        ensure_compacted_topic(self._properties, self._topic, 1)
        try:
            written = self._write(authority, topic)
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Writing {topic!r} to {self._topic!r}") from exception
        deadline = time.monotonic() + MIRROR_SECONDS
        # The broker shows a transaction a moment after it has answered the commit.
        while self.epoch(topic) < written:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"What was written to {self._topic!r} does not appear within {MIRROR_SECONDS:.0f} s."
                )
            time.sleep(VISIBLE_SECONDS)

    def _write(self, authority: TopicGenerations, topic: str) -> int:
        name = {"transactional.id": f"{self._topic}.mirror", "transaction.timeout.ms": 10_000}
        producer = Producer({**self._properties, **OURS, **name}, logger=CLIENT_LOG)
        producer.init_transactions(MIRROR_SECONDS)
        state = authority.read(topic)
        if state is None:
            return 0
        producer.begin_transaction()
        producer.produce(self._topic, encode(state), topic, partition=0)
        producer.commit_transaction(MIRROR_SECONDS)
        return state.epoch

    def close(self) -> None:
        """Ends the reader; may be called twice."""
        self._reader.close()


class MirrorReader:
    """What the mirror says. Nothing is connected before the first question; any thread may ask."""

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
        """All states, none where no topic was ever switched. Raises `TransientError` without an answer."""
        with self._lock:
            try:
                self._read_on()
            except KafkaException as exception:
                raise meaning(error_of(exception), f"Reading {self._topic!r}") from exception
            return list(self._states.values())

    def close(self) -> None:
        """Ends the connection; may be called twice."""
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
        for message in self._until_the_end(self._consumer):
            self._note(message)
        self._next_offset = end

    def _exists(self, consumer: Consumer) -> bool:
        found = consumer.list_topics(self._topic, timeout=self._answer_seconds).topics[self._topic]
        if found.error is None:
            return True
        if found.error.code() not in BEING_MADE:
            raise KafkaException(found.error)
        return False

    def _until_the_end(self, consumer: Consumer) -> Sequence[Message]:
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
