"""Rows of each layout hold the same record, in the form that readers of that layout expect."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import pytest

from inorder.bench.load import Load
from inorder.bench.tables import LAYOUTS

KEY, VALUE = next(Load(rows=1, keys=1).records())
HEADERS = Load(rows=1, keys=1, headers=1).header_pairs


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_row_has_a_value_for_every_column(name: str) -> None:
    layout = LAYOUTS[name]
    assert len(layout.row("topic", KEY, VALUE, HEADERS)) == len(layout.columns)


def test_the_native_row_holds_bytes_and_its_headers_as_text() -> None:
    topic, key, value, headers = LAYOUTS["native"].row("orders", KEY, VALUE, HEADERS)
    assert (topic, key, value) == ("orders", KEY, VALUE)
    assert "header-1" in headers
    assert LAYOUTS["native"].row("orders", KEY, VALUE, ())[-1] is None


def test_the_goharvest_row_holds_headers_as_two_lists_of_one_length() -> None:
    created, topic, key, value, names, values = LAYOUTS["goharvest"].row("orders", KEY, VALUE, HEADERS)
    assert isinstance(created, datetime)
    assert (topic, key, value) == ("orders", KEY.decode(), VALUE.decode())
    assert (names, values) == (["header-1"], ["benchmark"])


def test_the_debezium_row_names_its_aggregate_and_the_reader_adds_the_prefix() -> None:
    layout = LAYOUTS["debezium"]
    id, aggregate, key, _, payload = layout.row(f"{layout.topic_prefix}orders", KEY, VALUE, ())
    assert isinstance(id, UUID)
    assert (aggregate, key, payload) == ("orders", KEY.decode(), VALUE.decode())


def test_the_trendyol_row_is_text_and_its_headers_are_an_object() -> None:
    row = LAYOUTS["trendyol"].row
    assert row("orders", KEY, VALUE, HEADERS) == ("orders", KEY.decode(), VALUE.decode(), '{"header-1":"benchmark"}')
    assert row("orders", KEY, VALUE, ())[-1] is None
