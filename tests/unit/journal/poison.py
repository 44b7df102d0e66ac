"""Records that anyone may write to a journal topic and that no journal can take; each may cost its own journal only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from inorder.journal.codec import ACTION_HEADER
from inorder.model.message import Record

DEEP: Final = 2_000
TOO_DEEP_TO_WRITE: Final = 300
YEAR_10000_MS: Final = 253_402_300_800_000


def with_header(record: Record, change: Callable[[bytes], bytes]) -> Record:
    [header] = [value for name, value in record.headers if name == ACTION_HEADER]
    assert header is not None
    return replace(record, headers=((ACTION_HEADER, change(header)),))


def with_metadata(record: Record, data: bytes) -> Record:
    """The record with other metadata in its header."""
    return with_header(record, lambda header: header.replace(b'"metadata":{}', b'"metadata":{"data":' + data + b"}"))


def with_value(record: Record, old: bytes, new: bytes) -> Record:
    assert record.value is not None
    assert old in record.value, record.value
    return replace(record, value=record.value.replace(old, new))


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def with_expiry(record: Record, after: bytes) -> Record:
    return with_value(record, b'"metadata":{}', b'"metadata":{"expireAfter":' + after + b"}")


def with_payload(record: Record, payload: bytes, kind: bytes = b"json") -> Record:
    return with_value(record, b'"tags":[]', b'"tags":[],"payloadType":"' + kind + b'","payload":' + payload)


POISONS: Final[dict[str, Callable[[Record], Record]]] = {
    "header nested": lambda record: with_metadata(record, nested(DEEP)),
    "header nested 100,000 times": lambda record: with_metadata(record, nested(100_000)),
    "header nested deeper than a store writes": lambda record: with_metadata(record, nested(TOO_DEEP_TO_WRITE)),
    "header with NaN": lambda record: with_metadata(record, b"NaN"),
    "payload nested": lambda record: with_payload(record, nested(DEEP)),
    "payload nested deeper than a store writes": lambda record: with_payload(record, nested(TOO_DEEP_TO_WRITE)),
    "payload NaN": lambda record: with_payload(record, b"NaN"),
    "payload beyond any number": lambda record: with_payload(record, b"-1e999"),
    "value nested": lambda record: replace(record, value=nested(DEEP)),
    "key of 20,000 bytes": lambda record: replace(record, key=b"k" * 20_000),
    "key of 10,000 bytes that are no text": lambda record: replace(record, key=b"\xff" * 10_000),
    "time in the year 10000": lambda record: replace(record, timestamp_ms=YEAR_10000_MS),
    "time in microseconds": lambda record: replace(record, timestamp_ms=1_700_000_000_000_000),
    "time before the year 1": lambda record: replace(record, timestamp_ms=-62_135_596_800_001),
    "time beyond its expiry": lambda record: with_expiry(
        replace(record, timestamp_ms=YEAR_10000_MS - 3 * 86_400_000), b'"10 days"'
    ),
    "expiry of a million digits": lambda record: with_expiry(record, b'"' + b"9" * 1_000_000 + b' days"'),
    "expiry of four thousand digits": lambda record: with_expiry(record, b"9" * 4_000),
    "number of four thousand digits": lambda record: with_value(record, b'"seqNr":2', b'"seqNr":' + b"2" * 4_000),
    "number 2^63": lambda record: with_value(record, b'"seqNr":2', b'"seqNr":9223372036854775808'),
}
"""By name: the append of number 2, made into a record that cannot be read."""

UNSTORABLE: Final[dict[str, Callable[[Record], Record]]] = {
    "header with half a character": lambda record: with_metadata(record, b'"\\ud800"'),
    "origin of half a character": lambda record: with_header(
        record, lambda header: header.replace(b'"origin":"', b'"origin":"\\udfff')
    ),
    "payload with half a character": lambda record: with_payload(record, b'{"a":"\\ud800"}'),
    "text of half a character": lambda record: with_payload(record, b'"\\ud800"', b"text"),
    "tag of half a character": lambda record: with_value(record, b'"tags":[]', b'"tags":["\\ud800"]'),
}
"""Made into one that can be read, and that no store holds."""

LONG_ID: Final = "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10_000))
"""An id that a `Key` may have and that no index of PostgreSQL holds, however it is compressed."""
