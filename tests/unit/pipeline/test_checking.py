"""Publisher and consumer judge a record by the same code: what one refuses is what the other buries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import Slice
from inorder.pipeline.checks import TableCheck, document_check
from inorder.pipeline.decoding import Rejected
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from tests.fakes.table_store import MemoryTableStore

SCHEMA = '{"type": "object", "required": ["id"], "properties": {"data": {"maxLength": 3}}}'
PLAIN = TableMapping("test", "upsert", "messages")
STRICT = replace(PLAIN, schema=SCHEMA)

anything = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "enabled", "data"]), inner),
        max_leaves=4,
    ).map(lambda value: _encoded(value)),
)


def _encoded(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a number beyond 64 bits
        return b'{"id": 99999999999999999999}'


@given(st.sampled_from([PLAIN, STRICT]), st.sampled_from([None, b"1", b"x"]), anything)
def test_what_a_publisher_refuses_is_what_the_consumer_buries_with_the_same_words(
    mapping: TableMapping, key: bytes | None, value: bytes | None
) -> None:
    store = MemoryTableStore()
    apply_slice(store, mapping, Slice("upsert", 0, [0], [key], [value], [None]))
    buried = [(letter.code, letter.detail) for letter in store.contents.letters.values()]
    refusal = TableCheck(mapping)(key, value)
    assert buried == ([] if refusal is None else [(refusal.code, refusal.detail)])


def test_a_message_against_its_schema_is_refused_by_both() -> None:
    refusal = TableCheck(STRICT)(b"1", b'{"id": 1, "data": "long"}')
    assert refusal is not None
    assert refusal.code == "schema-mismatch"
    assert "'data' breaks the rule 'maxLength'" in refusal.detail


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b'{"id": "of any type"}', None),
        (None, None),
        (b"{", "not-json"),
        (b"[]", "schema-mismatch"),
        (b'{"id": 1, "data": "long"}', "schema-mismatch"),
    ],
)
def test_a_topic_without_a_table_is_held_against_its_schema_alone(value: bytes | None, code: str | None) -> None:
    refusal = document_check(SCHEMA)(b"any key", value)
    assert (refusal and refusal.code) == code
    assert refusal is None or isinstance(refusal, Rejected)
