"""What readers and writers of journals need from Kafka (`JournalLog`) and from the store (`EventualJournal`).

The topic is authoritative, the store is a copy that may be behind. A replicator applies the actions of a partition in
offset order and then moves the partition's offset. In a database with transactions both happen at once; elsewhere a
journal's head and events may be ahead of the partition's offset, never behind it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from inorder.journal.segments import SegmentSpan
from inorder.model.deadline import Deadline
from inorder.model.journal import DeleteTo, EventRecord, Key, PartitionOffset, SeqNr
from inorder.model.message import Record, RecordHeaders

FORMER: Final = 1 << 20
"""Partitions from this number on do not exist in Kafka: they are those of former incarnations of a topic."""


@dataclass(frozen=True, slots=True)
class TopicIncarnation:
    """Which topic of a name it is, and how its journals are spread; see `topic_identity.py`."""

    id: str | None
    """Kafka's id; None where the brokers have none."""
    partitions: int
    number: int = 0
    """How many were accepted before it under the same name."""


class LogRecord(NamedTuple):
    """A record of a partition."""

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
        """Follows exactly these partitions, each from the given offset; called before `poll`, and again to change them.

        Raises `RecordsLostError` if a partition begins above its offset.
        """

    def poll(self, timeout_seconds: float) -> Mapping[int, Sequence[LogRecord]]:
        """What has arrived, in offset order, by partition, values included; empty after the timeout."""

    def close(self) -> None:
        """Disconnects; may be called twice."""


class JournalLog(Protocol):
    """The topics of journals. Safe for use by many threads."""

    def send(self, record: Record) -> Future[PartitionOffset]:
        """Sends a record without waiting; the future holds its place once all replicas have it.

        The partition is the one that Java's producer would choose (murmur2 of the key). Records of one thread arrive in
        the order they were sent. The future raises `RejectedError` if the broker refuses the content,
        `TopicUnavailableError` for an unknown topic, else `TransientError`. Only the log completes it, and always
        within a time limit of its own.
        """

    def partition_of(self, topic: str, key: bytes) -> int | None:
        """The partition that `send` would choose, if known without a request; a guess, never a promise."""

    def records(self, window: Window, key: bytes, deadline: Deadline) -> Generator[LogRecord, None, None]:
        """The records with this key in a window, in offset order; others are skipped without being decoded.

        It ends once everything up to `window.last` has been seen; offsets without a record are skipped. It waits at
        most `deadline.remaining()`, checked before each wait, and renews the deadline whenever the broker sends
        anything, even of other keys: the limit is on time without a sign of life. If the partition begins above
        `window.first` it raises `RecordsLostError` before it yields anything. Closing the iterator releases the
        consumer. `read_committed`: records of aborted transactions are not seen.
        """

    def tail(self, topic: str) -> TopicTail:
        """A separate consumer, for the head cache or a subscription."""

    def close(self) -> None:
        """Sends what is waiting, then closes the producer and all consumers; may be called twice."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """How long a journal lives after its last append, and the day after which it may be purged."""

    after: timedelta
    on: date


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The row of one journal in `metajournal`: what of the log is in the store, and what of that is visible."""

    partition_offset: PartitionOffset
    """The last action of this journal that is in the store."""
    segment_size: int
    seq_nr: SeqNr
    """The largest number that was ever appended in this life of the journal; it never falls."""
    delete_to: DeleteTo | None = None
    expiry: Expiry | None = None
    record_id: UUID | None = None
    """Identifies this life of the journal and its events; None in rows of old versions, or without an event yet."""
    gaps: tuple[SegmentSpan, ...] = field(default=(), compare=False)
    """Spans of segments without an event, as far as they are known: only a store that needs them keeps them."""

    @property
    def is_begun(self) -> bool:
        """Whether an event was ever appended; a delete of a journal that does not exist makes a head without any."""
        return self.record_id is not None or self.seq_nr != self.delete_to


@dataclass(frozen=True, slots=True)
class ListedJournal:
    """A journal as the store lists it, without its events."""

    id: str
    seq_nr: SeqNr
    delete_to: DeleteTo | None
    created: datetime
    """When its first event was written."""
    updated: datetime
    origin: str | None
    """Who wrote its first event."""
    expires: date | None
    """It may be purged when this day is over."""


@dataclass(frozen=True, slots=True)
class JournalFilter:
    """Which journals to list: those that match everything that is set; days are of UTC."""

    origin: str | None = None
    created: date | None = None
    expires: date | None = None

    def fits(self, journal: ListedJournal) -> bool:
        pairs = (self.origin, journal.origin), (self.created, journal.created.date()), (self.expires, journal.expires)
        return all(wanted in (None, found) for wanted, found in pairs)


class EventualJournal(Protocol):
    """The read side of a store. Safe for use by many threads; every call may block on the database.

    Faults of the environment are raised as `TransientError` within a time limit of the store's own.
    """

    def pointer(self, key: Key) -> JournalHead | None:
        """The journal's head; None if the store has no such journal.

        Raises `DamagedRecordError` if the journal is parked: one of its records could not be read, and is in quarantine
        with everything that came after it.
        """

    def offset(self, topic: str, partition: int) -> int | None:
        """The partition's replicated offset: every record up to it is applied. None before the first.

        What any later call on this store returns includes these records.
        """

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        """The journal's events from a number to `head.seq_nr`, those up to `head.delete_to` left out, in order.

        It continues over gaps up to `head.seq_nr`. Events with another `record_id` than the head's are of an earlier
        life and left out. Two events with one number raise `GuaranteeError`. It reads page by page and holds at most
        one page; closing the iterator releases it. It may see changes made after `head` was read: the caller compares
        heads at the end.
        """

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all journals of a topic that have a head or are parked, each once, in any order; page by page.

        A parked journal is included even without a head, so that a scan of all journals finds it and gets an error from
        `pointer`, instead of taking the rest for everything.
        """

    def close(self) -> None:
        """Releases connections; may be called twice."""
