"""What the benchmarks carry: records that are made from a number alone, so that every process makes the same ones.

A value has 100 bytes and the shape that the job `upsert` reads. Its `data` begins with what a reader needs to know:
the record's place in its key's history, or the moment at which a live record was due.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Load:
    """So many records, spread evenly over so many keys."""

    rows: int
    keys: int
    headers: int = 0

    @property
    def header_pairs(self) -> list[tuple[str, bytes]]:
        """What every record of the load carries beside its key and value."""
        return [(f"header-{number}", HEADER_VALUE) for number in range(1, self.headers + 1)]

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values, in the order in which they are written."""
        for number in range(self.rows):
            key, place = self._event(number)
            yield str(key).encode(), value_of(key, place)

    def events(self) -> Iterator[Event]:
        """What a reader must find: each key's places, 1, 2, 3 and so on."""
        return (self._event(number) for number in range(self.rows))

    def final_rows(self) -> dict[int, dict[str, object]]:
        """The rows that the whole load leads to."""
        places = dict(self._event(number) for number in range(self.rows))
        return {key: _row(value_of(key, place)) for key, place in places.items()}

    def _event(self, number: int) -> tuple[int, int]:
        return number % self.keys + 1, number // self.keys + 1


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of so many, the last one of what is left."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def value_of(key: int, mark: int) -> bytes:
    """A value of 100 bytes; `mark` is a place or a moment."""
    body = b'{"id":%d,"enabled":%s,"data":"%d ' % (key, b"false" if mark % 3 == 0 else b"true", mark)
    return body.ljust(VALUE_BYTES - 2, b"x") + b'"}'


def event_of(value: bytes) -> tuple[int, int]:
    """The key and the mark of a value."""
    fields = orjson.loads(value)
    return fields["id"], mark_of(fields["data"])


def mark_of(data: str) -> int:
    """The mark at the head of a `data` field."""
    return int(data.partition(" ")[0])


def _row(value: bytes) -> dict[str, object]:
    fields = orjson.loads(value)
    return {"enabled": fields["enabled"], "data": fields["data"]}
