"""What a record asks for, and why it may be refused."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.pipeline.decoding import IGNORED, Decoder, Rejected, RowDelete, RowUpdate
from inorder.pipeline.mapping import KEY_BYTES_LIMIT, TableMapping, shorten
from inorder.pipeline.stores.ports import NULL

MESSAGES = TableMapping("demo", "upsert", "messages")
EVERY_TYPE = TableMapping(
    "demo",
    "upsert",
    "things",
    fields=(
        ("flag", "boolean"),
        ("small", "integer"),
        ("large", "bigint"),
        ("real", "double"),
        ("words", "text"),
    ),
)
BY_NAME = TableMapping("demo", "upsert", "named", key="name", key_type="text", fields=(("data", "text"),))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"id":1,"enabled":true,"data":"a"}', RowUpdate(1, (True, "a"))),
        (b'{"id":1,"enabled":false}', RowUpdate(1, (False, None))),
        (b'{"id":1,"enabled":null,"data":"a"}', RowUpdate(1, (None, "a"))),
        (b'{"id":1,"enabled":true,"data":""}', RowUpdate(1, (True, None))),
        (b'{"id":1,"enabled":"","data":"a"}', RowUpdate(1, (None, "a"))),
        (b'{"id":-5,"data":"a","colour":"red"}', RowUpdate(-5, (None, "a"))),
        (b'{"id":1,"data":"a","data":"b"}', RowUpdate(1, (None, "b"))),
        (b' {"id": 9223372036854775807, "data": "\xc3\xa4"} ', RowUpdate(9223372036854775807, (None, "ä"))),
    ],
)
def test_absent_null_and_empty_fields_are_kept_and_unknown_ones_ignored(value: bytes, expected: RowUpdate) -> None:
    assert Decoder(MESSAGES).decode(None, value) == expected


@pytest.mark.parametrize("value", [b'{"id":1}', b'{"id":1,"enabled":null,"data":""}', b'{"id":1,"colour":"red"}'])
def test_a_record_with_only_an_id_is_ignored(value: bytes) -> None:
    assert Decoder(MESSAGES).decode(b"1", value) is IGNORED


@pytest.mark.parametrize(
    ("key", "value", "code", "named"),
    [
        (None, b"", "not-json", "b''"),
        (None, b"\xff\xfe", "not-json", "xff"),
        (None, b'{"id":1', "not-json", "id"),
        (None, b'{"id":NaN}', "not-json", "NaN"),
        (None, b'{"id":1,"data":"\\ud800"}', "not-json", "surrogate"),
        (None, b"[1]", "not-an-object", "array"),
        (None, b"null", "not-an-object", "null"),
        (None, b'"text"', "not-an-object", "string"),
        (None, b'{"data":"a"}', "missing-key", "'id'"),
        (None, b'{"id":null,"data":"a"}', "missing-key", "'id'"),
        (None, b'{"id":"","data":"a"}', "missing-key", "'id'"),
        (None, b'{"id":"7","data":"a"}', "wrong-type", "'id' is a JSON string"),
        (None, b'{"id":true,"data":"a"}', "wrong-type", "'id' is a JSON boolean"),
        (None, b'{"id":1.0,"data":"a"}', "wrong-type", "'id' is a JSON number"),
        (None, b'{"id":9223372036854775808}', "out-of-range", "9223372036854775808"),
        (None, b'{"id":-99999999999999999999}', "out-of-range", "bigint"),
        (b"2", b'{"id":1,"data":"a"}', "key-mismatch", "b'2'"),
        (b"", b'{"id":1,"data":"a"}', "key-mismatch", "b''"),
        (None, b'{"id":1,"enabled":1}', "wrong-type", "'enabled' is a JSON integer, not boolean: 1"),
        (None, b'{"id":1,"enabled":"true"}', "wrong-type", "'enabled'"),
        (None, b'{"id":1,"data":5}', "wrong-type", "'data' is a JSON integer, not text: 5"),
        (None, b'{"id":1,"data":{"a":1}}', "wrong-type", "object"),
        (None, b'{"id":1,"data":"a\\u0000b"}', "nul-character", "'data'"),
    ],
)
def test_a_bad_record_is_rejected_with_its_own_code_and_the_place(
    key: bytes | None, value: bytes | None, code: str, named: str
) -> None:
    decoded = Decoder(MESSAGES).decode(key, value)
    assert isinstance(decoded, Rejected)
    assert decoded.code == code
    assert named in decoded.detail


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("flag", True, None),
        ("flag", 0, "wrong-type"),
        ("small", 2**31 - 1, None),
        ("small", -(2**31), None),
        ("small", 2**31, "out-of-range"),
        ("small", False, "wrong-type"),
        ("small", 1.5, "wrong-type"),
        ("large", 2**63 - 1, None),
        ("large", 2**63, "out-of-range"),
        ("real", 1.5, None),
        ("real", 3, None),
        ("real", True, "wrong-type"),
        ("real", "1.5", "wrong-type"),
        ("words", "ä" * 1000, None),
        ("words", ["a"], "wrong-type"),
    ],
)
def test_every_type_takes_its_own_values_only(field: str, value: object, code: str | None) -> None:
    decoded = Decoder(EVERY_TYPE).decode(None, orjson.dumps({"id": 1, field: value}))
    assert (decoded.code if isinstance(decoded, Rejected) else None) == code
    if code is None:
        assert isinstance(decoded, RowUpdate)
        assert value in decoded.values


def test_a_value_over_the_limit_is_rejected_without_being_parsed() -> None:
    mapping = TableMapping("demo", "upsert", "messages", max_value_bytes=40)
    fits = b'{"id":1,"data":"%s"}' % (b"x" * 22)
    assert len(fits) == 40
    assert isinstance(Decoder(mapping).decode(None, fits), RowUpdate)
    decoded = Decoder(mapping).decode(None, fits + b" ")
    assert decoded == Rejected("too-large", "The value has 41 bytes, the limit is 40.")


def test_text_keys_must_match_the_record_key_and_fit_an_index() -> None:
    decoder = Decoder(BY_NAME)
    assert decoder.decode("ä".encode(), '{"name":"ä","data":"x"}'.encode()) == RowUpdate("ä", ("x",))
    refused = decoder.decode(None, orjson.dumps({"name": "x" * (KEY_BYTES_LIMIT + 1), "data": "x"}))
    assert isinstance(refused, Rejected)
    assert refused.code == "key-too-long"


@given(st.binary(max_size=60), st.none() | st.binary(max_size=4))
def test_no_bytes_make_the_decoder_raise(value: bytes, key: bytes | None) -> None:
    assert isinstance(Decoder(MESSAGES).decode(key, value), RowUpdate | Rejected | type(IGNORED))


def test_details_stay_short_whatever_the_value() -> None:
    decoded = Decoder(MESSAGES).decode(None, orjson.dumps({"id": 1, "data": ["x" * 5000]}))
    assert isinstance(decoded, Rejected)
    assert len(decoded.detail) < 200
    assert len(shorten(b"\x00" * 1000)) < 100


@pytest.mark.parametrize(
    ("key", "decoded"),
    [
        (b"7", RowDelete(7)),
        (b"-7", RowDelete(-7)),
        (b"07", "key-mismatch"),
        (b" 7", "key-mismatch"),
        (b"1_0", "key-mismatch"),
        (b"x", "key-mismatch"),
        (b"\xff", "key-mismatch"),
        (b"", "key-mismatch"),
        (b"9223372036854775808", "key-mismatch"),
        (None, "null-value"),
    ],
)
def test_a_record_without_a_value_deletes_the_row_that_its_key_names(key: bytes | None, decoded: object) -> None:
    found = Decoder(MESSAGES).decode(key, None)
    assert (found.code if isinstance(found, Rejected) else found) == decoded


@pytest.mark.parametrize(("mode", "deletes"), [("insert", "tombstone"), ("upsert", "reject"), ("update", "reject")])
def test_where_deletes_are_not_taken_a_record_without_a_value_is_rejected(mode: str, deletes: str) -> None:
    decoded = Decoder(replace(MESSAGES, mode=mode, deletes=deletes)).decode(b"7", None)
    assert isinstance(decoded, Rejected)
    assert decoded.code == "null-value"
    assert repr(mode) in decoded.detail


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (b'{"id":1,"enabled":null,"data":"a"}', RowUpdate(1, (NULL, "a"))),
        (b'{"id":1,"enabled":null}', RowUpdate(1, (NULL, None))),
        (b'{"id":1,"enabled":null,"data":""}', RowUpdate(1, (NULL, None))),
        (b'{"id":1}', IGNORED),
        (b'{"id":1,"data":""}', IGNORED),
    ],
)
def test_where_nulls_are_written_absent_is_not_null_and_empty_is_still_ignored(value: bytes, decoded: object) -> None:
    assert Decoder(replace(MESSAGES, nulls="write")).decode(None, value) == decoded


SEATS = TableMapping("demo", "seats", "seats", key=("flight", "seat"), key_type=("bigint", "text"))


def test_a_key_of_several_columns_is_a_json_array_as_the_key_of_a_record() -> None:
    value = orjson.dumps({"flight": 7, "seat": "12A", "data": "taken"})
    decoder = Decoder(SEATS)
    assert decoder.decode(b'[7,"12A"]', value) == RowUpdate((7, "12A"), (None, "taken"))
    assert decoder.decode(None, value) == RowUpdate((7, "12A"), (None, "taken"))
    assert decoder.decode(b'[7,"12A"]', None) == RowDelete((7, "12A"))


@pytest.mark.parametrize(
    "key", [b'[7, "12A"]', b'[7,"12B"]', b'["7","12A"]', b"7", b"[7]", b"[7", b"{}", b'[7,"12A",1]']
)
def test_a_record_key_that_is_not_the_array_is_refused(key: bytes) -> None:
    value = orjson.dumps({"flight": 7, "seat": "12A", "data": "taken"})
    for decoded in (Decoder(SEATS).decode(key, value), Decoder(SEATS).decode(key, None)):
        assert decoded == RowDelete((7, "12B")) or (isinstance(decoded, Rejected) and decoded.code == "key-mismatch")


def test_a_column_of_the_key_that_is_missing_is_named() -> None:
    decoded = Decoder(SEATS).decode(None, b'{"flight":7,"data":"x"}')
    assert decoded == Rejected("missing-key", "The field 'seat' is absent or empty.")
