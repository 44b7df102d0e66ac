"""What the producer of journals decides without a broker: the size of a record, and what a failed delivery means."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.stores.kafka_log import _max_size, _PolledProducer
from inorder.kafka.topic_facts import size_of
from inorder.model.errors import UnknownOutcomeError
from inorder.model.journal import PartitionOffset
from inorder.model.message import OutboxRow, Record

headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=300)), max_size=50)


@given(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=40_000), headers)
def test_the_quick_bound_is_never_below_the_measure_of_the_broker(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    row = OutboxRow(0, "journal", key, value, tuple(headers), None, None)
    assert _max_size(Record("journal", key, value, tuple(headers), None, None)) >= size_of(row)


def test_a_record_that_the_client_gives_up_may_have_been_written() -> None:
    """The client says the same of a record that it never sent and of one whose answer was lost."""
    answer: Future[PartitionOffset] = Future()
    with closing(_PolledProducer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 10})) as producer:
        producer.produce(Record("journal", b"a", b"", (), None, 0), answer)
        with pytest.raises(UnknownOutcomeError, match="_MSG_TIMED_OUT"):
            answer.result(60)
