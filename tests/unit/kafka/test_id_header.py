"""Rows carry their id in a header if one is named, in every layout, and nothing else about them changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.kafka.sender import with_ids
from inorder.model.message import OutboxRow, to_text
from inorder.outbox.layouts import layout
from inorder.settings import Settings

STORED: dict[str, tuple[Any, ...]] = {
    "native": (7, "orders", b"k", b"v", to_text((("trace", b"1"),)), 3, 99),
    "goharvest": (7, "orders", "k", "v", None, None),
    "deimos": (7, "orders", b"k", b"v", b"p"),
    "trendyol": (7, "orders", "k", "v", '{"trace": "1"}'),
}


@pytest.mark.parametrize("name", STORED)
def test_rows_of_every_layout_carry_their_id(name: str) -> None:
    row = layout(name, "sqlite").decode(STORED[name])
    (found,) = with_ids([row], "id")
    assert found == row._replace(headers=(*row.headers, ("id", b"7")))
    assert type(found) is OutboxRow


def test_rows_of_debezium_keep_the_id_that_their_writer_chose() -> None:
    row = layout("debezium", "sqlite").decode((7, "order", "1", b"v", "0b2d7a5e"))
    assert with_ids([row], "id")[0].headers == (("id", b"0b2d7a5e"),)
    assert with_ids([row], "row")[0].headers == (("id", b"0b2d7a5e"), ("row", b"7"))


@given(
    ids=st.lists(st.integers(1, 2**63 - 1), unique=True),
    headers=st.lists(st.tuples(st.sampled_from(["a", "id"]), st.none() | st.binary())).map(tuple),
)
def test_equal_headers_mean_the_same_row(ids: list[int], headers: tuple[tuple[str, bytes | None], ...]) -> None:
    rows = [OutboxRow(id, "orders", None, None, headers, None, None) for id in ids]
    assert with_ids(rows, "") == rows
    found = [dict(row.headers)["id"] for row in with_ids(rows, "id")]
    if "id" not in dict(headers):
        assert found == [str(id).encode() for id in ids]
    else:
        assert [row.headers for row in with_ids(rows, "id")] == [headers] * len(rows)


@pytest.mark.parametrize(
    ("relay", "header"),
    [
        ({}, ""),
        ({"delivery": "exactly-once"}, ""),
        ({"delivery": "exactly-once", "id_header": "row"}, "row"),
        ({"delivery": "at-least-once"}, "id"),
        ({"delivery": "at-least-once", "id_header": ""}, ""),
        ({"strategy": "topic-lock", "layout": "deimos"}, "id"),
    ],
)
def test_only_readers_that_may_see_repeats_get_one_by_default(relay: dict[str, Any], header: str) -> None:
    """With `exactly-once` there is nothing to recognise, and plain records go by the faster call."""
    assert Settings.load(relay=relay).relay.sent_id_header == header
