"""What a task of the sink `inorder.table` does with its rows, on a table in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest

from inorder.engines.formats import KAFKA_PARTITION, Distribution, sorted_rows
from inorder.engines.slice_work import SliceWorker
from inorder.model.errors import ConfigurationError, GuaranteeError
from inorder.pipeline.formats import TaskOutcomes, apply_slices, by_place, slices, to_kafka_columns
from inorder.pipeline.job import TableTarget, UpsertWork
from inorder.pipeline.mapping import TableMapping
from tests.fakes.table_store import MemoryTableStore, message

BINARY = pa.binary()
Row = tuple[str, int, int, bytes | str | None]


def batch(*rows: Row, value_type: pa.DataType = BINARY, **more: pa.Array) -> pa.RecordBatch:
    topics, partitions, offsets, values = zip(*rows, strict=True)
    columns = {
        "topic": pa.array(topics),
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "value": pa.array(values, value_type),
    }
    return pa.RecordBatch.from_pydict(columns | more)


def row(partition: int, offset: int, id: int | None = None, topic: str = "upsert", **fields: object) -> Row:
    return topic, partition, offset, message(offset if id is None else id, **(fields or {"data": f"at {offset}"}))


@pytest.fixture
def store() -> MemoryTableStore:
    return MemoryTableStore()


@pytest.fixture
def worker(store: MemoryTableStore) -> Iterator[SliceWorker]:
    work = UpsertWork((TableTarget(TableMapping("test", "upsert", "messages", keyless="apply"), lambda: store),))
    opened = work.open()
    yield opened
    opened.close()


def apply(worker: SliceWorker, *batches: pa.RecordBatch) -> TaskOutcomes:
    return TaskOutcomes(tuple(apply_slices(worker, ("upsert",), batches)))


def test_each_kafka_partition_is_a_slice_of_its_own() -> None:
    found = list(slices([batch(row(0, 5), row(1, 2), row(0, 9), row(1, 3))]))
    assert [(each.partition, list(each.offsets)) for each in found] == [(0, [5, 9]), (1, [2, 3])]


def test_holes_that_a_filter_leaves_are_fine(worker: SliceWorker, store: MemoryTableStore) -> None:
    result = apply(worker, batch(row(0, 5), row(0, 90)), batch(row(0, 91), row(1, 4)))
    assert sum(outcome.applied for outcome in result.outcomes) == 4
    assert result.places == {"upsert[0]", "upsert[1]"}
    assert {place: pointer.next_offset for place, pointer in store.contents.pointers.items()} == {
        ("upsert", 0): 92,
        ("upsert", 1): 5,
    }


def test_a_task_that_is_run_again_changes_nothing(worker: SliceWorker, store: MemoryTableStore) -> None:
    batches = batch(row(0, 1), row(1, 1, id=7)), batch(row(0, 2), row(0, 3))
    apply(worker, *batches)
    before = dict(store.contents.rows)
    again = apply(worker, *batches)
    assert [(outcome.applied, outcome.replayed) for outcome in again.outcomes] == [(0, 1), (0, 1), (0, 2)]
    assert store.contents.rows == before


def test_offsets_that_fall_within_a_batch_are_refused(worker: SliceWorker, store: MemoryTableStore) -> None:
    with pytest.raises(GuaranteeError, match=r"offset 4 came after 5 in upsert\[0\]"):
        apply(worker, batch(row(0, 5), row(0, 4)))
    assert not store.contents.rows


@pytest.mark.parametrize("offset", [4, 5])
def test_offsets_that_fall_from_one_batch_to_the_next_are_refused(worker: SliceWorker, offset: int) -> None:
    with pytest.raises(GuaranteeError, match=rf"offset {offset} came after 5 in upsert\[0\]"):
        apply(worker, batch(row(0, 5)), batch(row(1, 0)), batch(row(0, offset)))


def test_a_task_of_a_stream_sorts_its_rows_before_it_applies_one(worker: SliceWorker, store: MemoryTableStore) -> None:
    shuffled = [batch(row(0, 3, id=1), row(1, 8)), batch(row(0, 2, id=1)), batch(row(0, 1, id=1), row(1, 7))]
    result = apply(worker, *sorted_rows(KAFKA_PARTITION, Distribution.WHOLE, shuffled))
    assert [(outcome.partition, outcome.next_offset) for outcome in result.outcomes] == [(0, 4), (1, 9)]
    assert sum(outcome.replayed for outcome in result.outcomes) == 0
    assert store.contents.rows[1].values == (None, "at 3")


def test_a_task_without_rows_is_done() -> None:
    assert list(sorted_rows(KAFKA_PARTITION, Distribution.WHOLE, [])) == []
    assert TaskOutcomes(()).places == frozenset()


def test_a_topic_that_feeds_no_table_is_refused_with_the_nearest(worker: SliceWorker) -> None:
    with pytest.raises(ConfigurationError, match="No table is fed by topic 'upserts'; did you mean 'upsert'"):
        apply(worker, batch(row(0, 1, topic="upserts")))


def test_text_is_taken_for_bytes_and_what_is_not_given_for_null() -> None:
    [found] = slices([batch(("upsert", 0, 1, '{"id": 1}'), value_type=pa.string())])
    assert (found.values, found.keys, found.timestamps) == ([b'{"id": 1}'], [None], [None])


def test_keys_and_times_are_kept() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    times = pa.array([at], pa.timestamp("us", "UTC"))
    [found] = slices([batch(row(0, 1), key=pa.array(["1"]), timestamp=times, timestampType=pa.array([0]))])
    assert (found.keys, found.timestamps) == ([b"1"], [int(at.timestamp()) * 1_000_000])


@pytest.mark.parametrize("name", ["topic", "partition", "offset"])
def test_a_row_that_belongs_nowhere_is_refused(name: str) -> None:
    records = batch(row(0, 1))
    index = records.schema.get_field_index(name)
    without = records.set_column(index, name, pa.nulls(1, records.schema.field(name).type))
    with pytest.raises(GuaranteeError, match=f"A row has no {name}"):
        to_kafka_columns(without)


def test_rows_of_one_partition_are_not_copied() -> None:
    records = to_kafka_columns(batch(row(0, 1), row(0, 2)))
    [found] = by_place(records)
    assert found is records
