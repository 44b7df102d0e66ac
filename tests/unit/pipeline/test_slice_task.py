"""What runs inside a Spark task, and where a start begins: without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyspark.sql import Row

from inorder.engines.micro_batch import read_expected
from inorder.engines.slice_task import OUTCOME_SCHEMA, Expected, outcome_of, slice_of, slice_task
from inorder.engines.slice_work import Pointer, Slice, SliceOutcome
from inorder.model.errors import (
    ConfigurationError,
    GuaranteeError,
    InorderError,
    MassRefusalError,
    RejectedError,
    TransientError,
    UnreachableError,
)
from inorder.model.partitioning import Place
from inorder.pipeline.job import TableTarget, UpsertWork
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import TableStore
from tests.fakes.table_store import MemoryTableStore, StoredRow, message

MAPPING = TableMapping("demo", "upsert", "messages")


@dataclass(frozen=True)
class OneStore:
    """Opens the same store each time, or raises the given error."""

    store: MemoryTableStore = field(default_factory=MemoryTableStore)
    error: InorderError | None = None

    def __call__(self) -> TableStore:
        if self.error is not None:
            raise self.error
        return self.store


def work_of(stores: OneStore) -> UpsertWork:
    return UpsertWork((TableTarget(MAPPING, stores),))


def records(
    *rows: tuple[int, bytes | None], topic: str = "upsert", key: bytes | None = b"1", partition: int = 2
) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([topic] * len(rows), pa.string()),
            "partition": pa.array([partition] * len(rows), pa.int32()),
            "offset": pa.array([offset for offset, _ in rows], pa.int64()),
            "key": pa.array([key] * len(rows), pa.binary()),
            "value": pa.array([value for _, value in rows], pa.binary()),
            "timestamp": pa.array([7_000_001] * len(rows), pa.timestamp("us", tz="UTC")),
        }
    )


def expecting(pointers: dict[Place, int] | None = None) -> Expected:
    """The pointers that the driver passes to the task."""
    return lambda: dict(pointers or {})


def results(batches: Iterator[pa.RecordBatch]) -> list[SliceOutcome | InorderError]:
    return [outcome_of(Row(**row)) for batch in batches for row in batch.to_pylist()]


def test_each_arrow_batch_is_a_slice_with_its_own_outcome() -> None:
    stores = OneStore()
    task = slice_task(work_of(stores), expecting({("upsert", 2): 0}))
    batches = [records((0, message(1, data="a")), (1, b"?")), records(), records((4, message(1, data="b")))]
    assert results(task(batches)) == [
        SliceOutcome("upsert", 2, next_offset=2, read=2, applied=1, rejected=1),
        SliceOutcome("upsert", 2, next_offset=5, read=1, applied=1),
    ]
    assert stores.store.contents.rows[1].values == (None, "b")


def test_an_arrow_batch_keeps_bytes_nulls_and_microseconds() -> None:
    assert slice_of(records((3, b"\x00"), (5, None), key=None)) == Slice(
        "upsert", 2, [3, 5], [None, None], [b"\x00", None], [7_000_001, 7_000_001]
    )
    assert slice_of(records((3, b"a"), (5, b"b"))).values == [b"a", b"b"]


def test_headers_travel_where_the_work_needs_them() -> None:
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    found = pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None], pairs)
    batch = records((3, b"{}"), (4, b"{}")).append_column("headers", found)
    assert slice_of(batch).headers == [(("a", b"1"), ("a", None)), ()]
    assert slice_of(records((3, b"{}"))).headers == ()


def test_each_topic_of_a_work_feeds_its_own_table() -> None:
    first, second = OneStore(), OneStore()
    other = TableMapping("other", "orders", "orders", fields=(("total", "double"),))
    work = UpsertWork((TableTarget(MAPPING, first), TableTarget(other, second)))
    task = slice_task(work, expecting())
    batches = [records((0, message(1, data="a"))), records((0, message(1, total=2)), topic="orders")]
    assert [outcome.topic for outcome in results(task(batches)) if isinstance(outcome, SliceOutcome)] == [
        "upsert",
        "orders",
    ]
    assert first.store.contents.rows[1].values == (None, "a")
    assert second.store.contents.rows[1].values == (2,)
    assert work.topics == ("upsert", "orders")


def test_a_topic_or_a_pipeline_cannot_be_named_twice_in_one_work() -> None:
    target = TableTarget(MAPPING, OneStore())
    with pytest.raises(ConfigurationError, match="topic 'upsert' is named by 2 tables"):
        UpsertWork((target, target))
    with pytest.raises(ConfigurationError, match="pipeline 'demo' is named by 2 tables"):
        UpsertWork((target, TableTarget(TableMapping("demo", "other", "other"), OneStore())))


@pytest.mark.parametrize("kind", [UnreachableError, RejectedError, GuaranteeError, TransientError])
def test_an_error_in_a_task_arrives_as_itself_with_its_text(kind: type[InorderError]) -> None:
    task = slice_task(work_of(OneStore(error=kind("It broke at 7.", hint="Fix it."))), expecting())
    (error,) = results(task([records((0, message(1, data="a"))), records((1, message(1, data="b")))]))
    assert type(error) is kind
    assert str(error) == "It broke at 7. Fix it."


def test_a_table_that_cannot_be_written_arrives_as_a_partition_that_waits() -> None:
    def fail(_row: StoredRow) -> bool:
        error = ConfigurationError("permission denied for table messages.")
        error.is_of_target = True
        raise error

    stores = OneStore(MemoryTableStore(refuses=fail))
    (error,) = results(slice_task(work_of(stores), expecting())([records((4, message(1, data="a")))]))
    assert isinstance(error, MassRefusalError)
    assert (error.place, stores.store.contents.letters) == (("upsert", 2), {})
    assert "upsert[2] waits at offset 4" in stores.store.waiting["upsert", 2]
    unbraked = UpsertWork((TableTarget(replace(MAPPING, max_refused_share=1.0), stores),))
    (error,) = results(slice_task(unbraked, expecting())([records((4, message(1, data="a")))]))
    assert isinstance(error, ConfigurationError)


def test_slices_after_a_failed_one_are_not_applied() -> None:
    stores = OneStore()
    task = slice_task(work_of(stores), expecting({("upsert", 2): 9}))
    (error,) = results(task([records((9, message(1, data="a"))), records((10, message(1, data="b")))]))
    assert isinstance(error, GuaranteeError)
    assert stores.store.contents.rows == {}


def test_a_task_that_does_not_know_what_to_expect_applies_nothing() -> None:
    stores = OneStore()
    (error,) = results(slice_task(work_of(stores), read_expected)([records((0, message(1, data="a")))]))
    assert isinstance(error, GuaranteeError)
    assert stores.store.contents.rows == {}


def test_a_pointer_moved_back_between_two_slices_of_a_task_is_loud() -> None:
    stores = OneStore()
    batches = [records((0, message(1, data="a"))), records((1, message(1, data="b")))]
    outcomes = slice_task(work_of(stores), expecting())(batches)
    assert results(iter([next(outcomes)])) == [SliceOutcome("upsert", 2, next_offset=1, read=1, applied=1)]
    stores.store.contents.pointers["upsert", 2] = Pointer(0)
    (error,) = results(outcomes)
    assert isinstance(error, GuaranteeError)


def test_two_partitions_in_one_task_are_refused() -> None:
    mixed = pa.Table.from_batches([records((0, b"{}")), records((0, b"{}"), partition=3)]).combine_chunks()
    (error,) = results(slice_task(work_of(OneStore()), expecting())(mixed.to_batches()))
    assert isinstance(error, GuaranteeError)
    assert "[2, 3]" in str(error)


def test_the_outcome_schema_names_every_figure() -> None:
    names = [part.split()[0] for part in OUTCOME_SCHEMA.split(", ")]
    assert names[:-3] == list(SliceOutcome.__dataclass_fields__)
