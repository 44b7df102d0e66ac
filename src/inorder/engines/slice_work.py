"""The contract between engines and the work they run: slices of Kafka partitions in, outcomes out.

A *slice* is a run of records of one partition in offset order. The work (a table pipeline, the replication of journals)
applies it in one transaction that also moves the pointer of the partition. An engine only reads slices, passes them to
the work and reports outcomes; it knows nothing about tables.
"""

from __future__ import annotations

import logging
import random
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from operator import lt
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from inorder.engines.measures import MeasureTally
from inorder.model.errors import (
    GuaranteeError,
    LockConflictError,
    MassRefusalError,
    MovedBackError,
    OtherTopicError,
    TransientError,
    UnknownOutcomeError,
)
from inorder.model.message import RecordHeaders
from inorder.model.partitioning import Extent, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("inorder.pipeline")

PORTION_BYTES: Final = 8 * 1024 * 1024
"""The size of one transaction: it bounds the memory of a task, as the decoded values are held until the commit."""

STALE_KEYS: Final = 20
"""How many keys of stale records an outcome names: after a replay there may be as many as rows."""

PATIENCE_SECONDS: Final = 1.0
"""A work that refuses a few records may make their partition wait until none has arrived for so long."""

NO_EPOCHS: Final[Mapping[Place, int]] = {}

Measures: TypeAlias = Mapping[str, int]
"""Counters by name, which can be summed (`measures.py`)."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Records of one partition in offset order, as columns of equal length."""

    topic: str
    partition: int
    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int | None]
    """Kafka's record timestamps in microseconds since 1970; only dead letters carry them."""
    headers: Sequence[RecordHeaders] = ()
    """Empty unless the work needs them."""
    topic_id: str | None = None
    """Kafka's id of the topic, which another one of the same name does not have; None where it is unknown."""
    leader_epoch: int | None = None
    """Of the last record; None where the client does not report it."""
    waited_seconds: float = 0.0
    """How long the partition waits with refused records and none arrived; infinite where it is not to wait longer."""
    is_held: bool = False
    """The partition waits, and these are its next records, which are tried again."""

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def next_offset(self) -> int:
        """The pointer after this slice."""
        return self.offsets[-1] + 1 if self.offsets else 0

    def __str__(self) -> str:
        span = f"{self.offsets[0]} to {self.offsets[-1]}" if self.offsets else "none"
        return f"{self.topic}[{self.partition}] offsets {span}"


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """What became of the records of a slice; `read` is the sum of the counts below it."""

    topic: str
    partition: int
    next_offset: int
    read: int
    applied: int = 0
    identical: int = 0
    stale: int = 0
    ignored: int = 0
    rejected: int = 0
    replayed: int = 0
    stale_keys: Sequence[str] = field(default=(), compare=False)
    """Which rows the stale records would have written; the first `STALE_KEYS` of them."""
    measures: Measures = field(default_factory=dict, compare=False)
    """What else the work measured; few names, however large the slice."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The authority on how far a partition is applied: all records below `next_offset` are in the table."""

    next_offset: int = 0
    generation: int = 0
    topic_id: str | None = None
    """The incarnation of the topic that the offsets belong to; None until one was seen."""
    end: int | None = None
    """The offset after the last record of a closed generation; no record at or above it is applied."""
    leader_epoch: int | None = None
    """Of the record before `next_offset`, if it is known: a log that was truncated below it is detected."""
    partitions: int | None = None
    """How many partitions the topic may have, where the work depends on it."""
    reset_command: str = "inorder pipeline reset"
    """The command with which an operator accepts what has become of the topic; its name follows."""


class SliceWorker(Protocol):
    """An opened work: it keeps its connections from slice to slice. Used by one thread at a time."""

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        """The committed pointers of a topic, by partition: where reading begins."""

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        """Creates the missing pointers of a topic, each at the first offset of its partition, and returns all of them.

        A pointer without a topic id gets this one; one with another id stays as it is, and the caller compares. So a
        partition has a pointer before its first record is read, and records that retention removes are missed.
        """

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        """Applies what is new in a slice and returns once it is known to be committed.

        `expected` is the last pointer that was seen committed (0: none). Raises `TransientError` when the environment
        failed (the slice may be applied again), among them `MassRefusalError` where this partition is to wait and the
        others go on, `GuaranteeError` when the pointer moved back or the slice is out of
        order, `RejectedError` when the records cannot be applied.
        """

    def close(self) -> None:
        """Closes the connections; the worker may be used again afterwards."""


class SliceWork(Protocol):
    """A pipeline as engines see it.

    It is pickled to Spark's workers and is a key of their caches. Equal works must open equal workers, so make it a
    frozen dataclass.
    """

    @property
    def name(self) -> str:
        """The name of the pipeline, for logs."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to read, all partitions of each."""

    @property
    def needs_headers(self) -> bool:
        """Whether to fill `Slice.headers`, which costs time."""

    def open(self) -> SliceWorker:
        """Opens a worker in the process that calls it; may raise what `SliceWorker.apply` raises."""

    def __hash__(self) -> int: ...


# Works whose batches the driver commits: where a table has no transaction that a task could commit (a lakehouse), the
# tasks of a micro-batch only prepare rows, and the driver writes those of all partitions at once, with the pointers.


class BatchSink(SliceWork, Protocol):
    """Such a work on one session of Spark, as the `micro-batch` engine uses it; its workers apply no slices."""

    @property
    def schema(self) -> str:
        """Of the rows that `task` returns, as Spark's DDL."""

    def moved_back(self) -> Sequence[MovedBackError]:
        """The partitions whose pointers `begin` found below those that were committed in this run; each is named once.

        Whether such a partition is read on is the engine's decision. Either is safe: a commit has the pointers of all
        partitions beside their rows.
        """

    def task(self) -> Callable[[Iterable[Any]], Iterator[Any]]:
        """The function for `mapInArrow`, built once the pointers were begun.

        It raises its errors: the same rows may be computed a second time, and must not be missing without a word.
        """

    def commit(self, batch: DataFrame) -> Iterator[SliceOutcome]:
        """Writes the rows of a batch, table by table, and yields the outcomes of each once it is committed."""

    def close(self) -> None:
        """Closes the connections; the sink may be used again afterwards."""


@runtime_checkable
class DriverCommitted(Protocol):
    """A work whose batches the driver commits."""

    def on(self, spark: SparkSession) -> BatchSink:
        """The same work on a session."""


# What engines need from Kafka: the partitions of a topic, what they hold, and their records as slices.


class Reading(NamedTuple):
    """The result of one read."""

    slices: list[Slice]
    """In offset order within each partition; the offsets of one partition rise from read to read."""
    ended: frozenset[Place]
    """Partitions whose end was reached, after all slices; only filled by readers opened with `reports_ends`."""


class PartitionReader(Protocol):
    """Reads committed records of some partitions. Used by one thread."""

    def read(self, most: int, seconds: float) -> Reading:
        """Waits at most `seconds` for the first record, then returns what is there, at most `most` records.

        Waits while the broker is away. Raises `TransientError` where the partitions must be opened again,
        `GuaranteeError` where the next record is no longer in the topic.
        """

    def close(self) -> None: ...


class TopicSource(Protocol):
    """A Kafka cluster; it is pickled to Spark's workers."""

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        """The partitions of a topic, or None if it does not exist. Raises `UnreachableError`."""

    def partitions(self, topic: str) -> int | None:
        """The number of partitions of a topic, or None if it does not exist. Raises `UnreachableError`."""

    def topic_id(self, topic: str) -> str | None:
        """Kafka's id of a topic, or None if it does not exist or the cluster has no ids. Raises `UnreachableError`."""

    def open(
        self,
        starts: Mapping[Place, int | None],
        *,
        headers: bool = False,
        reports_ends: bool = False,
        epochs: Mapping[Place, int] = NO_EPOCHS,
    ) -> PartitionReader:
        """Opens a reader of each partition from an offset on, or from its first record if that is None.

        `epochs` are the leader epochs of the records before the starts, where they are known.
        """


# What a worker decides before it writes.


@dataclass(frozen=True, slots=True)
class Skip:
    """All of the slice is applied already."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Records at and above `from_offset` are new."""

    from_offset: int


@dataclass(frozen=True, slots=True)
class MovedBack:
    """The pointer is lower than one that was seen committed."""


Plan: TypeAlias = Skip | Apply | MovedBack


def plan(pointer: int, expected: int, batch: Slice) -> Plan:
    """Decides what to do with a slice, given the locked pointer and the last one seen committed (0: none)."""
    if pointer < expected:
        return MovedBack()
    if not batch.offsets or batch.next_offset <= pointer:
        return Skip()
    return Apply(max(pointer, batch.offsets[0]))


def before_end(batch: Slice, end: int | None) -> Slice:
    """The part of a slice before the end of its generation; perhaps empty."""
    count = len(batch) if end is None else bisect_left(batch.offsets, end)
    return batch if count == len(batch) else _piece(batch, slice(0, count))


def check_topic(batch: Slice, topic_id: str | None) -> None:
    """Refuses a slice of another topic than the pointer belongs to, although it has the same name."""
    if batch.topic_id is not None and topic_id is not None and batch.topic_id != topic_id:
        raise other_topic(batch.topic, topic_id, batch.topic_id)


def other_topic(topic: str, applied: str, found: str, reset_command: str = "inorder pipeline reset") -> OtherTopicError:
    return OtherTopicError(
        f"Topic {topic!r} was deleted and re-created: records of the topic with id {applied} were applied, and it now"
        f" has id {found}.",
        hint=f"Stop the job and run `{reset_command} {topic}`: the new topic then counts as newer than all that was"
        " applied.",
    )


def more_partitions(topic: str, before: int, found: int, reset_command: str) -> OtherTopicError:
    return OtherTopicError(
        f"Topic {topic!r} has {found} partitions, and had {before} when its records were applied: the same keys are now"
        " in other partitions.",
        hint=f"Stop all writers, wait until everything is applied, then run `{reset_command} {topic}`.",
    )


def check_order(batch: Slice) -> None:
    """Refuses a slice whose offsets do not rise: an engine or a transformation has shuffled it."""
    if all(map(lt, batch.offsets, islice(batch.offsets, 1, None))):
        return
    for before, after in pairwise(batch.offsets):
        if after <= before:
            raise GuaranteeError(
                f"Out of order: offset {after} came after {before} in {batch.topic}[{batch.partition}].",
                hint="Remove any shuffle, repartition or minPartitions between Kafka and the table.",
            )


def apply_at(worker: SliceWorker, batch: Slice, expected: int) -> SliceOutcome:
    """Applies and measures a slice; a violated guarantee says which partition it concerns, so that the others go on."""
    began = time.monotonic()
    try:
        outcome = worker.apply(batch, expected)
    except (GuaranteeError, MassRefusalError) as error:
        error.place = batch.topic, batch.partition
        raise
    tally = MeasureTally()
    tally.took("slice", round((time.monotonic() - began) * 1_000_000))
    tally.had("slice_records", len(batch))
    return replace(outcome, measures=add_measures(outcome.measures, tally.take()))


# A COMMIT whose answer is lost.

COMMIT_ATTEMPTS: Final = 3

Transaction = TypeVar("Transaction")
Result = TypeVar("Result")


def settle_commit(
    begin: Callable[[], AbstractContextManager[Transaction]],
    write: Callable[[Transaction, Result | None], Result],
    combine: Callable[[Result, Result], Result],
    *,
    what: str,
    hint: str,
    retry_on: tuple[type[TransientError], ...] = (),
) -> Result:
    """Runs a transaction until it is known whether it is committed, and returns what it did.

    A connection can break after COMMIT was sent and before its answer arrives. The client cannot tell whether the
    server committed. It neither gives up, which would report applied records as failed, nor assumes success, which
    would lose records. It runs the same transaction again on a new connection.

    **What is authoritative.** What the transaction itself wrote: the pointer row of a slice, the row of a dead letter.
    `write` reads it under its lock first. The lock waits until the server has ended the old session, so the second
    attempt sees its fate: a moved pointer means that it is committed and nothing is left to do, an unmoved one means
    that it was rolled back and everything is to do.

    **What the caller gets.** `write` receives the result of the attempt whose answer was lost, or None. Where that
    attempt turns out to be committed, the second one has nothing to report, and the figures of the first are the true
    ones: `combine(lost, now)` chooses. These figures are hints, as two processes may have applied the same slice.

    **How often.** `COMMIT_ATTEMPTS` times, because each loss means a broken connection and the engine has its own
    pauses. Then it raises `UnknownOutcomeError`: the slice is read again from the pointer, which is always safe.

    An error of `retry_on` is a known failure that another attempt resolves, such as a compare-and-set that found the
    pointer moved. Every other error propagates at once: nothing is committed.
    """
    lost: Result | None = None
    failure: TransientError | None = None
    for _ in range(COMMIT_ATTEMPTS):
        result: Result | None = None
        try:
            with begin() as transaction:
                result = write(transaction, lost)
        except UnknownOutcomeError as error:
            failure = error
            if result is not None:
                lost = result if lost is None else combine(lost, result)
        except retry_on as error:
            failure = error
        else:
            return result if lost is None else combine(lost, result)
    raise UnknownOutcomeError(
        f"The outcome of {what} is unknown after {COMMIT_ATTEMPTS} attempts: {failure}", hint=hint
    )


def later_outcome(lost: SliceOutcome, now: SliceOutcome) -> SliceOutcome:
    """The outcome to report after a lost answer: the first one where the second attempt found all of it applied."""
    return lost if now.replayed == now.read else now


# A transaction that the database rolled back for another one.

LOCK_ATTEMPTS: Final = 4
LOCK_PAUSE_SECONDS: Final = 0.05


def jittered(seconds: float) -> float:
    """About as long, by chance: what failed together must not be tried again at the same moment."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - no secret


def retry_conflicts(run: Callable[[], Result], pause: Callable[[float], object] = time.sleep) -> Result:
    """Runs a transaction again after a deadlock or a lock that was not granted in time; the database rolled it back.

    The pauses are short and grow. After the last attempt the error is raised, and the task, too, begins again.
    """
    for attempt in range(1, LOCK_ATTEMPTS):
        try:
            return run()
        except LockConflictError as error:
            logger.warning("pipeline.slice_retried", extra={"attempt": attempt, "error": str(error)})
            pause(jittered(LOCK_PAUSE_SECONDS * 2**attempt))
    return run()


# Splitting slices and adding measures.


def portions(batch: Slice, most_bytes: int = PORTION_BYTES) -> Iterator[Slice]:
    """Splits a slice into pieces of at most `most_bytes` bytes of values; a larger record is a piece of its own."""
    if sum(len(value) for value in batch.values if value is not None) <= most_bytes:
        yield batch
        return
    first = size = 0
    for index, value in enumerate(batch.values):
        length = len(value) if value is not None else 0
        if size and size + length > most_bytes:
            yield _piece(batch, slice(first, index))
            first, size = index, 0
        size += length
    yield batch if first == 0 else _piece(batch, slice(first, None))


def _piece(batch: Slice, part: slice) -> Slice:
    return Slice(
        batch.topic,
        batch.partition,
        batch.offsets[part],
        batch.keys[part],
        batch.values[part],
        batch.timestamps[part],
        batch.headers[part],
        batch.topic_id,
        batch.leader_epoch if part.stop is None else None,
        batch.waited_seconds,
        batch.is_held,
    )


def head_of(batch: Slice, most: int) -> Slice:
    """The first records of a slice, at most `most`."""
    return batch if len(batch) <= most else _piece(batch, slice(0, most))


def from_offset(batch: Slice, offset: int) -> Slice:
    """The records of a slice at and above an offset."""
    return _piece(batch, slice(bisect_left(batch.offsets, offset), None))


def joined(one: Slice, other: Slice) -> Slice:
    """A slice with those records of another one that follow it."""
    rest = from_offset(other, one.next_offset)
    return replace(
        one,
        offsets=[*one.offsets, *rest.offsets],
        keys=[*one.keys, *rest.keys],
        values=[*one.values, *rest.values],
        timestamps=[*one.timestamps, *rest.timestamps],
        headers=[*one.headers, *rest.headers],
        leader_epoch=rest.leader_epoch if rest.offsets else one.leader_epoch,
    )


def in_pieces(batch: Slice, most: int) -> Iterator[Slice]:
    """The slice in pieces of at most `most` records."""
    for start in range(0, len(batch), most):
        yield _piece(batch, slice(start, start + most if start + most < len(batch) else None))


def halves(batch: Slice) -> tuple[Slice, Slice]:
    """The slice in two, of which the first ends before the second begins."""
    middle = len(batch) // 2
    return _piece(batch, slice(0, middle)), _piece(batch, slice(middle, None))


def without(batch: Slice, offsets: Collection[int]) -> Slice:
    """The slice without some of its records; a hole in the offsets is nothing special."""
    if not offsets:
        return batch
    kept = [index for index, offset in enumerate(batch.offsets) if offset not in offsets]
    return replace(
        batch,
        offsets=[batch.offsets[index] for index in kept],
        keys=[batch.keys[index] for index in kept],
        values=[batch.values[index] for index in kept],
        timestamps=[batch.timestamps[index] for index in kept],
        headers=[batch.headers[index] for index in kept] if batch.headers else (),
    )


def add_measures(one: Measures, other: Measures) -> Measures:
    """The sums of both.

    >>> add_measures({"a": 1, "b": 2}, {"b": 3})
    {'a': 1, 'b': 5}
    """
    if not (one and other):
        return one or other
    return {**one, **{name: one.get(name, 0) + number for name, number in other.items()}}
