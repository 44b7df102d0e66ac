"""Events are byte for byte those of the original, in JSON and in binary, and old and future versions are read."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from inorder.journal.codec import from_value, to_value
from inorder.model.errors import ValidationError
from inorder.model.journal import MAX_SEQ_NR, Event, Json, PayloadMetadata, PayloadType

JSON, BINARY = PayloadType.JSON, PayloadType.BINARY
NONE = PayloadMetadata()
TAGS = frozenset({"0", "1"})

TAGGED = "0000000a 00000001 30 00000001 31"
GOLDEN_BINARY = [
    ([Event(1, None, TAGS)], f"0000001b 0000000000000001 {TAGGED} 00 00000000"),
    ([Event(1, b"binary", TAGS)], f"00000021 0000000000000001 {TAGGED} 01 00000006 62696e617279"),
    ([Event(1, "text", TAGS)], f"0000001f 0000000000000001 {TAGGED} 03 00000004 74657874"),
    ([Event(1, Json("json"), TAGS)], f"00000021 0000000000000001 {TAGGED} 02 00000006 226a736f6e22"),
    ([Event(MAX_SEQ_NR, b"")], "00000011 7fffffffffffffff 00000000 01 00000000"),
]

GOLDEN_JSON = [
    ([Event(1, None, TAGS)], NONE, '{"events":[{"seqNr":1,"tags":["0","1"]}],"metadata":{}}'),
    (
        [Event(1, "text"), Event(2, {"key": "value"}), Event(3, Json("json")), Event(5, Json(None)), Event(6, 1.5)],
        PayloadMetadata(timedelta(days=1), {"a": 1}),
        (
            '{"events":[{"seqNr":1,"tags":[],"payloadType":"text","payload":"text"},'
            '{"seqNr":2,"tags":[],"payloadType":"json","payload":{"key":"value"}},'
            '{"seqNr":3,"tags":[],"payloadType":"json","payload":"json"},'
            '{"seqNr":5,"tags":[],"payloadType":"json","payload":null},'
            '{"seqNr":6,"tags":[],"payloadType":"json","payload":1.5}],'
            '"metadata":{"expireAfter":"1 day","data":{"a":1}}}'
        ),
    ),
]


def binary(version: int, count: int, events: str, tail: bytes) -> bytes:
    return bytes([version]) + count.to_bytes(4, "big") + bytes.fromhex(events) + tail


@pytest.mark.parametrize(("events", "rows"), GOLDEN_BINARY)
def test_binary_events_of_every_version_are_read(events: list[Event], rows: str) -> None:
    assert from_value(BINARY, binary(1, 1, rows, b"{}")) == (events, NONE)
    assert from_value(BINARY, binary(0, 1, rows, b"")) == (events, NONE)
    # A later version may add whatever it likes behind the events.
    assert from_value(BINARY, binary(100, 1, rows, b"\x00something new")) == (events, NONE)


def test_one_binary_event_makes_the_record_binary() -> None:
    events = [event for [event], _ in GOLDEN_BINARY[:4]]
    rows = " ".join(row for _, row in GOLDEN_BINARY[:4])
    metadata = PayloadMetadata(timedelta(milliseconds=1), {"a": 1})
    tail = b'{"expireAfter":"1 millisecond","data":{"a":1}}'
    assert to_value(events, metadata) == (BINARY, binary(1, 4, rows, tail))
    assert from_value(BINARY, binary(1, 4, rows, tail)) == (events, metadata)


@pytest.mark.parametrize(("events", "metadata", "text"), GOLDEN_JSON)
def test_json_events_are_written_and_read_like_the_original(
    events: list[Event], metadata: PayloadMetadata, text: str
) -> None:
    assert to_value(events, metadata) == (JSON, text.encode())
    assert from_value(JSON, text.encode()) == (events, metadata)


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ('{"events":[{"seqNr":1,"tags":[]}]}', Event(1)),
        ('{"events":[{"seqNr":1}],"metadata":null}', Event(1)),
        ('{"events":[{"seqNr":1,"payload":{"a":1}}]}', Event(1, {"a": 1})),
        ('{"events":[{"seqNr":1,"payload":"a"}]}', Event(1, Json("a"))),
        ('{"events":[{"seqNr":1,"payloadType":"json"}]}', Event(1, Json(None))),
        ('{"events":[{"seqNr":1,"payloadType":"text","payload":"\\ud800"}]}', Event(1, "\ud800")),
    ],
)
def test_json_of_old_versions_and_lenient_writers_is_read(text: str, event: Event) -> None:
    assert from_value(JSON, text.encode()) == ([event], NONE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"events":[]}', "not a list with an event"),
        ('{"events":{}}', "not a list with an event"),
        ('{"events":[1]}', "event is not a JSON object"),
        ('{"events":[{"seqNr":0}]}', "seqNr: 0 is not"),
        ('{"events":[{"seqNr":1,"tags":[1]}]}', "tags are not"),
        ('{"events":[{"seqNr":1,"payloadType":"text","payload":1}]}', "'text' does not fit"),
        ('{"events":[{"seqNr":1,"payloadType":"binary","payload":"a"}]}', "'binary' does not fit"),
        ('{"events":[{"seqNr":1}],"metadata":{"expireAfter":"soon"}}', "'soon' is not a duration"),
    ],
)
def test_damaged_json_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_value(JSON, text.encode())


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "no bytes"),
        (b"\x01\x00", "in a number"),
        (binary(1, 0, "", b"{}"), "without events"),
        (binary(1, 1, "000000ff", b""), "255 bytes at 9 are not in a payload of 9"),
        (binary(1, 1, "ffffffff", b""), "-1 bytes"),
        (binary(1, 1, "00000011 0000000000000000 00000000 01 00000000", b"{}"), "0 is not a sequence number"),
        (binary(1, 1, "00000011 0000000000000001 00000000 09 00000000", b"{}"), "9 is not a kind"),
        (binary(1, 1, "00000012 0000000000000001 00000000 03 00000001 ff", b"{}"), "utf-8"),
        (binary(1, 1, "00000012 0000000000000001 00000000 02 00000001 7b", b"{}"), "not JSON"),
        (binary(1, 1, "00000011 0000000000000001 00000000 01 00000000", b"{"), "not JSON"),
    ],
)
def test_damaged_bytes_say_what_is_wrong(value: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_value(BINARY, value)


@pytest.mark.parametrize("payload", [{"a": float("nan")}, {"a": object()}, "\ud800"])
@pytest.mark.parametrize("beside", [[], [Event(2, b"makes it binary")]])
def test_what_json_cannot_carry_is_refused_before_it_is_sent(payload: object, beside: list[Event]) -> None:
    with pytest.raises(ValidationError):
        to_value([Event(1, payload), *beside], NONE)  # type: ignore[arg-type] # what a caller without types may give


def test_numbers_keep_their_64_bits() -> None:
    [event], _ = from_value(*to_value([Event(MAX_SEQ_NR, {"n": MAX_SEQ_NR})], NONE))
    assert json.dumps(event.payload) == '{"n": 9223372036854775807}'
