"""What a record or a row shows: its event, or that it shows none."""

from __future__ import annotations

import pytest

from inorder.verify.history import (
    UNREADABLE,
    CommitAnswer,
    History,
    MarkedEvent,
    RecordRead,
    RowRead,
    TransactionBegun,
    TransactionEnded,
    ViolationKind,
    describe,
    judge,
)
from inorder.verify.run import Marks, place_of

MARKS = Marks("topic", {"a": 1})


@pytest.mark.parametrize(("shown", "place"), [(7, 7), ("7", 7), ("event 7", 7)])
def test_a_field_shows_its_place(shown: object, place: int) -> None:
    assert place_of(shown) == place


@pytest.mark.parametrize("shown", [None, "x", "", "event x", 1.5, True, {"place": 1}])
def test_a_field_that_shows_no_place_is_no_event(shown: object) -> None:
    assert place_of(shown) == UNREADABLE


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"\xff", b"[]", b"1", b"null", b"{}", b'{"place": null}', b'{"place": "x"}']
)
def test_a_damaged_record_of_our_key_is_an_event_that_does_not_exist(value: bytes | None) -> None:
    assert MARKS.event_of(b"a", value) == MarkedEvent("a", UNREADABLE)


@pytest.mark.parametrize("key", [None, b"b", b"\xff"])
def test_a_record_of_others_is_none(key: bytes | None) -> None:
    assert MARKS.event_of(key, b"{") is None


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        (RecordRead(MarkedEvent("a", UNREADABLE), 0, 3), "a record of key a in partition 0 at offset 3 shows no event"),
        (RowRead("a", UNREADABLE), "the row of key a shows no event"),
    ],
)
def test_what_shows_no_event_is_a_phantom_and_the_witness_says_so(seen: RecordRead | RowRead, line: str) -> None:
    event = MarkedEvent("a", 1)
    published = (TransactionBegun(1, (event,)), TransactionEnded(1, CommitAnswer.COMMITTED), RecordRead(event, 0, 2))
    judgement = judge(History((*published, seen)))
    assert judgement.count(ViolationKind.PHANTOM) == 1
    assert [describe(operation) for operation in judgement.witness] == [line]
