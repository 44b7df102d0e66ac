"""An event as applications append it, and the same event as it is read back with all that is known about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from inorder.model.errors import ValidationError
from inorder.model.journal.position import PartitionOffset
from inorder.model.journal.seq_nr import SeqNr, SeqRange, checked_seq_nr


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
    """What travels with the events of one append: when their journal may go, and data of the application's own."""

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
        """The event's number."""
        return self.event.seq_nr

    @property
    def offset(self) -> int:
        """The offset of its record."""
        return self.partition_offset.offset


def checked_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events of one append, if there are any and their numbers rise; else `ValidationError`.

    >>> checked_events([Event(2), Event(1)])
    Traceback (most recent call last):
    inorder.model.errors.ValidationError: events: seq_nr 1 follows 2, but the numbers of an append rise.
    """
    checked = tuple(events)
    if not checked:
        raise ValidationError("events", "there is none.", hint="Append at least one event.")
    last = 0
    for event in checked:
        if checked_seq_nr(event.seq_nr) <= last:
            raise ValidationError("events", f"seq_nr {event.seq_nr} follows {last}, but the numbers of an append rise.")
        last = event.seq_nr
    return checked


def range_of(events: tuple[Event, ...]) -> SeqRange:
    """The numbers from the first to the last of the events of one append."""
    return SeqRange(events[0].seq_nr, events[-1].seq_nr)
