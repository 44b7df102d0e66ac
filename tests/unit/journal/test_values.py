"""Keys, numbers, ranges and events refuse what they cannot be, and say what it was."""

from __future__ import annotations

import pytest

from inorder.model.errors import ValidationError
from inorder.model.journal import (
    MAX_SEQ_NR,
    Event,
    Json,
    Key,
    PartitionOffset,
    Payload,
    PayloadType,
    SeqRange,
    check_events,
    check_seq_nr,
    next_seq_nr,
    payload_type,
    previous_seq_nr,
)


@pytest.mark.parametrize("value", [0, -1, 2**63, True, "1", None, 1.0])
def test_what_is_no_sequence_number_is_refused(value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        check_seq_nr(value, "to")
    assert caught.value.field == "to"
    assert repr(value) in caught.value.message


def test_numbers_end_on_both_sides() -> None:
    assert [next_seq_nr(1), next_seq_nr(MAX_SEQ_NR)] == [2, None]
    assert [previous_seq_nr(2), previous_seq_nr(1)] == [1, None]


@pytest.mark.parametrize(
    ("claim", "is_true"),
    [
        (SeqRange(1, 2) > SeqRange(1, 2), False),
        (SeqRange(3, 4) > SeqRange(1, 2), True),
        (SeqRange(1, 2) < SeqRange(2, 3), False),
        (SeqRange(1, 2) < SeqRange(3, 4), True),
        (SeqRange(2, 3) in SeqRange(1, 4), True),
        (SeqRange(1, 5) in SeqRange(1, 4), False),
        (4 in SeqRange(1, 4), True),
        (5 in SeqRange(1, 4), False),
        (SeqRange(1, 2).intersects(SeqRange(2, 3)), True),
        (SeqRange(1, 2).intersects(SeqRange(3, 4)), False),
        (MAX_SEQ_NR in SeqRange.all(), True),
    ],
)
def test_ranges_are_compared_as_wholes(claim: bool, is_true: bool) -> None:
    assert claim is is_true


def test_a_range_has_its_numbers_and_a_short_name() -> None:
    assert list(SeqRange(1, 4)) == [1, 2, 3, 4]
    assert [str(SeqRange(1, 5)), str(SeqRange.single(5))] == ["1..5", "5"]


@pytest.mark.parametrize(("first", "last"), [(2, 1), (0, 1), (1, 2**63)])
def test_a_range_that_is_none_is_refused(first: int, last: int) -> None:
    with pytest.raises(ValidationError):
        SeqRange(first, last)


def test_keys_are_ordered_by_topic_and_then_by_id() -> None:
    keys = [Key("b", "t"), Key("a", "u"), Key("a", "t")]
    assert [str(key) for key in sorted(keys)] == ["t:a", "t:b", "u:a"]


@pytest.mark.parametrize(
    ("id", "topic", "field"),
    [
        ("", "t", "id"),
        (None, "t", "id"),
        ("a", "", "topic"),
        ("a", "t/u", "topic"),
        ("\ud800", "t", "key"),
        ("x" * 20_000, "t", "key"),
    ],
)
def test_a_key_that_kafka_would_refuse_is_refused(id: str, topic: str, field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Key(id, topic)
    assert caught.value.field == field


def test_positions_are_ordered_and_not_below_zero() -> None:
    assert sorted([PartitionOffset(1, 0), PartitionOffset(0, 9), PartitionOffset(0, 8)])[0] == PartitionOffset(0, 8)
    assert str(PartitionOffset(1, 42)) == "1:42"
    for partition, offset in [(-1, 0), (0, -1)]:
        with pytest.raises(ValidationError, match="below 0"):
            PartitionOffset(partition, offset)


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (None, None),
        (b"", PayloadType.BINARY),
        ("", PayloadType.TEXT),
        ({}, PayloadType.JSON),
        ([], PayloadType.JSON),
        (0, PayloadType.JSON),
        (False, PayloadType.JSON),
        (Json(None), PayloadType.JSON),
        (Json("text"), PayloadType.JSON),
    ],
)
def test_the_type_of_a_payload_says_what_it_is(payload: Payload, kind: PayloadType | None) -> None:
    assert payload_type(payload) is kind


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], "there is none"),
        ([Event(0)], "0 is not a sequence number"),
        ([Event(2), Event(1)], "seq_nr 1 follows 2"),
        ([Event(1), Event(1)], "seq_nr 1 follows 1"),
    ],
)
def test_an_append_needs_events_with_rising_numbers(events: list[Event], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        check_events(events)


def test_gaps_in_an_append_are_fine() -> None:
    assert [event.seq_nr for event in check_events(iter([Event(1), Event(5)]))] == [1, 5]
