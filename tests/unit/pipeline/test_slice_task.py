"""What runs inside a Spark task, and where a start begins: without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyspark.sql import Row

from inorder.model.errors import GuaranteeError, InorderError, RejectedError, TransientError, UnreachableError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import Slice, SliceOutcome
from inorder.ports.table_store import Pointer, TableStore
from inorder.spark.slice_task import OUTCOME_SCHEMA, outcome_of, slice_of, slice_task
from inorder.spark.topic import Extent, check_reachable, starting_offsets
from inorder.testing.memory_table_store import MemoryTableStore
from inorder.testing.slices import message

MAPPING = TableMapping("demo", "upsert", "messages")


@dataclass(frozen=True)
class OneStore:
    """Opens the same store each time, or fails as told."""

    store: MemoryTableStore = field(default_factory=MemoryTableStore)
    error: InorderError | None = None

    def __call__(self) -> TableStore:
        if self.error is not None:
            raise self.error
        return self.store


def records(*rows: tuple[int, bytes | None], partition: int = 2) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([partition] * len(rows), pa.int32()),
            "offset": pa.array([offset for offset, _ in rows], pa.int64()),
            "key": pa.array([None] * len(rows), pa.binary()),
            "value": pa.array([value for _, value in rows], pa.binary()),
            "timestamp": pa.array([7_000_001] * len(rows), pa.timestamp("us", tz="UTC")),
        }
    )


def results(batches: Iterator[pa.RecordBatch]) -> list[SliceOutcome | InorderError]:
    return [outcome_of(Row(**row)) for batch in batches for row in batch.to_pylist()]


def test_each_arrow_batch_is_a_slice_with_its_own_outcome() -> None:
    stores = OneStore()
    task = slice_task(stores, MAPPING, {2: 0})
    batches = [records((0, message(1, data="a")), (1, b"?")), records(), records((4, message(1, data="b")))]
    assert results(task(batches)) == [
        SliceOutcome("upsert", 2, next_offset=2, read=2, applied=1, rejected=1),
        SliceOutcome("upsert", 2, next_offset=5, read=1, applied=1),
    ]
    assert stores.store.contents.rows[1].values == (None, "b")


def test_an_arrow_batch_keeps_bytes_nulls_and_microseconds() -> None:
    assert slice_of("upsert", records((3, b"\x00"), (5, None))) == Slice(
        "upsert", 2, [3, 5], [None, None], [b"\x00", None], [7_000_001, 7_000_001]
    )
    assert slice_of("upsert", records((3, b"a"), (5, b"b"))).values == [b"a", b"b"]


@pytest.mark.parametrize("kind", [UnreachableError, RejectedError, GuaranteeError, TransientError])
def test_an_error_in_a_task_arrives_as_itself_with_its_text(kind: type[InorderError]) -> None:
    task = slice_task(OneStore(error=kind("It broke at 7.", hint="Mend it.")), MAPPING, {})
    (error,) = results(task([records((0, message(1, data="a"))), records((1, message(1, data="b")))]))
    assert type(error) is kind
    assert str(error) == "It broke at 7. Mend it."


def test_slices_after_a_failed_one_are_not_applied() -> None:
    stores = OneStore()
    task = slice_task(stores, MAPPING, {2: 9})
    (error,) = results(task([records((9, message(1, data="a"))), records((10, message(1, data="b")))]))
    assert isinstance(error, GuaranteeError)
    assert stores.store.contents.rows == {}


def test_a_pointer_moved_back_between_two_slices_of_a_task_is_loud() -> None:
    stores = OneStore()
    batches = [records((0, message(1, data="a"))), records((1, message(1, data="b")))]
    outcomes = slice_task(stores, MAPPING, {})(batches)
    assert results(iter([next(outcomes)])) == [SliceOutcome("upsert", 2, next_offset=1, read=1, applied=1)]
    stores.store.contents.pointers["upsert", 2] = Pointer(0)
    (error,) = results(outcomes)
    assert isinstance(error, GuaranteeError)


def test_two_partitions_in_one_task_are_refused() -> None:
    mixed = pa.Table.from_batches([records((0, b"{}")), records((0, b"{}"), partition=3)]).combine_chunks()
    (error,) = results(slice_task(OneStore(), MAPPING, {})(mixed.to_batches()))
    assert isinstance(error, GuaranteeError)
    assert "[2, 3]" in str(error)


def test_the_outcome_schema_names_every_figure() -> None:
    names = [part.split()[0] for part in OUTCOME_SCHEMA.split(", ")]
    assert names[:-3] == list(SliceOutcome.__dataclass_fields__)


def test_a_start_goes_on_at_the_pointers_and_takes_new_partitions_from_their_beginning() -> None:
    extents = {0: Extent(0, 10), 1: Extent(5, 9), 2: Extent(0, 0)}
    assert starting_offsets({0: Pointer(4), 1: Pointer(9)}, extents) == {"0": 4, "1": 9, "2": -2}


@pytest.mark.parametrize(
    ("pointer", "extent", "told"),
    [
        (Pointer(4), Extent(5, 9), "begins at 5: records were deleted"),
        (Pointer(10), Extent(0, 9), "ends at 9: it was deleted and made again"),
        (Pointer(10), None, "does not exist"),
    ],
)
def test_a_pointer_that_the_topic_cannot_serve_is_loud(pointer: Pointer, extent: Extent | None, told: str) -> None:
    extents = {} if extent is None else {3: extent}
    with pytest.raises(GuaranteeError, match=told) as caught:
        check_reachable("upsert", {3: pointer}, extents)
    assert f"upsert[3] is at {pointer.next_offset}" in caught.value.message


@pytest.mark.parametrize("at", [5, 7, 9])
def test_a_pointer_within_the_topic_is_fine(at: int) -> None:
    check_reachable("upsert", {3: Pointer(at)}, {3: Extent(5, 9), 4: Extent(0, 1)})
