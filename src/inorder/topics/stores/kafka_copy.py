"""Copying one Kafka topic into another, each record exactly once and in order per key: the job `migrate`.

A copy is a slice work like any other (`ports/slice_work.py`), so every engine can run it: tasks of Spark, or this
process alone for `inorder topics migrate`.

**What is authoritative.** The offsets committed by the group of the copy, one a partition of the source. They are
committed in the transaction that carries the copies. So a record is in the copy if and only if its offset is committed.

**The fence.** Each partition of the source has a transactional id of its own. Whoever begins on a partition takes it:
the broker ends what an earlier holder left open, and refuses whatever that one sends from then on. The committed offset
is asked for behind the fence, so it cannot move under its holder.

**Order.** A key lives in one partition of the source. One producer at a time sends all of it in the order of the
offsets, and the destination's partition follows from the key alone. Headers, timestamp and value stay as they are; one
header more tells where the record came from.

Invariants:

1. A slice is copied by one transaction, with the offset behind it, or not at all.
2. Nothing is sent on a partition before its committed offset was read behind the fence.

Failure table:

| what happens                               | what follows                                                        |
|--------------------------------------------|---------------------------------------------------------------------|
| killed in mid-slice                        | the next holder's fence aborts what is open; it begins at the offset |
| killed after the commit                    | the offset is behind the slice; nothing is copied again             |
| commit sent, answer lost                   | the holder lets go; behind its next fence the offset tells          |
| paused, and somebody else took over        | fenced: it takes the partition back, finds the offset moved, and     |
|                                            | drops what is copied                                                |
| a partition goes from one worker to another| the same; that is how Spark places the tasks of micro-batches       |
| two copiers at once                        | they fence each other in turn: slower, and nothing twice            |
| the destination refuses a record           | `RejectedError` with its coordinates; nothing behind it is copied   |
| the group's offsets went back or expired   | a running engine stops loudly. A new one cannot know: it copies      |
|                                            | again what it finds no offset for                                   |
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.engines.slice_work import Apply, MovedBack, Pointer, Skip, Slice, SliceOutcome, check_order, plan
from inorder.kafka.errors import CLIENT_LOG, OF_THE_RECORD, error_of, meaning, words
from inorder.kafka.fenced_producer import DEFAULTS, OURS, commit
from inorder.kafka.readers import committed_consumer
from inorder.kafka.sender import BY_THE_CLIENT
from inorder.kafka.topic_facts import TopicLimits
from inorder.model.errors import (
    ConfigurationError,
    FencedError,
    GuaranteeError,
    InorderError,
    RejectedError,
    TransientError,
)
from inorder.model.message import RecordHeaders
from inorder.model.partitioning import Partitioner, partition_of


@dataclass(frozen=True, slots=True)
class CopyWork:
    """One topic into another."""

    properties: tuple[tuple[str, object], ...]
    """Of the Kafka client, for both."""
    source: str
    destination: str
    partitioner: Partitioner = Partitioner.MURMUR2

    @property
    def name(self) -> str:
        """Of the group whose offsets tell how far it has come; transactional ids begin with it."""
        return f"inorder.migrate.{self.source}.{self.destination}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The source."""
        return (self.source,)

    @property
    def needs_headers(self) -> bool:
        """They are copied."""
        return True

    def open(self) -> CopyWorker:
        """A worker that holds no partition yet."""
        return CopyWorker(self)


class CopyWorker:
    """Copies slices; holds each partition from its first slice on."""

    def __init__(self, work: CopyWork) -> None:
        self._work = work
        self._lanes: dict[int, Lane] = {}

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        """The committed offsets."""
        consumer = committed_consumer(dict(self._work.properties), self._work.name)
        try:
            count = partitions_of(consumer, topic)
            return {number: Pointer(offset) for number, offset in committed(consumer, topic, range(count))}
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Asking how far {self._work.name!r} is") from exception
        finally:
            consumer.close()

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        """Copies what is new in a slice."""
        check_order(batch)
        try:
            return self._apply(batch, expected)
        except FencedError:
            # Another worker has held the partition since. What it has copied, the offset behind a new fence tells.
            return self._apply(batch, expected)

    def close(self) -> None:
        """Lets all partitions go."""
        self._lanes.clear()

    def _apply(self, batch: Slice, expected: int) -> SliceOutcome:
        try:
            lane = self._lanes.get(batch.partition) or self._taken(batch)
            outcome = _carried(lane, batch, expected)
        except InorderError:
            self._lanes.pop(batch.partition, None)
            raise
        self._lanes[batch.partition] = lane
        return outcome

    def _taken(self, batch: Slice) -> Lane:
        work, place = self._work, (batch.topic, batch.partition)
        return Lane(dict(work.properties), work.name, place, work.destination, work.partitioner)


def _carried(lane: Lane, batch: Slice, expected: int) -> SliceOutcome:
    before = lane.pointer
    match plan(before, expected, batch):
        case MovedBack():
            raise GuaranteeError(
                f"The offset of {batch.topic}[{batch.partition}] is at {before}, but {expected} was seen committed.",
                hint=f"Find out who has reset the offsets of group {lane.group!r}; copying again would double records.",
            )
        case Skip():
            copied = 0
        case Apply(from_offset):
            copied = lane.copy(batch, from_offset)
    return SliceOutcome(
        batch.topic, batch.partition, lane.pointer, read=len(batch), applied=copied, replayed=len(batch) - copied
    )


# One partition of a topic being copied, held by its transactional id (`copying.py` has the protocol).

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
