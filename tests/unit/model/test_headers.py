"""Headers survive their column byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import PermanentError
from inorder.model.message import RecordHeaders, from_text, to_text

_names = st.text(st.characters(exclude_categories=["Cs"]))
_headers = st.lists(st.tuples(_names, st.none() | st.binary() | st.text().map(str.encode)), max_size=6).map(tuple)


@given(_headers)
def test_any_headers_come_back_exactly(headers: RecordHeaders) -> None:
    assert from_text(to_text(headers)) == headers


@given(_headers)
def test_the_text_holds_no_nul_which_postgres_could_not_store(headers: RecordHeaders) -> None:
    assert "\0" not in (to_text(headers) or "")


def test_the_stored_form_is_what_the_documentation_says() -> None:
    headers = (("name", b"text"), ("bin", b"\xff\x00"), ("none", None), ("empty", b""))
    assert to_text(headers) == '[["name","text"],["bin",{"base64":"/wA="}],["none",null],["empty",""]]'


def test_no_headers_are_no_text() -> None:
    assert to_text(()) is None
    assert from_text(None) == ()
    assert from_text("[]") == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not JSON"),
        ('[["a"', "not JSON"),
        ('{"a": "b"}', "not a list"),
        ("null", "not a list"),
        ('[["a","b"],["c"]]', "item 1"),
        ('[["a",5]]', "item 0"),
        ('[[5,"a"]]', "item 0"),
        ('["ab"]', "item 0"),
        ('[["a",{"base64":"%%"}]]', "not base64"),
        ('[["a",{"base64":"é"}]]', "not base64"),
        ('[["a",{"base64":5}]]', "item 0"),
        ('[["a",{"base64":"/w==","more":1}]]', "item 0"),
        ('[["a",{}]]', "item 0"),
    ],
)
def test_damaged_text_is_a_permanent_error_that_says_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(PermanentError, match=what) as caught:
        from_text(text)
    assert text[:20] in caught.value.message


def test_a_long_damaged_text_is_shown_in_part() -> None:
    with pytest.raises(PermanentError) as caught:
        from_text("x" * 10_000)
    assert len(str(caught.value)) < 400
