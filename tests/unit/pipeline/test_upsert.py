"""What a record asks for, and what the records of a key amount to."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.upsert import IGNORED, KEY_BYTES_LIMIT, Decoder, Rejected, Update, fold, shortened
from inorder.ports.table_store import FoldedRow, Value

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
        (b'{"id":1,"enabled":true,"data":"a"}', Update(1, (True, "a"))),
        (b'{"id":1,"enabled":false}', Update(1, (False, None))),
        (b'{"id":1,"enabled":null,"data":"a"}', Update(1, (None, "a"))),
        (b'{"id":1,"enabled":true,"data":""}', Update(1, (True, None))),
        (b'{"id":1,"enabled":"","data":"a"}', Update(1, (None, "a"))),
        (b'{"id":-5,"data":"a","colour":"red"}', Update(-5, (None, "a"))),
        (b'{"id":1,"data":"a","data":"b"}', Update(1, (None, "b"))),
        (b' {"id": 9223372036854775807, "data": "\xc3\xa4"} ', Update(9223372036854775807, (None, "ä"))),
    ],
)
def test_absent_null_and_empty_fields_are_kept_and_unknown_ones_ignored(value: bytes, expected: Update) -> None:
    assert Decoder(MESSAGES).decode(None, value) == expected


@pytest.mark.parametrize("value", [b'{"id":1}', b'{"id":1,"enabled":null,"data":""}', b'{"id":1,"colour":"red"}'])
def test_a_record_with_only_an_id_is_ignored(value: bytes) -> None:
    assert Decoder(MESSAGES).decode(b"1", value) is IGNORED


@pytest.mark.parametrize(
    ("key", "value", "code", "named"),
    [
        (b"1", None, "null-value", "no value"),
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
        assert isinstance(decoded, Update)
        assert value in decoded.values


def test_a_value_over_the_limit_is_rejected_without_being_parsed() -> None:
    mapping = TableMapping("demo", "upsert", "messages", max_value_bytes=40)
    fits = b'{"id":1,"data":"%s"}' % (b"x" * 22)
    assert len(fits) == 40
    assert isinstance(Decoder(mapping).decode(None, fits), Update)
    decoded = Decoder(mapping).decode(None, fits + b" ")
    assert decoded == Rejected("too-large", "The value has 41 bytes, the limit is 40.")


def test_text_keys_must_match_the_record_key_and_fit_an_index() -> None:
    decoder = Decoder(BY_NAME)
    assert decoder.decode("ä".encode(), '{"name":"ä","data":"x"}'.encode()) == Update("ä", ("x",))
    refused = decoder.decode(None, orjson.dumps({"name": "x" * (KEY_BYTES_LIMIT + 1), "data": "x"}))
    assert isinstance(refused, Rejected)
    assert refused.code == "key-too-long"


@given(st.binary(max_size=60), st.none() | st.binary(max_size=4))
def test_no_bytes_make_the_decoder_raise(value: bytes, key: bytes | None) -> None:
    assert isinstance(Decoder(MESSAGES).decode(key, value), Update | Rejected | type(IGNORED))


def test_details_stay_short_whatever_the_value() -> None:
    decoded = Decoder(MESSAGES).decode(None, orjson.dumps({"id": 1, "data": ["x" * 5000]}))
    assert isinstance(decoded, Rejected)
    assert len(decoded.detail) < 200
    assert len(shortened(b"\x00" * 1000)) < 100


UPDATES = st.lists(
    st.builds(
        Update,
        st.integers(0, 4),
        st.tuples(st.none() | st.booleans(), st.none() | st.text(min_size=1, max_size=3)),
    ),
    max_size=40,
)


@given(UPDATES)
def test_folding_equals_applying_the_updates_one_by_one(updates: list[Update]) -> None:
    model: dict[object, list[Value | None]] = {}
    for key, values in updates:
        row = model.setdefault(key, [None, None])
        for index, value in enumerate(values):
            if value is not None:
                row[index] = value
    folded = fold(enumerate(updates))
    assert {row.key: list(row.values) for row in folded} == model
    assert [row.key for row in folded] == sorted(row.key for row in folded if isinstance(row.key, int))
    assert sum(row.records for row in folded) == len(updates)


def test_a_folded_row_carries_the_offset_of_its_last_record() -> None:
    updates = [(3, Update(2, (True, None))), (5, Update(1, (None, "a"))), (9, Update(2, (None, "b")))]
    assert fold(updates) == [FoldedRow(1, (None, "a"), 5, 1), FoldedRow(2, (True, "b"), 9, 2)]


@pytest.mark.parametrize(
    ("first", "second", "wavered"),
    [
        ((True, None), (None, "a"), False),
        ((True, "a"), (True, None), False),
        ((True, "a"), (False, None), True),
        ((None, "a"), (None, "b"), True),
    ],
)
def test_a_fold_wavers_when_its_records_disagree_on_a_field(
    first: tuple[Value | None, ...], second: tuple[Value | None, ...], wavered: bool
) -> None:
    [row] = fold([(0, Update(1, first)), (1, Update(1, second)), (2, Update(1, second))])
    assert row.wavered is wavered
