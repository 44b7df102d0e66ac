"""The compacted topic `inorder.topics`: a copy of all topics' states for those who cannot ask the database.

A record a topic, its key the name, its value the state. Writers take turns by the broker's fence: whoever writes first
initialises the one transactional id and only then asks the database. So a state that is written was read after every
earlier writer was stopped, and the last record of a key is never older than one before it. Whoever changes the database
writes the copy afterwards, so in the end it is the newest.

A reader asks how far the topic goes, and reads on if it goes farther than it has read: one small request where nothing
has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.committed import committed_consumer
from inorder.kafka.errors import BEING_MADE, error_of, meaning
from inorder.kafka.shard_log import OURS
from inorder.kafka.topics import ensure_compacted_topic
from inorder.model.errors import TransientError, UnreachableError
from inorder.ports.topic_generations import TopicGenerations, TopicState
from inorder.topics.codec import decode, encode

TOPIC = "inorder.topics"
SECONDS = 10.0
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
        deadline = time.monotonic() + SECONDS
        # The broker shows a transaction a moment after it has answered the commit.
        while self.epoch(topic) < written:
            if time.monotonic() > deadline:
                raise UnreachableError(f"What was written to {self._topic!r} does not appear within {SECONDS:.0f} s.")
            time.sleep(VISIBLE_SECONDS)

    def _write(self, authority: TopicGenerations, topic: str) -> int:
        name = {"transactional.id": f"{self._topic}.mirror", "transaction.timeout.ms": 10_000}
        producer = Producer({**self._properties, **OURS, **name}, logger=CLIENT_LOG)
        producer.init_transactions(SECONDS)
        state = authority.read(topic)
        if state is None:
            return 0
        producer.begin_transaction()
        producer.produce(self._topic, encode(state), topic, partition=0)
        producer.commit_transaction(SECONDS)
        return state.epoch

    def close(self) -> None:
        """Ends the reader; may be called twice."""
        self._reader.close()


class MirrorReader:
    """What the mirror says. Nothing is connected before the first question; any thread may ask."""

    def __init__(
        self, properties: Mapping[str, object], topic: str = TOPIC, *, answer_seconds: float = SECONDS
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
