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

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException

from inorder.kafka.committed import committed_consumer
from inorder.kafka.copy_lane import Lane, committed, partitions_of
from inorder.kafka.errors import error_of, meaning
from inorder.model.errors import FencedError, GuaranteeError, InorderError
from inorder.model.partition import Partitioner
from inorder.pipeline.slice import Apply, MovedBack, Skip, plan
from inorder.ports.slice_work import Slice, SliceOutcome, check_order
from inorder.ports.table_store import Pointer


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
