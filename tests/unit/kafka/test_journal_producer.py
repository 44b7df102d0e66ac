"""The quick bound that spares most records their exact measure never lets one through that is too large."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.stores.kafka_producer import _max_size
from inorder.kafka.topic_facts import size_of
from inorder.model.message import OutboxRow, Record

headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=300)), max_size=50)


@given(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=40_000), headers)
def test_the_quick_bound_is_never_below_the_measure_of_the_broker(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    row = OutboxRow(0, "journal", key, value, tuple(headers), None, None)
    assert _max_size(Record("journal", key, value, tuple(headers), None, None)) >= size_of(row)
