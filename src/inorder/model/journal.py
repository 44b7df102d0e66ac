"""The values of journals: keys, sequence numbers, events as they are appended and read, and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import total_ordering
from typing import Final, TypeAlias

from inorder.model.errors import ValidationError
from inorder.model.message import Limits, Message, encode


@total_ordering
@dataclass(frozen=True, slots=True)
class Key:
    """Names one journal; `id` is the key of its records, so it decides their partition.

    >>> str(Key("account-1", "journal"))
    'journal:account-1'
    """

    id: str
    topic: str

    def __post_init__(self) -> None:
        given: object = self.id
        if not isinstance(given, str) or not given:
            raise ValidationError("id", f"{given!r} is not an id.", hint="The id of a journal is text, not empty.")
        # What Kafka would refuse as a record's topic or key is refused with the same error.
        encode(Message(self.topic, key=self.id), Limits())

    def __lt__(self, other: Key) -> bool:
        return (self.topic, self.id) < (other.topic, other.id)

    def __str__(self) -> str:
        return f"{self.topic}:{self.id}"


SeqNr: TypeAlias = int
"""The number of an event in its journal, from `MIN_SEQ_NR` to `MAX_SEQ_NR`."""

DeleteTo: TypeAlias = int
"""The last number that is deleted; all up to it are."""

MIN_SEQ_NR: Final = 1
MAX_SEQ_NR: Final = 2**63 - 1


def check_seq_nr(value: object, field: str = "seq_nr") -> SeqNr:
    """Returns the value; raises `ValidationError` naming the field if it is not a sequence number.

    >>> check_seq_nr(0)
    Traceback (most recent call last):
    inorder.model.errors.ValidationError: seq_nr: 0 is not a sequence number, which are 1 to 9223372036854775807.
    """
    if isinstance(value, int) and not isinstance(value, bool) and MIN_SEQ_NR <= value <= MAX_SEQ_NR:
        return value
    raise ValidationError(field, f"{value!r} is not a sequence number, which are {MIN_SEQ_NR} to {MAX_SEQ_NR}.")


def next_seq_nr(value: SeqNr) -> SeqNr | None:
    """The number after this one; None after the last.

    >>> next_seq_nr(1), next_seq_nr(MAX_SEQ_NR)
    (2, None)
    """
    return value + 1 if value < MAX_SEQ_NR else None


def previous_seq_nr(value: SeqNr) -> SeqNr | None:
    """The number before this one; None before the first.

    >>> previous_seq_nr(2), previous_seq_nr(MIN_SEQ_NR)
    (1, None)
    """
    return value - 1 if value > MIN_SEQ_NR else None


@dataclass(frozen=True, slots=True)
class SeqRange:
    """The numbers from `first` to `last`, both included.

    >>> str(SeqRange(1, 5)), str(SeqRange.single(5)), 3 in SeqRange(1, 5)
    ('1..5', '5', True)
    """

    first: SeqNr
    last: SeqNr

    def __post_init__(self) -> None:
        check_seq_nr(self.first, "from")
        check_seq_nr(self.last, "to")
        if self.first > self.last:
            raise ValidationError("range", f"{self.first} to {self.last} ends before it begins.")

    @classmethod
    def single(cls, seq_nr: SeqNr) -> SeqRange:
        return cls(seq_nr, seq_nr)

    @classmethod
    def all(cls) -> SeqRange:
        return cls(MIN_SEQ_NR, MAX_SEQ_NR)

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}..{self.last}"

    def __contains__(self, part: SeqNr | SeqRange) -> bool:
        if isinstance(part, SeqRange):
            return self.first <= part.first and part.last <= self.last
        return self.first <= part <= self.last

    def __iter__(self) -> Iterator[SeqNr]:
        return iter(range(self.first, self.last + 1))

    def __lt__(self, other: SeqRange) -> bool:
        """Whether it ends before the other begins."""
        return self.last < other.first

    def __gt__(self, other: SeqRange) -> bool:
        """Whether it begins after the other ends."""
        return self.first > other.last

    def intersects(self, other: SeqRange) -> bool:
        """Whether a number is in both."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True, order=True)
class PartitionOffset:
    """A partition and an offset in it.

    >>> str(PartitionOffset(0, 42)), PartitionOffset(0, 42) < PartitionOffset(1, 0)
    ('0:42', True)
    """

    partition: int
    offset: int

    def __post_init__(self) -> None:
        if self.partition < 0 or self.offset < 0:
            raise ValidationError("partition_offset", f"{self} is below 0.")

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"


class PayloadType(StrEnum):
    """What the bytes of a payload are. A Kafka record is binary or json; an event in a json record is text or json."""

    BINARY = "binary"
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON payload that could be taken for another kind: JSON text is not text, JSON null is not "no payload".

    >>> payload_type(Json("hello")), payload_type("hello"), payload_type({"hello": 1})
    (<PayloadType.JSON: 'json'>, <PayloadType.TEXT: 'text'>, <PayloadType.JSON: 'json'>)
    """

    value: object


Payload: TypeAlias = bytes | str | Json | Mapping[str, object] | list[object] | int | float | bool | None
"""Bytes are binary, text is text, None is no payload, everything else is JSON."""


def payload_type(payload: Payload) -> PayloadType | None:
    """The kind of a payload; None for none."""
    match payload:
        case None:
            return None
        case bytes():
            return PayloadType.BINARY
        case str():
            return PayloadType.TEXT
        case _:
            return PayloadType.JSON


def json_value(payload: Payload) -> object:
    """The JSON value of a JSON payload."""
    return payload.value if isinstance(payload, Json) else payload


def json_payload(value: object) -> Payload:
    """The payload of a JSON value, wrapped only where it would be taken for another kind.

    >>> json_payload([1]), json_payload("1"), json_payload(None)
    ([1], Json(value='1'), Json(value=None))
    """
    match value:
        case None | str() | bytes():
            return Json(value)
        case dict() | list() | int() | float():
            return value
    return Json(value)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a journal; it is checked when it is appended.

    `payload` is sent as binary when it is bytes, as text when it is text, as JSON otherwise; see `Json`.

    >>> Event(seq_nr=1, payload=b"opened", tags=frozenset({"account"})).seq_nr
    1
    """

    seq_nr: SeqNr
    payload: Payload = None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PayloadMetadata:
    """What is sent with the events of one append: when their journal expires, and data of the application's own."""

    expire_after: timedelta | None = None
    data: object = None


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """What the application says about an append: `header` beside the action, `payload` with the events."""

    header: object = None
    payload: PayloadMetadata = PayloadMetadata()


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event as it was read, with its record's place, time and origin; events of one append share all but `event`."""

    event: Event
    timestamp: datetime
    partition_offset: PartitionOffset
    origin: str | None = None
    version: str | None = None
    metadata: RecordMetadata = RecordMetadata()
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def seq_nr(self) -> SeqNr:
        return self.event.seq_nr

    @property
    def offset(self) -> int:
        return self.partition_offset.offset


def check_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """Returns the events of one append; raises `ValidationError` if there are none or their numbers do not ascend.

    >>> check_events([Event(2), Event(1)])
    Traceback (most recent call last):
    inorder.model.errors.ValidationError: events: seq_nr 1 follows 2, but the numbers of an append rise.
    """
    checked = tuple(events)
    if not checked:
        raise ValidationError("events", "there is none.", hint="Append at least one event.")
    last = 0
    for event in checked:
        if check_seq_nr(event.seq_nr) <= last:
            raise ValidationError("events", f"seq_nr {event.seq_nr} follows {last}, but the numbers of an append rise.")
        last = event.seq_nr
    return checked


def check_contiguous(events: Sequence[Event], after: SeqNr | None = None) -> None:
    """Raises `ValidationError` if the numbers of an append have a gap, or do not follow `after`, where that is known.

    >>> check_contiguous([Event(2), Event(4)], 1)
    Traceback (most recent call last):
    inorder.model.errors.ValidationError: events: seq_nr 4 follows 2. Number events without gaps, or allow_gaps.
    """
    for event in events:
        if after is not None and event.seq_nr > after + 1:
            raise ValidationError(
                "events",
                f"seq_nr {event.seq_nr} follows {after}.",
                hint="Number events without gaps, or allow_gaps.",
            )
        after = event.seq_nr


def range_of(events: tuple[Event, ...]) -> SeqRange:
    """The numbers from the first to the last of the events of one append."""
    return SeqRange(events[0].seq_nr, events[-1].seq_nr)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after the events up to `seq_nr`; the payload has the same kinds as an event's, see `Event`."""

    seq_nr: SeqNr
    payload: Payload
    timestamp: datetime
    metadata: object = None
    """JSON of the application's own, if any."""
    origin: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class SnapshotCriteria:
    """Inclusive bounds of number and time; without any, every snapshot fits.

    >>> SnapshotCriteria(max_seq_nr=5).fits(6, datetime(2026, 1, 1).astimezone())
    False
    """

    min_seq_nr: SeqNr = MIN_SEQ_NR
    max_seq_nr: SeqNr = MAX_SEQ_NR
    min_time: datetime | None = None
    max_time: datetime | None = None

    def __post_init__(self) -> None:
        check_seq_nr(self.min_seq_nr, "min_seq_nr")
        check_seq_nr(self.max_seq_nr, "max_seq_nr")
        for name, time in (("min_time", self.min_time), ("max_time", self.max_time)):
            if time is not None and time.tzinfo is None:
                raise ValidationError(name, f"{time} has no time zone.", hint="Give an aware datetime.")

    @classmethod
    def of(cls, seq_nr: SeqNr) -> SnapshotCriteria:
        """Only the snapshot at one number."""
        return cls(seq_nr, seq_nr)

    def fits(self, seq_nr: SeqNr, time: datetime) -> bool:
        is_early = self.min_time is not None and time < self.min_time
        is_late = self.max_time is not None and time > self.max_time
        return self.min_seq_nr <= seq_nr <= self.max_seq_nr and not is_early and not is_late


ANY_SNAPSHOT = SnapshotCriteria()
