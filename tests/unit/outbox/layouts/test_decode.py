"""Whatever stands in a row, decoding it gives a row: either one to send, or one with a flaw."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.message import OutboxRow, to_text
from inorder.outbox.layouts import LAYOUTS, layout
from inorder.outbox.layouts.rows import Decode, decode_rows

native = layout("native", "sqlite").decode
goharvest = layout("goharvest", "sqlite").decode
debezium = layout("debezium", "sqlite").decode
deimos = layout("deimos", "sqlite").decode
trendyol = layout("trendyol", "sqlite").decode

HEADERS = (("trace", b"1"), ("digest", b"\xff\x00"), ("flag", None))


def test_a_native_row_is_taken_as_it_is() -> None:
    row = native((7, "orders", b"k", b"v", to_text(HEADERS), 3, 99))
    assert row == OutboxRow(7, "orders", b"k", b"v", HEADERS, 3, 99)


def test_a_tombstone_without_a_key_is_a_good_row() -> None:
    assert native((7, "orders", None, None, None, None, None)) == OutboxRow(7, "orders", None, None, (), None, None)


def test_text_may_come_as_bytes() -> None:
    stored = (to_text(HEADERS) or "").encode()
    assert native((7, b"orders", b"k", b"v", stored, None, None)).headers == HEADERS
    assert native((7, b"orders", b"k", b"v", None, None, None)).topic == "orders"


@pytest.mark.parametrize(
    ("topic", "flaw"),
    [
        (None, "topic is null"),
        ("", "topic is empty"),
        (b"", "topic is empty"),
        (b"a\xff", "topic is not UTF-8 text (invalid start byte at byte 1)"),
    ],
)
def test_a_native_row_without_a_topic_that_can_be_read(topic: Any, flaw: str) -> None:
    row = native((7, topic, b"k", b"v", None, None, None))
    assert row.flaw == flaw
    assert (row.id, row.key, row.value) == (7, b"k", b"v")


MARKER = "inorder.orders.marker"
RESERVED = f"topic: {MARKER!r} is reserved: topics that begin with 'inorder.' hold inorder's own records"
ROWS: dict[str, Callable[[Any], OutboxRow]] = {
    "native": lambda topic: native((7, topic, b"0", b"v", None, 0, None)),
    "goharvest": lambda topic: goharvest((7, topic, "0", "v", None, None)),
    "deimos": lambda topic: deimos((7, topic, b"0", b"v", None)),
    "deimos with a partition key": lambda topic: deimos((7, topic, b"0", b"v", b"1")),
    "trendyol": lambda topic: trendyol((7, topic, "0", "v", None)),
}


@pytest.mark.parametrize("decode", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("stored", [MARKER, MARKER.encode()], ids=["text", "bytes"])
def test_a_topic_of_inorder_s_own_is_a_flaw(decode: Callable[[Any], OutboxRow], stored: Any) -> None:
    for _ in range(2):
        row = decode(stored)
        assert (row.id, row.topic, row.key) == (7, MARKER, b"0")
        assert row.flaw.removeprefix("kafka_") == RESERVED
    assert decode("inorder.").flaw


@pytest.mark.parametrize("decode", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("topic", ["inorder", "inorder-orders", "inorder_orders", "Inorder.x", "x.inorder.marker"])
def test_other_topics_may_have_a_name_like_it(decode: Callable[[Any], OutboxRow], topic: str) -> None:
    assert [decode(topic).flaw for _ in range(2)] == ["", ""]


def test_debezium_s_topics_never_are_inorder_s_own() -> None:
    row = debezium((7, "inorder.orders.marker", "1", b"v", "an id"))
    assert (row.topic, row.flaw) == ("outbox.event.inorder.orders.marker", "")


LONG = "t" * 513


@pytest.mark.parametrize("decode", [native, goharvest, deimos, trendyol])
@pytest.mark.parametrize(
    ("topic", "flaw"),
    [
        (LONG, "has 513 characters, Kafka allows 249"),
        ("a\0b", "'a\\x00b' is not a legal topic name"),
        ("a b", "'a b' is not a legal topic name"),
        ("..", "'..' is not a legal topic name"),
    ],
)
def test_a_topic_that_kafka_cannot_have_is_a_flaw(decode: Decode, topic: str, flaw: str) -> None:
    """The client would raise for it, or cut it off."""
    columns = {native: 4, goharvest: 3, deimos: 2, trendyol: 2}[decode]
    for stored in (topic, topic.encode()):
        row = decode((7, stored, b"k", *[None] * columns))
        assert flaw in row.flaw
        assert (row.id, row.topic, row.key) == (7, topic, b"k")


def test_a_debezium_topic_counts_with_its_prefix() -> None:
    good, bad = "t" * (249 - len("outbox.event.")), "t" * 249
    assert debezium((7, good, "k", b"{}", "id")).flaw == ""
    assert "has 262 characters" in debezium((7, bad, "k", b"{}", "id")).flaw


@pytest.mark.parametrize(
    ("partition", "timestamp", "flaw"),
    [
        (2**31, None, "partition: 2147483648 is not between 0 and 2147483647"),
        (-1, None, "partition: -1 is not between 0 and 2147483647"),
        (None, -1, "timestamp: -1 is before 1970"),
        (None, -(2**63), f"timestamp: {-(2**63)} is before 1970"),
    ],
)
def test_numbers_out_of_range_are_a_flaw(partition: int | None, timestamp: int | None, flaw: str) -> None:
    assert native((7, "t", b"k", b"v", None, partition, timestamp)).flaw == flaw


def test_a_header_name_with_a_nul_is_a_flaw() -> None:
    """The client would cut it off."""
    assert "NUL" in native((7, "t", None, None, to_text((("a\0b", b"1"),)), None, None)).flaw
    assert native((7, "t", None, None, to_text((("a", b"\0"),)), None, None)).flaw == ""
    assert "NUL" in goharvest((7, "t", None, None, '["a\\u0000b"]', '["1"]')).flaw
    assert "NUL" in trendyol((7, "t", None, None, '{"a\\u0000b": "1"}')).flaw


@pytest.mark.parametrize("depth", [300, 990, 1010, 1023, 1100, 100_000])
def test_headers_nested_however_deeply_are_a_flaw(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    assert trendyol((7, "t", b"k", b"v", f'{{"a": {nested}}}')).flaw
    assert native((7, "t", b"k", b"v", nested, None, None)).flaw
    assert goharvest((7, "t", b"k", b"v", nested, nested)).flaw


def test_numbers_in_binary_columns_are_a_flaw() -> None:
    """SQLite keeps any value in any column, and the client takes bytes only."""
    row = deimos((7, "t", 5, 2.5, None))
    assert (row.flaw, row.key) == ("key is a int and not bytes; message is a float and not bytes", b"5")


def test_a_row_that_makes_decoding_itself_fail_has_a_flaw_and_the_others_are_read() -> None:
    def decode(row: Any) -> OutboxRow:
        if row[3] == b"poison":
            raise RecursionError("maximum recursion depth exceeded")
        return native(row)

    good, bad = (1, "t", b"k", b"v", None, None, None), (2, "t", b"k", b"poison", None, None, None)
    first, second = decode_rows(decode, [good, bad])
    assert first == native(good)
    assert (second.id, second.topic, second.key) == (2, "t", b"k"), "so that its key can be parked"
    assert second.flaw == "it cannot be read (RecursionError: maximum recursion depth exceeded)"


def test_headers_that_are_no_text_are_a_flaw() -> None:
    row = native((7, "t", None, None, b"[\xff]", None, None))
    assert row.flaw == "headers is not UTF-8 text (invalid start byte at byte 1)"
    assert row.headers == ()


def test_two_flaws_are_both_named() -> None:
    assert native((7, None, None, None, "{", None, None)).flaw.startswith("topic is null; Stored headers are damaged")


def test_a_goharvest_row_becomes_bytes() -> None:
    row = goharvest((7, "orders", "schlüssel", "€", ["a", "b"], ["1", None]))
    assert row == OutboxRow(7, "orders", "schlüssel".encode(), "€".encode(), (("a", b"1"), ("b", None)), None, None)


@pytest.mark.parametrize(("keys", "values"), [([], []), (None, None), ("[]", b"[]"), (None, "[]")])
def test_a_goharvest_row_without_headers(keys: Any, values: Any) -> None:
    row = goharvest((7, "t", "k", None, keys, values))
    assert (row.headers, row.value, row.flaw) == ((), None, "")


@pytest.mark.parametrize(
    ("keys", "values", "flaw"),
    [
        (["a"], [], "kafka_header_keys has 1 items and kafka_header_values 0"),
        (["a"], None, "kafka_header_keys has 1 items and kafka_header_values 0"),
        ([None], ["1"], "kafka_header_keys has a null at position 0"),
        ([["a"]], [["1"]], "kafka_header_keys is not a flat array of texts"),
        ("[1]", '["1"]', "kafka_header_keys is not a flat array of texts"),
        ('{"a": 1}', '["1"]', "kafka_header_keys is not a JSON array"),
        ('"a"', '["1"]', "kafka_header_keys is not a JSON array"),
    ],
)
def test_goharvest_header_arrays_that_cannot_be_headers(keys: Any, values: Any, flaw: str) -> None:
    row = goharvest((7, "t", "k", "v", keys, values))
    assert row.flaw.split("; ")[0] == flaw
    assert row.headers == ()


@pytest.mark.parametrize("text", ["[", b"\xff", "a,b"])
def test_goharvest_header_text_that_is_no_json(text: Any) -> None:
    assert "kafka_header_values is not a JSON array (" in goharvest((7, "t", "k", "v", '["a"]', text)).flaw


def test_a_goharvest_value_that_is_no_text_is_kept_and_noted() -> None:
    row = goharvest((7, b"t", b"k", b"\xff\xfe", b"[]", b"[]"))
    assert row.value == b"\xff\xfe"
    assert row.flaw == "kafka_value is not UTF-8 text (invalid start byte at byte 0)"


def test_a_debezium_row_is_routed_by_its_aggregate_type() -> None:
    id = UUID("406c07f3-26f0-4eea-a50c-109940064b8f")
    expected = OutboxRow(7, "outbox.event.order", b"1", b"{}", (("id", str(id).encode()),), None, None)
    assert debezium((7, "order", "1", "{}", str(id))) == expected
    assert debezium((7, b"order", b"1", b"{}", str(id).encode())) == expected
    assert debezium((7, "order", "1", "{}", id.bytes)) == expected


def test_a_debezium_row_without_an_aggregate_type_has_no_topic() -> None:
    for nothing in (None, ""):
        row = debezium((7, nothing, "1", None, "x"))
        assert (row.topic, row.value) == ("", None)
        assert row.flaw.startswith("aggregatetype is ")


@pytest.mark.parametrize("nothing", [None, b"k", "k"])
def test_a_deimos_row_without_a_partition_key_of_its_own_goes_by_its_key(nothing: Any) -> None:
    row = deimos((7, "orders", b"k", b"v", nothing))
    assert row == OutboxRow(7, "orders", b"k", b"v", (), None, None)
    assert row.routed_by == b"k"


@pytest.mark.parametrize("key", [b"k", None])
def test_a_deimos_row_goes_by_its_partition_key_where_it_has_one(key: bytes | None) -> None:
    row = deimos((7, b"orders", key, None, "ü"))
    assert (row.key, row.value, row.routed_by, row.flaw) == (key, None, "ü".encode(), "")


def test_a_deimos_partition_key_that_is_no_text_is_a_flaw() -> None:
    row = deimos((7, b"orders", b"k", b"v", b"\xff"))
    assert row.flaw == "partition_key is not UTF-8 text (invalid start byte at byte 0)"


def test_a_trendyol_row_becomes_bytes() -> None:
    assert trendyol((7, "orders", "ü", "€", None)) == OutboxRow(7, "orders", "ü".encode(), "€".encode(), (), None, None)
    row = trendyol((7, b"orders", None, b"v", b'{"a": "1"}'))
    assert row == OutboxRow(7, "orders", None, b"v", (("a", b"1"),), None, None)


@pytest.mark.parametrize("nothing", [None, "", b"", "null", "{}"])
def test_a_trendyol_row_without_headers(nothing: Any) -> None:
    row = trendyol((7, "t", "k", "v", nothing))
    assert (row.headers, row.flaw) == ((), "")


def test_trendyol_headers_are_the_text_that_stands_there() -> None:
    row = trendyol(
        (7, "t", "k", "v", '{"n": 1.50, "big": 12345678901234567890, "b": false, "s": "1.50", "null": null}')
    )
    assert row.headers == (
        ("n", b"1.50"),
        ("big", b"12345678901234567890"),
        ("b", b"false"),
        ("s", b"1.50"),
        ("null", None),
    )


@pytest.mark.parametrize(
    ("header", "flaw"),
    [
        ("[]", "header is not a JSON object"),
        ("1", "header is not a JSON object"),
        ('{"a": ["b"]}', "header is not a flat JSON object"),
        ('{"a": 1, "b": {}}', "header is not a flat JSON object"),
    ],
)
def test_trendyol_headers_that_cannot_be_headers(header: str, flaw: str) -> None:
    row = trendyol((7, "t", "k", "v", header))
    assert (row.headers, row.flaw) == ((), flaw)
    assert (row.topic, row.key, row.value) == ("t", b"k", b"v"), "what can be read is there for people to look at"


@pytest.mark.parametrize("header", ["{", "NaN", '{"a": NaN}', b"\xff", "a=b"])
def test_trendyol_headers_that_are_no_json(header: Any) -> None:
    assert trendyol((7, "t", "k", "v", header)).flaw.startswith("header is not a JSON object (")


TEXT = st.none() | st.text() | st.binary()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=5,
).map(json.dumps)
ANYTHING: st.SearchStrategy[Any] = TEXT | st.lists(st.none() | st.text(), max_size=3)
COLUMNS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "native": st.tuples(TEXT, TEXT, TEXT, TEXT, st.none(), st.none()),
    "goharvest": st.tuples(TEXT, TEXT, TEXT, ANYTHING, ANYTHING),
    "debezium": st.tuples(TEXT, TEXT, TEXT, TEXT),
    "deimos": st.tuples(TEXT, TEXT, TEXT, TEXT),
    "trendyol": st.tuples(TEXT, TEXT, TEXT, TEXT | JSON),
}


@pytest.mark.parametrize("name", LAYOUTS)
@given(data=st.data())
def test_no_row_makes_decoding_fail(name: str, data: st.DataObject) -> None:
    row = layout(name, "postgresql").decode((1, *data.draw(COLUMNS[name])))
    assert row.id == 1
    assert row.flaw or row.topic
    assert all(isinstance(header, str) for header, _ in row.headers)
