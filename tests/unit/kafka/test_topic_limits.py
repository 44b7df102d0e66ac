"""What is known of limits decides about batches and records; what cannot be learnt changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.kafka.topic_facts import TopicLimits, size_of
from inorder.model.message import OutboxRow

NOWHERE = {"bootstrap.servers": ""}


def test_batches_are_as_large_as_the_user_says_while_no_limit_is_known() -> None:
    assert TopicLimits(NOWHERE).batch_size == 1_000_000
    assert TopicLimits({**NOWHERE, "batch.size": 5_000}).batch_size == 5_000
    assert TopicLimits({**NOWHERE, "batch.size": "5000"}).batch_size == 5_000


def test_no_record_is_refused_while_no_limit_is_known() -> None:
    huge = OutboxRow(1, "t", None, b"x" * 10_000_000, (), None, None)
    TopicLimits(NOWHERE).require([huge])


@pytest.mark.parametrize(
    ("length", "size"),
    [(0, 68), (63, 132), (64, 134), (8121, 8191)],
    ids=["empty", "one byte of length", "two bytes of length", "long"],
)
def test_the_size_of_a_batch_of_one_record(length: int, size: int) -> None:
    assert size_of(OutboxRow(1, "t", None, b"x" * length, (), None, None)) == size


@given(key=st.none() | st.binary(), value=st.none() | st.binary(), more=st.binary(min_size=1))
def test_a_record_grows_at_least_by_what_is_added(key: bytes | None, value: bytes | None, more: bytes) -> None:
    plain = OutboxRow(1, "t", key, value, (), None, None)
    longer = plain._replace(value=(value or b"") + more)
    headed = plain._replace(headers=(("h", more),))
    assert size_of(longer) >= size_of(plain) + len(more)
    assert size_of(headed) >= size_of(plain) + len(more) + 3
