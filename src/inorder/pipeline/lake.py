"""The job `upsert` with Delta tables: what its tasks return, and how the driver commits a batch (`delta.py` says why).

begin      pointers of the table's last commit, compared with those of the database and of the topic
task       decode, bury what is invalid, fold all records of the partition in this batch; return rows, and at the
           end a text with the figures and the new pointer
commit     run the tasks and keep their rows -> collect the texts -> for each table: look whether others have changed
           it -> MERGE with all pointers -> copy the pointers to the database
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from inorder import gc_tuning
from inorder.engines.measures import MeasureTally
from inorder.engines.slice_task import slice_of
from inorder.engines.slice_work import (
    Pointer,
    Slice,
    SliceOutcome,
    SliceWorker,
    before_end,
    check_order,
    from_offset,
    portions,
)
from inorder.model.errors import ConfigurationError, GuaranteeError, MovedBackError, TransientError
from inorder.model.partitioning import Place
from inorder.pipeline.decoding import Change, Decoded, changes_of, fold, needs_no_key
from inorder.pipeline.delta import (
    RESTORE,
    BatchColumns,
    CommittedPointers,
    LostPointers,
    begin_at,
    encode_metadata,
    path_of,
    replaces_rows,
)
from inorder.pipeline.job import TableTarget, UpsertWork
from inorder.pipeline.stores.delta_table import DeltaTableStore, forget_rows, kept_rows, task_errors
from inorder.pipeline.stores.ports import SliceCounters, TableStore, WriteCounts
from inorder.topics.gate import Ends

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_AT_ONCE: Final = 10_000
"""Rows of one Arrow batch from a task."""

_OUTCOME = "outcome"


@dataclass(frozen=True, slots=True)
class LakeWork(UpsertWork):
    """Several Delta tables in one application; only the engine `micro-batch` runs it."""

    ends: Ends = ()
    optimize_seconds: float | None = None

    def bounded(self, ends: Ends) -> LakeWork:
        return replace(self, ends=ends)

    def open(self) -> SliceWorker:
        raise ConfigurationError(
            f"Tables of {self.name} are Delta tables, which only the job `upsert` with the engine micro-batch writes.",
            hint="Run `inorder pipeline run upsert`.",
        )

    def on(self, spark: SparkSession) -> LakeSink:
        return LakeSink(self, spark)


# In the tasks.


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """What a task knows about the partitions; built by the driver at the start of a query."""

    targets: tuple[TableTarget, ...]
    pointers: Mapping[Place, Pointer]
    partitions: Mapping[str, int]
    """How many each topic has."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for `mapInArrow`."""
        gc_tuning.relax()
        gc_tuning.freeze_once()
        slices = chain.from_iterable(portions(slice_of(records)) for records in batches if records.num_rows)
        first = next(slices, None)
        if first is not None:
            yield from _Folding(self, first).run(chain([first], slices))


class _Folding:
    """Folds the records of one partition in one batch."""

    def __init__(self, plan: FoldPlan, first: Slice) -> None:
        self._plan = plan
        self._place = first.topic, first.partition
        topics = [target.mapping.topic for target in plan.targets]
        self._index = topics.index(first.topic)
        self._target = plan.targets[self._index]
        self._pointer = plan.pointers[self._place]
        self._decoded = Decoded([], [], 0)
        self._read = self._records = self._rejected = 0
        self._next_offset = self._pointer.next_offset
        self._tally = MeasureTally()
        self._ledger: TableStore | None = None

    def run(self, slices: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
        try:
            rows = fold(self._changes(slices), self._target.mapping.mode)
        finally:
            if self._ledger is not None:
                self._ledger.close()
        columns, structs = BatchColumns(self._target.mapping), [BatchColumns(t.mapping) for t in self._plan.targets]
        for at in range(0, len(rows), ROWS_AT_ONCE):
            some = columns.encode(rows[at : at + ROWS_AT_ONCE], self._pointer.generation)
            yield _batch(structs, len(some), None, self._index, some)
        yield _batch(structs, 1, self._text(sum(row.records for row in rows)))

    def _changes(self, slices: Iterable[Slice]) -> Iterator[Change]:
        mapping, decoded = self._target.mapping, self._decoded
        needs_key = needs_no_key if mapping.keyless == "apply" else self._has_several
        for batch in slices:
            self._check(batch)
            self._read += len(batch)
            new = from_offset(before_end(batch, self._pointer.end), self._next_offset)
            yield from changes_of(mapping, new, 0, needs_key, decoded)
            self._records += len(new)
            self._next_offset = max(self._next_offset, new.next_offset)
            self._bury()

    def _has_several(self) -> bool:
        return self._place[1] > 0 or self._plan.partitions[self._place[0]] > 1

    def _check(self, batch: Slice) -> None:
        check_order(batch)
        if (batch.topic, batch.partition) != self._place:
            raise GuaranteeError(
                f"A task has records of {self._place} and of {batch.topic}[{batch.partition}].",
                hint="Remove any shuffle or repartition between Kafka and the table.",
            )

    def _bury(self) -> None:
        """Stores dead letters; those of a batch that is not committed are found there by the next attempt."""
        letters = self._decoded.letters
        if not letters:
            return
        if self._ledger is None:
            self._ledger = self._target.stores()
        with self._ledger.slice_transaction(*self._place) as transaction:
            transaction.lock_pointer()
            transaction.bury(letters)
        for letter in letters:
            self._tally.add(f"refused/{letter.code}")
        self._rejected += len(letters)
        letters.clear()

    def _text(self, applied: int) -> str:
        self._tally.add_labels("unknown", self._decoded.unknown)
        outcome = SliceOutcome(
            *self._place,
            next_offset=self._next_offset,
            read=self._read,
            applied=applied,
            ignored=self._records - applied - self._rejected,
            rejected=self._rejected,
            replayed=self._read - self._records,
            measures=self._tally.take(),
        )
        return orjson.dumps({"outcome": asdict(outcome), "unknown": self._decoded.unknown}).decode()


def _batch(
    structs: Sequence[BatchColumns], count: int, text: str | None, index: int | None = None, rows: Any = None
) -> pa.RecordBatch:
    """Rows of one table, or the text at the end; the columns of all others are null."""
    columns = {_OUTCOME: pa.array([text] * count, pa.string())}
    for at, each in enumerate(structs):
        columns[f"t{at}"] = rows if at == index else pa.nulls(count, each.arrow_type)
    return pa.RecordBatch.from_pydict(columns)


# In the driver.


@dataclass(frozen=True, slots=True)
class FoldedPart:
    """What a task says about its partition."""

    outcome: SliceOutcome
    unknown: Mapping[str, int]


@dataclass(slots=True)
class _Table:
    """A Delta table with what the driver knows of it."""

    target: TableTarget
    store: DeltaTableStore
    ledger: TableStore
    number: int = 0
    version: int = -1
    """Up to this one the history was looked at."""
    pointers: dict[str, dict[int, Pointer]] = field(default_factory=dict)
    optimized_at: float = field(default_factory=time.monotonic)


class LakeSink:
    """A `BatchSink` and its own worker: both are used by the driver only."""

    def __init__(self, work: LakeWork, spark: SparkSession) -> None:
        self._work = work
        self._spark = spark
        self._tables = {
            target.mapping.topic: _Table(target, DeltaTableStore(spark, target.mapping), target.stores())
            for target in work.targets
        }
        self._seen: dict[Place, tuple[int, int]] = {}
        """The highest pointers that were committed in this run, each with its generation."""
        self._moved_back: list[MovedBackError] = []

    @property
    def name(self) -> str:
        return self._work.name

    @property
    def topics(self) -> tuple[str, ...]:
        return self._work.topics

    @property
    def needs_headers(self) -> bool:
        return False

    @property
    def schema(self) -> str:
        structs = (f"t{at} {BatchColumns(each.mapping).struct}" for at, each in enumerate(self._work.targets))
        return ", ".join([f"{_OUTCOME} STRING", *structs])

    def open(self) -> SliceWorker:
        return self

    def close(self) -> None:
        for table in self._tables.values():
            table.ledger.close()

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return self._tables[topic].pointers.get(topic, {})

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        raise NotImplementedError("The driver commits whole batches.")

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        """Reads where the table is, and copies that to the database."""
        table = self._tables[topic]
        mapping = table.target.mapping
        table.store.install()
        ledger = table.ledger.begin(topic, topic_id, firsts)
        number = table.store.number()
        # The version first: what comes in between is looked at before the first commit.
        table.version = table.store.version()
        found = table.store.find_pointers(number)
        table.number = number or 0
        newest = table.store.newest_generation() if isinstance(found, LostPointers) else 0
        begun = begin_at(mapping, topic, found, ledger, firsts, newest)
        known = found.pointers if isinstance(found, CommittedPointers) else {}
        table.pointers = {**{name: dict(some) for name, some in known.items()}, topic: begun}
        for partition, pointer in begun.items():
            self._compare(mapping.pipeline, (topic, partition), pointer)
            if pointer.next_offset != ledger[partition].next_offset:
                self._copy(table, topic, partition, pointer.next_offset)
        return begun

    def moved_back(self) -> Sequence[MovedBackError]:
        found, self._moved_back = self._moved_back, []
        return found

    def task(self) -> Callable[[Iterable[Any]], Iterator[Any]]:
        ends = dict(self._work.ends)
        pointers = {
            (topic, number): _bounded(one, number, ends.get(topic))
            for topic, table in self._tables.items()
            for number, one in table.pointers.get(topic, {}).items()
        }
        partitions = {topic: len(table.pointers.get(topic, {})) for topic, table in self._tables.items()}
        return FoldPlan(self._work.targets, pointers, partitions).run

    def commit(self, batch: DataFrame) -> Iterator[SliceOutcome]:
        with task_errors():
            rows = kept_rows(batch)
        try:
            with task_errors():
                texts = rows.where(f"{_OUTCOME} IS NOT NULL").select(_OUTCOME)._jdf.collectAsList()
            parts = [_part(row.getString(0)) for row in texts]
            for at, (topic, table) in enumerate(self._tables.items()):
                # A part without new records has the pointer of the query's start, which later commits have passed.
                new = (part for part in parts if part.outcome.replayed < part.outcome.read)
                some = [part for part in new if part.outcome.topic == topic]
                if some:
                    with task_errors():
                        self._commit_table(table, rows.where(f"t{at} IS NOT NULL").select(f"t{at}.*"), some)
                    yield from (part.outcome for part in some)
                    self._optimize(table)
        finally:
            forget_rows(rows)

    def _commit_table(self, table: _Table, rows: DataFrame, parts: Sequence[FoldedPart]) -> None:
        topic, pipeline = parts[0].outcome.topic, table.target.mapping.pipeline
        base = self._look(table)
        moved = {
            part.outcome.partition: _advance(table.pointers[topic][part.outcome.partition], part.outcome.next_offset)
            for part in parts
        }
        pointers = {**table.pointers, topic: {**table.pointers[topic], **moved}}
        number = table.number + 1
        metadata = encode_metadata(pipeline, CommittedPointers(number, base, pointers))
        table.store.merge(rows, number, metadata, unique=len(parts) == 1)
        table.number, table.pointers = number, pointers
        if table.store.version() == base + 1:
            table.version = base + 1
        for part in parts:
            partition = part.outcome.partition
            pointer = moved[partition]
            self._seen[topic, partition] = pointer.generation, pointer.next_offset
            self._copy(table, topic, partition, pointer.next_offset, part)

    def _look(self, table: _Table) -> int:
        """The version of the table, after a look at what others have committed."""
        version = table.store.version()
        if version != table.version:
            for commit in table.store.commits_between(table.version, version):
                if commit.operation == RESTORE or replaces_rows(commit):
                    raise TransientError(
                        f"The Delta table {path_of(table.target.mapping)} was changed by {commit.operation} in version"
                        f" {commit.version}.",
                        hint="The pointers are read again.",
                    )
            table.version = version
        return version

    def _copy(
        self, table: _Table, topic: str, partition: int, next_offset: int, part: FoldedPart | None = None
    ) -> None:
        """Writes a pointer to the database, for status and gate; the one of the table is authoritative."""
        counters = SliceCounters()
        if part is not None:
            outcome = part.outcome
            counters = SliceCounters(WriteCounts(outcome.applied), outcome.ignored, outcome.rejected)
        with table.ledger.slice_transaction(topic, partition) as transaction:
            transaction.lock_pointer()
            if part is not None and part.unknown:
                transaction.note_unknown(part.unknown)
            transaction.move_pointer(next_offset, counters)

    def _compare(self, pipeline: str, place: Place, found: Pointer) -> None:
        """Notes a pointer that went back, and forgets where it was: that is for the engine to decide, once."""
        seen = self._seen.get(place, (0, 0))
        if (found.generation, found.next_offset) < seen:
            del self._seen[place]
            error = MovedBackError(
                f"The pointer of {place[0]}[{place[1]}] in pipeline {pipeline!r} is at {found.next_offset}, but"
                f" {seen[1]} was committed before: the Delta table went back.",
                hint="Make sure that this is intended, then run `inorder pipeline run upsert` again: it replays from"
                ' the pointer. With `pipeline.on_moved_back = "replay"` a running job does so by itself.',
            )
            error.place = place
            self._moved_back.append(error)

    def _optimize(self, table: _Table) -> None:
        seconds = self._work.optimize_seconds
        if seconds is not None and time.monotonic() > table.optimized_at + seconds:
            table.optimized_at = time.monotonic()
            with suppress(TransientError):  # the next one does it
                table.store.optimize()


def _advance(pointer: Pointer, next_offset: int) -> Pointer:
    """The pointer at a later offset; it never goes back."""
    return replace(pointer, next_offset=max(pointer.next_offset, next_offset))


def _bounded(pointer: Pointer, partition: int, ends: Sequence[int] | None) -> Pointer:
    """The pointer with the end of its generation; a partition that was added later holds nothing of it."""
    if ends is None:
        return pointer
    return replace(pointer, end=ends[partition] if partition < len(ends) else 0)


def _part(text: str) -> FoldedPart:
    found = orjson.loads(text)
    return FoldedPart(SliceOutcome(**found["outcome"]), found["unknown"])
