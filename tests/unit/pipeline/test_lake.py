"""How the driver commits the batches of Delta tables: what it writes into the table and into the database."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyspark.sql import DataFrame, SparkSession

from inorder.engines.faults import OnMovedBack, PartitionFaults
from inorder.engines.micro_batch import MicroBatch, _Attempt
from inorder.engines.progress import NULL_LISTENER
from inorder.engines.slice_work import Pointer, SliceOutcome, TopicSource
from inorder.model.errors import MovedBackError
from inorder.model.partitioning import Extent
from inorder.pipeline import lake
from inorder.pipeline.delta import CommittedPointers, NoPointers, decode_metadata
from inorder.pipeline.job import TableTarget
from inorder.pipeline.lake import LakeSink, LakeWork
from inorder.pipeline.mapping import TableMapping
from tests.fakes.table_store import MemoryTableStore, message

MAPPING = TableMapping("upsert:messages", "t", "messages", target="delta:/lake/messages")


class MemoryDeltaStore:
    """The log of a Delta table without its rows."""

    def __init__(self) -> None:
        self.commits: list[CommittedPointers] = []
        self.has_unique_keys = False

    def install(self) -> None:
        """There is no table to create."""

    def version(self) -> int:
        return len(self.commits)

    def number(self) -> int | None:
        return self.commits[-1].number if self.commits else None

    def find_pointers(self, _number: int | None) -> CommittedPointers | NoPointers:
        return self.commits[-1] if self.commits else NoPointers()

    def merge(self, _rows: object, _number: int, metadata: str, *, unique: bool) -> None:
        self.has_unique_keys = unique
        committed = decode_metadata(MAPPING.pipeline, metadata)
        assert committed is not None
        self.commits.append(committed)


class Batch:
    """The rows of a micro-batch, as far as the sink reads them: the texts of its tasks."""

    def __init__(self, texts: Iterable[str]) -> None:
        rows = [SimpleNamespace(getString=lambda _, text=text: text) for text in texts]
        self._jdf = SimpleNamespace(collectAsList=lambda: rows)

    def where(self, _condition: str) -> Batch:
        return self

    select = where


def records(partition: int, *offsets: int) -> pa.RecordBatch:
    count = len(offsets)
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * count,
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": list(offsets),
            "key": pa.array([b"%d" % partition] * count, pa.binary()),
            "value": pa.array([message(partition, data=str(offset)) for offset in offsets], pa.binary()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        }
    )


class World:
    """A sink of one table with two partitions, and what it has written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table, self.database = MemoryDeltaStore(), MemoryTableStore()
        monkeypatch.setattr(lake, "DeltaTableStore", lambda _spark, _mapping: self.table)
        monkeypatch.setattr(lake, "kept_rows", lambda batch: batch)
        monkeypatch.setattr(lake, "forget_rows", lambda _rows: None)

    def work(self, **options: Any) -> LakeWork:
        return LakeWork((TableTarget(MAPPING, cast("Any", lambda: self.database)),), **options)

    def sink(self, **options: Any) -> LakeSink:
        return LakeSink(self.work(**options), cast("SparkSession", None))

    def pointers(self) -> tuple[dict[int, int], dict[int, int]]:
        """Those of the table and of the database."""
        committed, copied = self.table.commits[-1].pointers["t"], self.database.pointers("t")
        return _offsets(committed), _offsets(copied)


def _offsets(pointers: Any) -> dict[int, int]:
    return {partition: cast("Pointer", one).next_offset for partition, one in pointers.items()}


def commit(sink: LakeSink, task: Any, *parts: pa.RecordBatch) -> list[SliceOutcome]:
    """Commits a batch that has these records, each partition in a task of its own."""
    found = [text for part in parts for rows in task([part]) for text in rows.column("outcome").to_pylist()]
    return list(sink.commit(cast("DataFrame", Batch(text for text in found if text is not None))))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_pointer_at_the_end_of_its_generation_stays_there_when_records_behind_the_end_arrive(world: World) -> None:
    sink = world.sink(ends=(("t", (3, 5)),))
    sink.begin("t", "id", {0: 0, 1: 0})
    task = sink.task()  # built once for all batches of a query, with the pointers of its start
    commit(sink, task, records(0, 0, 1, 2), records(1, 0))
    assert world.pointers() == ({0: 3, 1: 1}, {0: 3, 1: 1})
    outcomes = commit(sink, task, records(0, 3, 4), records(1, 1, 2, 3, 4))
    assert world.pointers() == ({0: 3, 1: 5}, {0: 3, 1: 5})
    assert [(one.partition, one.next_offset) for one in outcomes] == [(1, 5)]
    assert world.table.has_unique_keys, "of one partition"


def test_a_batch_with_nothing_but_records_behind_the_ends_writes_nothing(world: World) -> None:
    sink = world.sink(ends=(("t", (3, 1)),))
    sink.begin("t", "id", {0: 0, 1: 0})
    task = sink.task()
    commit(sink, task, records(0, 0, 1, 2), records(1, 0))
    assert commit(sink, task, records(0, 3), records(1, 1)) == []
    assert len(world.table.commits) == 1


def test_a_pointer_does_not_fall_when_a_batch_comes_again(world: World) -> None:
    sink = world.sink()
    sink.begin("t", "id", {0: 0, 1: 0})
    task = sink.task()
    commit(sink, task, records(0, 0, 1, 2))
    commit(sink, task, records(0, 0, 1), records(1, 0))
    assert world.pointers() == ({0: 3, 1: 1}, {0: 3, 1: 1})


# A table that was restored to an earlier version.


class Source:
    """A topic with two partitions that holds all of its records."""

    def topic_id(self, _topic: str) -> str:
        return "id"

    def extents(self, _topic: str) -> dict[int, Extent]:
        return {0: Extent(0, 10), 1: Extent(0, 10)}


class Run:
    """A run of the engine as far as its starts: what it reads, and what it commits."""

    def __init__(self, world: World, on_moved_back: OnMovedBack) -> None:
        self.faults = PartitionFaults("upsert", on_moved_back, NULL_LISTENER)
        source = cast("TopicSource", Source())
        self._engine = MicroBatch(cast("Any", None), world.work(), source, {}, on_moved_back=on_moved_back)
        self._sink = cast("LakeSink", self._engine._sink)

    def start(self) -> dict[int, int]:
        """The partitions that are read now, and from where."""
        found = self._engine._where_to_start(_Attempt(self.faults, NULL_LISTENER))
        return {partition: found.pointers["t", partition] for _, partition in found.places}

    def commit(self, *parts: pa.RecordBatch) -> None:
        commit(self._sink, self._sink.task(), *parts)


def restored(world: World, on_moved_back: OnMovedBack) -> Run:
    """A run whose table lost the last commit, which had records of partition 0."""
    run = Run(world, on_moved_back)
    assert run.start() == {0: 0, 1: 0}
    run.commit(records(0, 0), records(1, 0, 1))
    run.commit(records(0, 1, 2))
    del world.table.commits[-1]
    return run


def test_only_the_partitions_that_went_back_stop_when_a_table_was_restored(world: World) -> None:
    run = restored(world, "stop")
    assert run.start() == {1: 2}
    [(place, error)] = run.faults.stopped.items()
    assert (place, type(error), error.place) == (("t", 0), MovedBackError, ("t", 0))
    run.commit(records(1, 2))
    assert world.pointers() == ({0: 1, 1: 3}, {0: 1, 1: 3}), "rows and pointers of both are of one version"
    assert run.start() == {1: 3}, "for the rest of the run"


def test_a_table_that_was_restored_is_replayed_where_the_settings_say_so(world: World) -> None:
    run = restored(world, "replay")
    assert run.start() == {0: 1, 1: 2}
    assert not run.faults.stopped
    run.commit(records(0, 1, 2, 3))
    assert world.pointers() == ({0: 4, 1: 2}, {0: 4, 1: 2})
    assert run.start() == {0: 4, 1: 2}
