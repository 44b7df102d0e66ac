"""The short cut past the decoder gives what the decoder gives, or gives up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import Slice
from inorder.pipeline import decoding
from inorder.pipeline.decoding import Decoded, Decoder, decode_changes, decode_from
from inorder.pipeline.mapping import FIELD_TYPES, TableMapping
from tests.fakes.table_store import message, slice_of
from tests.selection import examples

MESSAGES = TableMapping("demo", "upsert", "messages")
BY_NAME = replace(MESSAGES, key="name", key_type="text")
SEATS = replace(MESSAGES, key=("flight", "seat"), key_type=("integer", "text"))
EVERY_TYPE = replace(MESSAGES, fields=tuple((kind, kind) for kind in FIELD_TYPES))

ODD: list[Any] = [None, "", True, 0, 7, 1.5, 2**31, 2**63, -(2**63), "a", "\0", "12.50", [], {"b": 1, "a": [None]}]
ODD += ["2026-01-31T12:00:00Z", "2026-01-31", "8c1ed3cf-1b1b-4b1b-8b1b-1b1b1b1b1b1b"]
IDENTITIES = st.sampled_from([1, 2, 3, "a", "b", None, "", True, 2**63])


def carefully(mapping: TableMapping, batch: Slice, from_offset: int) -> Decoded:
    """As if no record were plain."""
    reader = decoding._plain_reader(mapping)
    gives_up, reader._gives_up = reader._gives_up, True
    try:
        return decode_from(from_offset, mapping, batch)
    finally:
        reader._gives_up = gives_up


@st.composite
def slices(draw: st.DrawFn, mapping: TableMapping) -> Slice:
    """Mostly plain records, with some odd ones."""
    columns = st.fixed_dictionaries(
        dict.fromkeys(mapping.key_names, IDENTITIES),
        optional={name: st.sampled_from(ODD) for name in mapping.columns},
    )
    documents = columns.map(orjson.dumps)
    values = draw(st.lists(documents | st.sampled_from([None, b"?", b"[]"]), max_size=8))
    keys = draw(st.lists(st.sampled_from([None, b"1", b"2", b"a", b'[1,"a"]']), min_size=8, max_size=8))
    offsets = list(range(5, 5 + len(values)))
    return Slice("upsert", 0, offsets, keys[: len(values)], values, [0] * len(values))


@pytest.mark.parametrize("mode", ["upsert", "insert", "update"])
@pytest.mark.parametrize("mapping", [MESSAGES, BY_NAME, SEATS, EVERY_TYPE], ids=["plain", "text", "composite", "types"])
@examples(60)
@given(data=st.data())
def test_the_short_cut_gives_what_the_decoder_gives(mapping: TableMapping, mode: str, data: st.DataObject) -> None:
    mapping = replace(mapping, mode=mode)
    batch = data.draw(slices(mapping))
    assert decode_from(6, mapping, batch) == carefully(mapping, batch, 6)


@pytest.mark.parametrize("value", [b"?", b'{"id":1,"data":5}', None, b'{"id":3,"data":"\\u0000"}', b"[1]"])
def test_one_odd_record_costs_only_its_own_block_the_short_cut(
    value: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    decode = Decoder.decode

    def count(self: Decoder, key: bytes | None, found: bytes | None) -> object:
        asked.append(found)
        return decode(self, key, found)

    monkeypatch.setattr(decoding, "_BLOCK", 10)
    monkeypatch.setattr(Decoder, "decode", count)
    records = [(offset, message(offset % 7, data=str(offset))) for offset in range(100)]
    decoded = decode_from(0, MESSAGES, slice_of(*records[:42], (42, value), *records[43:]))
    assert len(decoded.letters) == 1
    assert len(asked) == 10
    assert sum(row.records for row in decoded.rows) == 99


def test_the_new_part_of_a_slice_is_counted_and_nothing_else_is_decoded() -> None:
    batch = slice_of((1, b"old garbage"), (2, message(1, data="a")), (4, message(2)), (5, b"?"))
    decoded = decode_from(2, MESSAGES, batch)
    assert (decoded.records, len(decoded.rows), [letter.offset for letter in decoded.letters]) == (3, 1, [5])


def test_a_dead_letter_has_the_bytes_and_the_time_of_its_record() -> None:
    batch = Slice("upsert", 0, [3], [b"k"], [b"?"], [1_700_000_000_123_456])
    [letter] = decode_from(0, MESSAGES, batch).letters
    assert (letter.offset, letter.code, letter.key, letter.value) == (3, "not-json", b"k", b"?")
    assert letter.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)


def test_changes_of_some_keys_come_one_by_one_with_their_places() -> None:
    batch = slice_of((1, message(1, data="a")), (2, message(2, data="b")), (5, b"?"), (7, message(1, enabled=True)))
    assert list(decode_changes({1}, 0, MESSAGES, batch)) == [(0, (1, 1, (None, "a"))), (3, (1, 7, (True, None)))]
    assert list(decode_changes({1}, 2, MESSAGES, batch)) == [(3, (1, 7, (True, None)))]


@pytest.mark.parametrize("spoilt", [False, True], ids=["plain", "record by record"])
def test_unknown_fields_are_counted_by_name_in_valid_records(spoilt: bool) -> None:
    values = [message(1, data="a", colour="red"), message(2, colour=None, size=3), message(3, enabled=True)]
    values += [b'{"id": 4, "data": 5, "weight": 1}'] if spoilt else []
    decoded = decode_from(0, MESSAGES, slice_of(*enumerate(values)))
    assert decoded.unknown == {"colour": 2, "size": 1}
