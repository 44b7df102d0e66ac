"""What journals need from Kafka: a producer of records, a reader of short windows, and a tail for the head cache."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from inorder.model.journal import PartitionOffset
from inorder.model.message import Record, RecordHeaders
from inorder.ports.deadline import Deadline


class LogRecord(NamedTuple):
    """A record as it lies in its partition."""

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


@dataclass(frozen=True, slots=True)
class Window:
    """The records of a partition from offset `first` to `last`, both included."""

    topic: str
    partition: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offsets {self.first} to {self.last}"


class TopicTail(Protocol):
    """Follows all partitions of one topic; used by one thread, which owns and closes it.

    Failures are raised as `TransientError`. The owner then closes it and opens another.
    """

    def partitions(self) -> Sequence[int]:
        """The topic's partitions as the broker knows them now."""

    def start(self, offsets: Mapping[int, int]) -> None:
        """Follows exactly these partitions, each from the offset given; called before `poll`, and again to change them.

        Raises `RecordsLostError` where a partition begins above its offset.
        """

    def poll(self, timeout_seconds: float) -> Mapping[int, Sequence[LogRecord]]:
        """What has arrived, in offset order, by partition, values included; empty after the timeout."""

    def close(self) -> None:
        """Leaves the broker; may be called twice."""


class JournalLog(Protocol):
    """The topics of journals. Many threads use one at a time."""

    def send(self, record: Record) -> Future[PartitionOffset]:
        """Sends a record without waiting; the future holds its place once all replicas have it.

        The partition is the one that Java's producer would choose (murmur2 of the key). Records of one thread arrive in
        the order they were sent. The future raises `RejectedError` where the broker refuses the content,
        `TopicUnavailableError` for an unknown topic, else `TransientError`. Nobody but the log completes it, and it
        always does so within a time limit of its own.
        """

    def partition_of(self, topic: str, key: bytes) -> int | None:
        """The partition that `send` would choose, if it is known without asking anybody; a guess, never a promise."""

    def records(self, window: Window, key: bytes, deadline: Deadline) -> Generator[LogRecord, None, None]:
        """The records with this key in a window, in offset order; others are passed over without being decoded.

        It ends once everything up to `window.last` has been seen; holes in the offsets are no records. It waits no
        longer than `deadline.remaining()`, asked before each wait, and renews the deadline whenever the broker has sent
        something, be it of other keys: the time counts without a sign of life. Where the partition begins above
        `window.first` it raises `RecordsLostError`, before it yields anything. Closing the iterator gives the consumer
        back. `read_committed`: records of aborted transactions are not seen.
        """

    def tail(self, topic: str) -> TopicTail:
        """A consumer of its own, for the head cache or a subscription."""

    def close(self) -> None:
        """Sends what is waiting, then drops the producer and all consumers; may be called twice."""
