"""Durations are spelt as Scala spells them, and every spelling of Scala is read."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal import action


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(milliseconds=1), "1 millisecond"),
        (timedelta(minutes=100), "100 minutes"),
        (timedelta(days=30), "30 days"),
        (timedelta(hours=24), "1 day"),
        (timedelta(hours=25), "25 hours"),
        (timedelta(seconds=61), "61 seconds"),
        (timedelta(microseconds=1500), "1500 microseconds"),
        (timedelta(0), "0 days"),
    ],
)
def test_the_largest_whole_unit_is_written(duration: timedelta, text: str) -> None:
    assert action.format_duration(duration) == text
    assert action.parse_duration(text) == duration


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        ("1 min", timedelta(minutes=1)),
        ("30 h", timedelta(hours=30)),
        ("2d", timedelta(days=2)),
        (" 5 secs ", timedelta(seconds=5)),
        ("1.5 hours", timedelta(minutes=90)),
        ("7 µs", timedelta(microseconds=7)),
        ("1999 nanoseconds", timedelta(microseconds=1)),
        (250, timedelta(milliseconds=250)),
    ],
)
def test_other_spellings_are_read(value: object, duration: timedelta) -> None:
    assert action.parse_duration(value) == duration


@pytest.mark.parametrize(
    "value", ["", "soon", "1 fortnight", "Inf", "1", "1 day 2 hours", None, True, 1.5, "300 " * 9, "200000 days"]
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|is longer than"):
        action.parse_duration(value)


@given(st.timedeltas(timedelta(0), action.LONGEST))
def test_every_duration_comes_back(duration: timedelta) -> None:
    assert action.parse_duration(action.format_duration(duration)) == duration
