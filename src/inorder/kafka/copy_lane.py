"""One partition of a topic being copied, held by its transactional id (`copying.py` has the protocol)."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.committed import committed_consumer
from inorder.kafka.committing import commit
from inorder.kafka.errors import OF_THE_RECORD, error_of, meaning, words
from inorder.kafka.sender import BY_THE_CLIENT
from inorder.kafka.shard_log import DEFAULTS, OURS
from inorder.kafka.topic_limits import TopicLimits
from inorder.model.errors import ConfigurationError, FencedError, InorderError, RejectedError, TransientError
from inorder.model.message import RecordHeaders
from inorder.model.partition import Partitioner, partition_of
from inorder.ports.slice_work import Slice

ORIGIN = "inorder-origin"
"""The header with the coordinates of the original: topic/partition/offset."""
ANSWER_SECONDS = 30.0
COMMIT_SECONDS = 60.0
ABORT_SECONDS = 5.0
ASK_AGAIN_SECONDS = 0.05
SERVE_EVERY = 1_000
"""After so many records the client is given time to tell what became of those before."""


class Lane:
    """One partition of the source, held by its transactional id."""

    def __init__(
        self,
        properties: Mapping[str, object],
        group: str,
        source: tuple[str, int],
        destination: str,
        partitioner: Partitioner,
    ) -> None:
        """Takes the partition from whoever holds it, and asks how far it is copied."""
        self.group = group
        self._destination = destination
        self._partitioner = partitioner
        self._refused: list[tuple[KafkaError, Message]] = []
        topic, number = source
        limits = TopicLimits(properties)
        limits.learn([destination])
        fence = {"transactional.id": f"{group}.{number}", "batch.size": limits.batch_size}
        reports = {"on_delivery": self._note_refusal}
        self._producer = Producer({**DEFAULTS, **properties, **OURS, **fence, **reports}, logger=CLIENT_LOG)
        consumer = committed_consumer(properties, group)
        try:
            self._producer.init_transactions(ANSWER_SECONDS)
            self._partitions = partitions_of(consumer, destination)
            found = dict(committed(consumer, topic, [number]))
            self._group_metadata = consumer.consumer_group_metadata()
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Taking over {group}.{number}") from exception
        finally:
            consumer.close()
        self.pointer = found.get(number, 0)
        """How far the partition is copied; while it is held nobody else can move it."""

    def copy(self, batch: Slice, from_offset: int) -> int:
        """Copies the records from an offset on, in one transaction; how many there were."""
        first = bisect_left(batch.offsets, from_offset)
        self._refused.clear()
        try:
            self._producer.begin_transaction()
            for index in range(first, len(batch)):
                self._send(batch, index)
                if index % SERVE_EVERY == 0:
                    self._producer.poll(0)
            moved = TopicPartition(batch.topic, batch.partition, batch.next_offset)
            self._producer.send_offsets_to_transaction([moved], self._group_metadata, COMMIT_SECONDS)
            commit(self._producer, COMMIT_SECONDS, ANSWER_SECONDS)
        except KafkaException as exception:
            raise self._given_up(batch, error_of(exception)) from exception
        self.pointer = batch.next_offset
        return len(batch) - first

    def _send(self, batch: Slice, index: int) -> None:
        key = batch.keys[index]
        place = partition_of(key, self._partitions, self._partitioner)
        time_us = batch.timestamps[index]
        origin = f"{batch.topic}/{batch.partition}/{batch.offsets[index]}".encode()
        headers: RecordHeaders = (*batch.headers[index], (ORIGIN, origin))
        while True:
            try:
                self._producer.produce(
                    self._destination,
                    batch.values[index],
                    key,
                    BY_THE_CLIENT if place is None else place,
                    timestamp=0 if time_us is None else time_us // 1000,
                    headers=list(headers),
                )
                return
            except BufferError:
                self._producer.poll(ASK_AGAIN_SECONDS)

    def _given_up(self, batch: Slice, error: KafkaError) -> InorderError:
        """What a transaction that failed means. The lane is not used again; readers are let go at once if possible."""
        if not error.fatal():
            with suppress(KafkaException):
                self._producer.abort_transaction(ABORT_SECONDS)
        if self._refused:
            return self._refusal(batch)
        found = meaning(error, f"Copying {batch} to {self._destination!r}")
        if isinstance(found, FencedError):
            return FencedError(found.message, hint="Another copier works on the same topics; one is enough.")
        return found

    def _note_refusal(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() in OF_THE_RECORD:
            self._refused.append((error, message))

    def _refusal(self, batch: Slice) -> RejectedError:
        """Names the record; the client's report has its key and value, but not where it came from."""
        error, message = self._refused[0]
        content = message.key(), message.value()
        found = (
            at for at, *each in zip(batch.offsets, batch.keys, batch.values, strict=True) if tuple(each) == content
        )
        place = f"{batch.topic}[{batch.partition}] offset {next(found, 'unknown')}"
        return RejectedError(
            f"{self._destination!r} refuses the copy of {place} with key {message.key()!r}: {words(error)}",
            hint="Give the destination the max.message.bytes that the source has, and run it again.",
        )


def partitions_of(consumer: Consumer, topic: str) -> int:
    """How many partitions a topic has."""
    found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    if found.error is not None:
        raise ConfigurationError(f"There is no topic {topic!r} to copy from or to: {found.error.str()}.")
    return len(found.partitions)


def committed(consumer: Consumer, topic: str, partitions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The offsets of partitions that have one."""
    found = ask_committed(consumer, [TopicPartition(topic, number) for number in partitions])
    return ((place.partition, place.offset) for place in found if place.offset >= 0)


def ask_committed(consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """What the group of the consumer has committed for partitions; a negative offset is nothing.

    The coordinator moves when its broker stops, is nowhere for a moment on a cluster that never had a group, and knows
    no answer while the marks of a transaction are being written. So it is asked again.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return consumer.committed(places, timeout=ANSWER_SECONDS)
        except KafkaException as exception:
            passing = isinstance(meaning(error_of(exception), "Asking for offsets"), TransientError)
            if not passing or time.monotonic() > deadline:
                raise
            time.sleep(ASK_AGAIN_SECONDS)
