"""A group of rows that is split over tasks is refused: before the write without a promise, or after it."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest

from inorder.engines.formats import (
    JOURNAL,
    KAFKA_PARTITION,
    METADATA_KEY,
    Distribution,
    Grouping,
    grouping_of,
    read_distribution,
    require_apart,
    sorted_rows,
)
from inorder.model.errors import ConfigurationError, GuaranteeError


@pytest.mark.parametrize("grouping", [KAFKA_PARTITION, JOURNAL], ids=["records", "events"])
@pytest.mark.parametrize("spread", list(Distribution))
def test_what_in_order_has_noted_is_believed(grouping: Grouping, spread: Distribution) -> None:
    assert read_distribution(grouping, {METADATA_KEY: spread.value}, is_promised=False) is spread


def test_your_word_is_believed_and_events_are_sorted_all_the_same() -> None:
    assert read_distribution(KAFKA_PARTITION, {}, is_promised=True) is Distribution.SORTED
    assert read_distribution(JOURNAL, {}, is_promised=True) is Distribution.WHOLE


def test_silence_is_refused_with_both_ways_out() -> None:
    with pytest.raises(ConfigurationError, match="not known whether each Kafka partition is whole") as refused:
        read_distribution(KAFKA_PARTITION, {"comment": "mine"}, is_promised=False)
    assert "inorder.spark.in_order(df)" in refused.value.hint
    assert "'whole_partitions'" in refused.value.hint


def test_columns_tell_records_from_events() -> None:
    assert grouping_of(["value", "offset", "partition", "topic"]) is KAFKA_PARTITION
    assert grouping_of(["id", "payload", "seq_nr"]) is JOURNAL
    with pytest.raises(ConfigurationError, match="columns id, value are neither records of Kafka nor events"):
        grouping_of(["value", "id"])


def test_rows_are_sorted_in_memory_only_where_they_must_be() -> None:
    batches = [pa.RecordBatch.from_pydict({"id": ids, "seq_nr": numbers}) for ids, numbers in ((["b", "a"], [1, 2]),)]
    more = pa.RecordBatch.from_pydict({"id": ["a", "b"], "seq_nr": [1, 0]})
    empty = more.slice(0, 0)
    assert list(sorted_rows(JOURNAL, Distribution.SORTED, [*batches, empty, more])) == [*batches, more]
    [found] = sorted_rows(JOURNAL, Distribution.WHOLE, [*batches, empty, more])
    assert found.to_pydict() == {"id": ["a", "a", "b", "b"], "seq_nr": [1, 2, 0, 1]}


def test_things_that_are_apart_are_fine() -> None:
    require_apart(KAFKA_PARTITION.what, [["orders[0]", "orders[1]"], ["orders[2]", "returns[0]"], []])


def test_one_that_two_tasks_had_is_named() -> None:
    with pytest.raises(GuaranteeError, match=r"Kafka partition orders\[1\] was split over several Spark partitions"):
        require_apart(KAFKA_PARTITION.what, [["orders[0]", "orders[1]"], ["returns[1]"], ["orders[1]"]])
