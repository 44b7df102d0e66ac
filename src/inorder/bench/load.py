"""What the benchmarks carry: records that are made from a number alone, so that every process makes the same ones.

A value has 100 bytes and the shape that the job `upsert` reads. Its `data` begins with what a reader needs to know:
the record's place in its key's history, or the moment at which a live record was due.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import orjson

from inorder.testing.checker import Event

T = TypeVar("T")

VALUE_BYTES = 100
HEADER_VALUE = b"benchmark"
LIVE_FIRST = 1_000_000_000
"""Live records have keys of their own, from here up: a row or a record is then one certain event."""


PARTIAL_EVERY = 5
"""In a load with partial updates every fifth record lacks the field `enabled`."""

_SCHEMA = (
    b'{"schema":{"type":"struct","optional":false,"fields":[{"field":"id","type":"int64","optional":false},'
    b'{"field":"enabled","type":"boolean","optional":true},{"field":"data","type":"string","optional":true}]},'
    b'"payload":%s}'
)


@dataclass(frozen=True, slots=True)
class Load:
    """So many records, spread evenly over so many keys."""

    rows: int
    keys: int
    headers: int = 0
    has_partials: bool = False

    @property
    def header_pairs(self) -> list[tuple[str, bytes]]:
        """What every record of the load carries beside its key and value."""
        return [(f"header-{number}", HEADER_VALUE) for number in range(1, self.headers + 1)]

    def records(self, first: int = 0) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values, in the order in which they are written, from a number on."""
        for number in range(first, self.rows):
            key, place = self._event(number)
            yield str(key).encode(), value_of(key, place, partial=self._is_partial(place, key))

    def events(self) -> Iterator[Event]:
        """What a reader must find: each key's places, 1, 2, 3 and so on."""
        return (self._event(number) for number in range(self.rows))

    def final_rows(self) -> dict[int, dict[str, object]]:
        """The rows that the whole load leads to."""
        places = dict(self._event(number) for number in range(self.rows))
        return {key: self._final_row(key, place) for key, place in places.items()}

    def _final_row(self, key: int, place: int) -> dict[str, object]:
        row = _row(value_of(key, place, partial=self._is_partial(place, key)))
        whole = next((earlier for earlier in range(place, 0, -1) if not self._is_partial(earlier, key)), None)
        return row if whole is None else row | {"enabled": _row(value_of(key, whole))["enabled"]}

    def _is_partial(self, place: int, key: int) -> bool:
        return self.has_partials and (place + key) % PARTIAL_EVERY == 0

    def _event(self, number: int) -> tuple[int, int]:
        return number % self.keys + 1, number // self.keys + 1


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of so many, the last one of what is left."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def value_of(key: int, mark: int, *, partial: bool = False) -> bytes:
    """A value of 100 bytes; `mark` is a place or a moment. A partial one says nothing of `enabled`."""
    enabled = b"" if partial else b'"enabled":%s,' % (b"false" if mark % 3 == 0 else b"true")
    body = b'{"id":%d,%s"data":"%d ' % (key, enabled, mark)
    return body.ljust(VALUE_BYTES - 2, b"x") + b'"}'


def with_schema(value: bytes) -> bytes:
    """A whole value as Kafka Connect's JSON converter wants it, its schema beside it."""
    return _SCHEMA % value


def event_of(value: bytes) -> tuple[int, int]:
    """The key and the mark of a value."""
    fields = orjson.loads(value)
    return fields["id"], mark_of(fields["data"])


def mark_of(data: str) -> int:
    """The mark at the head of a `data` field."""
    return int(data.partition(" ")[0])


def payload_of(number: int) -> bytes:
    """The payload of a journal's event; it begins with the event's number in its journal."""
    return b"%d " % number + b"x" * (VALUE_BYTES - len(str(number)) - 1)


def number_of(payload: object) -> int:
    """The number that a payload names; 0, which no event has, for what is no payload of ours."""
    return int(payload.partition(b" ")[0]) if isinstance(payload, bytes) else 0


def _row(value: bytes) -> dict[str, object]:
    fields = orjson.loads(value)
    return {"enabled": fields.get("enabled"), "data": fields["data"]}


# When live records are due: a fixed rate, whatever becomes of the records before.
#
# Latency counts from the moment at which a record was due, not from the one at which it went out. A stall then costs
# every record that it held back, as it would cost users who do not wait for one another.


@dataclass(frozen=True, slots=True)
class Schedule:
    """So many records a second, for some seconds after a warm-up."""

    rate: int
    seconds: float
    warm_seconds: float = 2.0

    @property
    def warm(self) -> int:
        """How many records are warm-up and not counted."""
        return round(self.rate * self.warm_seconds)

    @property
    def counted(self) -> int:
        """How many records are counted."""
        return self.total - self.warm

    @property
    def total(self) -> int:
        """How many records there are, warm-up included."""
        return self.warm + round(self.rate * self.seconds)

    @property
    def lasts(self) -> float:
        """Seconds from the first record to the last."""
        return self.warm_seconds + self.seconds

    def due_ns(self, number: int) -> int:
        """When a record is due, in nanoseconds from the start."""
        return number * 1_000_000_000 // self.rate

    def share(self, writer: int, writers: int) -> range:
        """The records of one of several writers, who take turns."""
        return range(writer, self.total, writers)


def when_due(schedule: Schedule, start: int, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Each number when its moment has come, or at once when it has passed, with that moment."""
    pause = threading.Event()
    for number in numbers:
        due = start + schedule.due_ns(number)
        if (early := due - time.monotonic_ns()) > 0:
            pause.wait(early / 1e9)
        yield number, due
