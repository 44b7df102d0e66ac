"""Copying one Kafka topic into another, each record exactly once and in order per key: the job `migrate`.

A copy is a slice work like any other (`engines/slice_work.py`), so every engine can run it: tasks of Spark, or this
process alone for `inorder topics migrate`.

**What is authoritative.** The offsets committed by the consumer group of the copy, one per partition of the source.
They are committed in the transaction that carries the copies. So a record is in the copy if and only if its offset is
committed.

**The fence.** Each partition of the source has a transactional id, which a worker takes over with the partition
(`kafka/fenced_producer.py`). The committed offset is read after that, so no other worker can move it.

**Order.** A key lives in one partition of the source. One producer at a time sends all of it in the order of the
offsets, and the destination's partition follows from the key alone. Headers, timestamp and value are copied; one more
header says where the record came from.

Invariants:

1. A slice is copied by one transaction, together with the offset behind it, or not at all.
2. Nothing is sent on a partition before its committed offset was read behind the fence.

Failure table:

| what happens                               | what follows                                                        |
|--------------------------------------------|---------------------------------------------------------------------|
| killed in mid-slice                        | the next holder's fence aborts what is open; it begins at the offset |
| killed after the commit                    | the offset is behind the slice; nothing is copied again             |
| commit sent, answer lost                   | the worker drops the partition; it reads the offset behind the next |
|                                            | fence                                                               |
| a commit is answered late                  | the same after the slice: a repeated request may still arrive       |
| paused, and another worker took over       | fenced: it takes the partition back, finds the offset moved, and     |
|                                            | drops what is copied                                                |
| a partition goes from one worker to another| the same; that is how Spark places the tasks of micro-batches       |
| two copiers at once                        | they fence each other in turn: slower, and nothing twice            |
| the destination refuses a record           | `RejectedError` with its coordinates; nothing behind it is copied   |
| the source was deleted and re-created      | `OtherTopicError`: Kafka deleted the offsets with it, and what was  |
|                                            | not copied is lost. `inorder topics migrate --reset` copies the new |
| the destination was                        | `OtherTopicError`: what was copied is lost, and its offsets are     |
|                                            | not. `--reset` copies everything again                              |
| the group's offsets went back or expired   | a running engine stops with an error. A new one cannot know: it      |
|                                            | copies again what it finds no offset for                            |
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from inorder.engines.slice_work import Apply, MovedBack, Pointer, Skip, Slice, SliceOutcome, check_order, plan
from inorder.kafka.admin import ASK_AGAIN_SECONDS, Cluster
from inorder.kafka.errors import describe, describe_key, error_of, meaning
from inorder.kafka.fenced_producer import TASK_TIMEOUTS, FencedProducer
from inorder.kafka.readers import ANSWER_SECONDS, committed_consumer, read_committed_offsets
from inorder.kafka.sender import CHOSEN_BY_CLIENT
from inorder.kafka.topic_facts import TopicLimits
from inorder.model.errors import (
    ConfigurationError,
    FencedError,
    GuaranteeError,
    InorderError,
    OtherTopicError,
    RejectedError,
)
from inorder.model.message import RecordHeaders
from inorder.model.partitioning import Partitioner, partition_of
from inorder.topics.generations import UNKNOWN_TOPICS, CopiedTopics

ORIGIN = "inorder-origin"
"""The header with the coordinates of the original: topic/partition/offset."""
COMPARE_SECONDS = 2.0
"""How often a destination that is written to is compared with the one that the copy began with."""
SERVE_EVERY = 1_000
"""Records between two calls of `poll`, which lets the client report failed records."""


@dataclass(frozen=True, slots=True)
class CopyWork:
    """Copies one topic into another, both on one cluster."""

    properties: tuple[tuple[str, object], ...] = field(repr=False)
    source: str
    destination: str
    partitioner: Partitioner = Partitioner.MURMUR2
    ids: CopiedTopics = UNKNOWN_TOPICS
    """The topics that the offsets of the copy belong to, where they are known."""
    reset_command: str = "inorder topics migrate --reset"

    @property
    def name(self) -> str:
        """The consumer group that commits the offsets; transactional ids begin with it."""
        return f"inorder.migrate.{self.source}.{self.destination}"

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def needs_headers(self) -> bool:
        return True

    def open(self) -> CopyWorker:
        """A worker that holds no partition yet."""
        return CopyWorker(self)

    def require_source(self, found: str | None) -> None:
        """Raises `OtherTopicError` if the source is another topic of that name."""
        if error := other_copy(self.source, self.ids.source_id, found, self.reset_command):
            raise error

    def require_destination(self) -> None:
        """The same for the destination; asks the cluster."""
        if self.ids.destination_id is None:
            return
        found = Cluster(dict(self.properties)).topic_id(self.destination)
        if error := other_copy(self.destination, self.ids.destination_id, found, self.reset_command):
            raise error


def other_copy(topic: str, copied: str | None, found: str | None, reset_command: str) -> OtherTopicError | None:
    """The error if one side of a copy is another topic than before; None where one of the ids is unknown."""
    if copied is None or found is None or copied == found:
        return None
    return OtherTopicError(
        f"Topic {topic!r} was deleted and re-created in the middle of a copy: it had id {copied}, and now has {found}."
        " What was copied before and what is copied now are not one topic.",
        hint=f"Stop the copy and run `{reset_command}`: what the sources hold is then copied from their first records.",
    )


class CopyWorker:
    """Copies slices; holds each partition from its first slice on."""

    def __init__(self, work: CopyWork) -> None:
        self._work = work
        self._copiers: dict[int, PartitionCopier] = {}

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        """The committed offsets."""
        consumer = committed_consumer(dict(self._work.properties), self._work.name)
        try:
            found = _committed(consumer, topic, range(_count_partitions(consumer, topic)))
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Reading the offsets of {self._work.name!r}") from exception
        finally:
            consumer.close()
        return {number: Pointer(offset) for number, offset in found.items()}

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:  # noqa: ARG002
        """Stores nothing: offsets are committed with their records, and Kafka deletes them with their topic."""
        self._work.require_source(topic_id)
        return self.pointers(topic)

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        """Copies what is new in a slice."""
        check_order(batch)
        self._work.require_source(batch.topic_id)
        try:
            return self._apply(batch, expected)
        except FencedError:
            # Another worker has held the partition since. The offset behind a new fence shows what it has copied.
            return self._apply(batch, expected)

    def close(self) -> None:
        """Gives all partitions up."""
        self._copiers.clear()

    def _apply(self, batch: Slice, expected: int) -> SliceOutcome:
        try:
            copier = self._copiers.get(batch.partition) or PartitionCopier(self._work, batch.partition)
            outcome = _copy_new(copier, batch, expected)
        except InorderError:
            self._copiers.pop(batch.partition, None)
            raise
        if copier.is_spent:
            self._copiers.pop(batch.partition, None)
        else:
            self._copiers[batch.partition] = copier
        return outcome


def _copy_new(copier: PartitionCopier, batch: Slice, expected: int) -> SliceOutcome:
    before, group = copier.pointer, copier.group
    match plan(before, expected, batch):
        case MovedBack():
            raise GuaranteeError(
                f"The offset of {batch.topic}[{batch.partition}] is at {before}, but {expected} was seen committed.",
                hint=f"Find out what has reset the offsets of group {group!r}; copying again would duplicate records.",
            )
        case Skip():
            copied = 0
        case Apply(from_offset):
            copied = copier.copy(batch, from_offset)
    return SliceOutcome(
        batch.topic, batch.partition, copier.pointer, read=len(batch), applied=copied, replayed=len(batch) - copied
    )


class PartitionCopier:
    """Holds one partition of the source by its transactional id; not used again after an error."""

    def __init__(self, work: CopyWork, number: int) -> None:
        """Takes the partition from its present holder, and reads how far it is copied."""
        self.group = work.name
        self._work = work
        self._compared_at = time.monotonic()
        work.require_destination()
        self._destination = work.destination
        self._partitioner = work.partitioner
        properties = dict(work.properties)
        limits = TopicLimits(properties)
        limits.learn([work.destination])
        packing = {"batch.size": limits.batch_size}
        self._producer = FencedProducer(properties, f"{work.name}.{number}", overrides=packing, timeouts=TASK_TIMEOUTS)
        consumer = committed_consumer(properties, work.name)
        try:
            self._partitions = _count_partitions(consumer, work.destination)
            found = _committed(consumer, work.source, [number])
            self._group_metadata = consumer.consumer_group_metadata()
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Taking over {work.name}.{number}") from exception
        finally:
            consumer.close()
        self.pointer = found.get(number, 0)
        """How far the partition is copied; no other worker can move it while this one holds the partition."""

    @property
    def is_spent(self) -> bool:
        """Whether the partition must be taken again before the next slice."""
        return self._producer.is_spent

    def copy(self, batch: Slice, from_offset: int) -> int:
        """Copies the records from an offset on, in one transaction; returns their number."""
        first = bisect_left(batch.offsets, from_offset)
        if time.monotonic() - self._compared_at >= COMPARE_SECONDS:
            self._work.require_destination()
            self._compared_at = time.monotonic()
        try:
            self._producer.begin()
            for index in range(first, len(batch)):
                self._send(batch, index)
                if index % SERVE_EVERY == 0:
                    self._producer.client.poll(0)
            moved = TopicPartition(batch.topic, batch.partition, batch.next_offset)
            self._producer.add_offsets([moved], self._group_metadata)
            self._producer.commit()
        except KafkaException as exception:
            raise self._give_up(batch, error_of(exception)) from exception
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
                self._producer.client.produce(
                    self._destination,
                    batch.values[index],
                    key,
                    CHOSEN_BY_CLIENT if place is None else place,
                    timestamp=0 if time_us is None else time_us // 1000,
                    headers=list(headers),
                )
                return
            except BufferError:
                self._producer.client.poll(ASK_AGAIN_SECONDS)

    def _give_up(self, batch: Slice, error: KafkaError) -> InorderError:
        """Aborts the transaction unless the client is lost, and says why it failed."""
        if not error.fatal():
            reason = self._producer.try_abort()
            error = reason if reason is not None and error.code() == KafkaError._FATAL else error
        if self._producer.refused:
            return self._refusal(batch)
        found = meaning(error, f"Copying {batch} to {self._destination!r}")
        if isinstance(found, FencedError):
            return FencedError(found.message, hint="Another copier works on the same topics; one is enough.")
        return found

    def _refusal(self, batch: Slice) -> RejectedError:
        """Names the record; the client's report has its key and value, but not its offset in the source."""
        error, record = self._producer.refused[0]
        content = record.key(), record.value()
        found = (
            at for at, *each in zip(batch.offsets, batch.keys, batch.values, strict=True) if tuple(each) == content
        )
        place = f"{batch.topic}[{batch.partition}] offset {next(found, 'unknown')}"
        return RejectedError(
            f"{self._destination!r} refuses the copy of {place} with key {describe_key(record)}: {describe(error)}",
            hint="Give the destination the max.message.bytes that the source has, and run it again.",
        )


def _count_partitions(consumer: Consumer, topic: str) -> int:
    found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    if found.error is not None:
        raise ConfigurationError(f"There is no topic {topic!r} to copy from or to: {found.error.str()}.")
    return len(found.partitions)


def _committed(consumer: Consumer, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The committed offsets of partitions that have one."""
    found = read_committed_offsets(consumer, [TopicPartition(topic, number) for number in partitions])
    return {place.partition: place.offset for place in found if place.offset >= 0}
