"""What each type of field takes, and the one way in which it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.pipeline.mapping import FIELD_TYPES, Refused
from tests.selection import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("double", 3, 3.0),
        ("numeric", "0012.500", "12.500"),
        ("numeric", "1.50", "1.50"),
        ("numeric", "-0.0", "0.0"),
        ("numeric", 2.0, "2"),
        ("numeric", "1." + "0" * 31, "1"),
        ("numeric", "100", "100"),
        ("numeric", 12, "12"),
        ("numeric", -1.5, "-1.5"),
        ("numeric", 1e22, "10000000000000000000000"),
        ("numeric", 1e-7, "0.0000001"),
        ("numeric", "9" * 35, "9" * 35),
        ("timestamp", "2026-01-31T12:00:00Z", "2026-01-31 12:00:00.000000+00:00"),
        ("timestamp", "2026-01-31T13:00:00.5+01:00", "2026-01-31 12:00:00.500000+00:00"),
        ("date", "2026-01-31", "2026-01-31"),
        ("uuid", "8C1ED3CF-1B1B-4B1B-8B1B-1B1B1B1B1B1B", "8c1ed3cf-1b1b-4b1b-8b1b-1b1b1b1b1b1b"),
        ("json", {"b": [1, None], "a": "\\u0000"}, '{"a":"\\\\u0000","b":[1,null]}'),
        ("json", 7, "7"),
    ],
)
def test_equal_values_have_one_text(kind: str, value: Any, stored: object) -> None:
    assert FIELD_TYPES[kind].convert(value) == stored


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("numeric", "1e5", "wrong-type"),
        ("numeric", "", "wrong-type"),
        ("numeric", " 1", "wrong-type"),
        ("numeric", True, "wrong-type"),
        ("numeric", "0" * 1_000_000 + "x", "wrong-type"),
        ("numeric", "9" * 36, "out-of-range"),
        ("numeric", "0." + "1" * 31, "out-of-range"),
        ("numeric", 1e300, "out-of-range"),
        ("timestamp", "2026-01-31T12:00:00", "wrong-type"),
        ("timestamp", "2026-01-31", "wrong-type"),
        ("timestamp", "0001-01-01T00:00:00+10:00", "wrong-type"),
        ("timestamp", 1_700_000_000, "wrong-type"),
        ("date", "2026-02-30", "wrong-type"),
        ("uuid", "8c1ed3cf", "wrong-type"),
        ("json", {"a": ["x\0y"]}, "nul-character"),
    ],
)
def test_what_could_not_be_stored_as_it_was_meant_is_refused(kind: str, value: Any, code: str) -> None:
    with pytest.raises(Refused) as caught:
        FIELD_TYPES[kind].convert(value)
    assert caught.value.code == code
    assert len(caught.value.detail) < 250


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    nested: Any = []
    for _ in range(600):
        nested = [nested]
    with pytest.raises(Refused, match="nested"):
        FIELD_TYPES["json"].convert(nested)


@pytest.mark.parametrize("kind", list(FIELD_TYPES))
@examples(40)
@given(column=st.lists(JSON.filter(lambda value: value is not None), max_size=4))
def test_a_column_that_is_called_plain_is_stored_as_it_is(kind: str, column: list[Any]) -> None:
    field = FIELD_TYPES[kind]
    if field.is_plain(set(map(type, column)), column):
        assert [field.convert(value) for value in column] == column


@pytest.mark.parametrize("kind", list(FIELD_TYPES))
@examples(40)
@given(value=JSON.filter(lambda value: value is not None))
def test_no_value_makes_a_type_raise_anything_but_a_refusal(kind: str, value: Any) -> None:
    try:
        stored = FIELD_TYPES[kind].convert(value)
    except Refused:
        return
    assert FIELD_TYPES[kind].convert(stored) == stored or kind == "json"
