"""One slice, one transaction: how records of a Kafka partition reach a table exactly once and in order.

A *slice* is a run of records of one Kafka partition in offset order. An engine (Spark's micro-batches,
resident tasks, a test) reads slices from Kafka and calls `apply_slice` for each; everything that makes the
effect exact is here and in the database transaction, nothing in the engine.

**What is authoritative.** The pointer row of (pipeline, topic, partition) in the target database. All
records below its `next_offset` are in the table, in the dead letters, or were ignored; no record at or
above it has left a trace. It moves in the same commit as the rows, so the two cannot disagree, and its
counters are exactly-once figures.

**What is only a hint.** Spark's checkpoint and batch ids, the offsets an engine planned, the driver's
memory of the last pointer, the figures in a `SliceOutcome` after a lost COMMIT, every clock. A start reads
the pointers and goes on there.

**What we ask of the topic.** All records of a key are in one partition. Offsets of two partitions cannot be
compared, so no reader can order a key that lives in both. Offsets rise but have holes (transaction markers,
aborted records, compaction): a missing number is no gap.

The transaction:

    lock the pointer row          waits for any other holder, then sees what it committed
    plan                          drop what is below the pointer; stop loudly if the pointer moved back
    decode and validate           a bad record becomes a dead letter, never a stop
    fold                          each key's records in offset order, to one row
    upsert, guarded by version    only rows with a lower (generation, offset) change
    bury the dead letters
    move the pointer              to the last record's offset + 1, counters with it
    commit

Invariants:

1. A pointer never moves back, and the same offset never passes it twice.
2. Rows, dead letters, counters and pointer of a slice become visible together or not at all.
3. A row equals the fold, in offset order, of its key's valid records below the pointer.
4. An older record never overwrites a newer one: the pointer drops it; if pointers are lost, the version.

**Identical writes** do not touch the row, which saves most of the work when publishers repeat themselves. Its
version then stays behind the pointer, and this is exact because each record of the key above the version is
identical to the row *by itself*. For that, a fold whose records disagree on a field (true, then false: it
*wavered*) moves the version even if the row ends as it was. So if pointers are lost and the topic is replayed
in any chunking, no value moves, not even for a moment. Let a row have version v. A replayed slice that ends
at or below v is refused by the guard. One that begins above v holds only identical records. One that spans v
contains the record at v and what follows: each field it carries was last written in that same range when
the row came to be, so its fold gives the values that the row has, and at most the version rises.

Failure table:

| what happens                              | what follows                                                 |
|-------------------------------------------|--------------------------------------------------------------|
| crash before or inside the transaction    | the database rolls back; the slice is read again from the    |
|                                           | pointer                                                      |
| crash after COMMIT, before anyone is told | the replay finds the pointer past it and skips               |
| COMMIT sent, answer lost                  | the slice is tried again: the lock waits until the old       |
|                                           | session is gone, then the pointer tells whether it was       |
|                                           | committed or is to be applied                                |
| zombie task beside its retry, two drivers | the row lock lets one through; the other then sees the moved |
|                                           | pointer and drops what is applied                            |
| zombie paused inside its transaction      | the server ends its idle session after a time-out, which     |
|                                           | frees the lock; when it wakes up its connection is dead      |
| replay of any range, in any chunking      | offsets below the pointer are dropped, also in mid-slice     |
| checkpoint lost, stale or damaged         | nothing: each start makes a new one from the pointers        |
| database restored from a backup           | pointer and rows went back together. A running driver sees a |
|                                           | pointer below one it saw committed: `GuaranteeError`. A new  |
|                                           | start replays                                                |
| pointer rows lost                         | a running driver stops loudly; a replay changes no value     |
|                                           | (invariant 4)                                                |
| holes in the offsets                      | nothing: only the order of offsets counts                    |
| a slice out of order                      | `GuaranteeError` before anything is written                  |
| the database refuses the rows             | `RejectedError` naming the offsets; nothing of the slice is  |
|                                           | written                                                      |
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeAlias, assert_never

from inorder.model.errors import GuaranteeError, RejectedError, UnknownOutcomeError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.upsert import Decoder, Ignored, Rejected, Update, fold
from inorder.ports.table_store import DeadLetter, FoldedRow, SliceTransaction, TableStore, Tally, Written

_COMMIT_ATTEMPTS = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def next_offset(self) -> int:
        """Where the pointer stands once this slice is applied."""
        return self.offsets[-1] + 1 if self.offsets else 0

    def __str__(self) -> str:
        span = f"{self.offsets[0]} to {self.offsets[-1]}" if self.offsets else "none"
        return f"{self.topic}[{self.partition}] offsets {span}"


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """What became of a slice, in records; `read` is the sum of the figures below it."""

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


@dataclass(frozen=True, slots=True)
class Skip:
    """All of the slice is applied already."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Records at and above `from_offset` are to be applied."""

    from_offset: int


@dataclass(frozen=True, slots=True)
class MovedBack:
    """The pointer is lower than one that was seen committed."""


Plan: TypeAlias = Skip | Apply | MovedBack


def plan(pointer: int, expected: int, batch: Slice) -> Plan:
    """What to do with a slice, given the locked pointer and the last one seen committed (0: none)."""
    if pointer < expected:
        return MovedBack()
    if not batch.offsets or batch.next_offset <= pointer:
        return Skip()
    return Apply(max(pointer, batch.offsets[0]))


def apply_slice(store: TableStore, mapping: TableMapping, batch: Slice, expected: int = 0) -> SliceOutcome:
    """Applies what is new in the slice, in one transaction, and returns once its fate is known.

    Raises `TransientError` when the environment failed (call again later), `RejectedError` when the database
    refuses the rows, `GuaranteeError` when the pointer moved back or the slice is out of order.
    """
    check_order(batch)
    sent: SliceOutcome | None = None
    for _ in range(_COMMIT_ATTEMPTS):
        try:
            with store.slice_transaction(batch.topic, batch.partition) as transaction:
                outcome = _apply(transaction, mapping, batch, expected)
        except UnknownOutcomeError:
            sent = outcome
            continue
        return sent if sent is not None and outcome.replayed == outcome.read else outcome
    raise UnknownOutcomeError(
        f"The answer to COMMIT was lost {_COMMIT_ATTEMPTS} times for {batch}.",
        hint="The pointer row tells what was applied; the next start reads it.",
    )


def check_order(batch: Slice) -> None:
    """Refuses a slice whose offsets do not rise: some engine or transformation has shuffled it."""
    for before, after in pairwise(batch.offsets):
        if after <= before:
            raise GuaranteeError(
                f"Out of order: offset {after} came after {before} in {batch.topic}[{batch.partition}].",
                hint="Remove any shuffle, repartition or minPartitions between Kafka and the table.",
            )


def _apply(transaction: SliceTransaction, mapping: TableMapping, batch: Slice, expected: int) -> SliceOutcome:
    pointer = transaction.lock_pointer()
    decision = plan(pointer.next_offset, expected, batch)
    nothing = SliceOutcome(batch.topic, batch.partition, pointer.next_offset, read=len(batch), replayed=len(batch))
    match decision:
        case MovedBack():
            raise _moved_back(mapping, batch, pointer.next_offset, expected)
        case Skip():
            return nothing
        case Apply(from_offset):
            rows, letters, ignored = decode_from(from_offset, mapping, batch)
            written = _upsert(transaction, rows, pointer.generation, batch)
            transaction.bury(letters)
            transaction.move_pointer(batch.next_offset, Tally(written, ignored, len(letters)))
            return replace(
                nothing,
                next_offset=batch.next_offset,
                applied=written.applied,
                identical=written.identical,
                stale=written.stale,
                ignored=ignored,
                rejected=len(letters),
                replayed=bisect_left(batch.offsets, from_offset),
            )
        case _:
            assert_never(decision)


def decode_from(from_offset: int, mapping: TableMapping, batch: Slice) -> tuple[list[FoldedRow], list[DeadLetter], int]:
    """The rows, the dead letters and the count of ignored records in the part of a slice that is new."""
    decode = Decoder(mapping).decode
    updates: list[tuple[int, Update]] = []
    letters: list[DeadLetter] = []
    for index in range(bisect_left(batch.offsets, from_offset), len(batch)):
        match decode(batch.keys[index], batch.values[index]):
            case Update() as update:
                updates.append((batch.offsets[index], update))
            case Rejected() as reason:
                letters.append(_dead_letter(batch, index, reason))
            case Ignored():
                pass
    ignored = len(batch) - bisect_left(batch.offsets, from_offset) - len(updates) - len(letters)
    return fold(updates), letters, ignored


def _upsert(transaction: SliceTransaction, rows: Sequence[FoldedRow], generation: int, batch: Slice) -> Written:
    if not rows:
        return Written()
    try:
        return transaction.upsert(rows, generation)
    except RejectedError as error:
        raise RejectedError(
            f"The database refused {len(rows)} rows of {batch}: {error.message}",
            hint="Nothing was applied. Relax the constraint or mend the table, then start it again.",
        ) from error


def _dead_letter(batch: Slice, index: int, reason: Rejected) -> DeadLetter:
    micros = batch.timestamps[index]
    timestamp = None if micros is None else _EPOCH + timedelta(microseconds=micros)
    offset, key, value = batch.offsets[index], batch.keys[index], batch.values[index]
    return DeadLetter(offset, reason.code, reason.detail, key, value, timestamp)


def _moved_back(mapping: TableMapping, batch: Slice, found: int, expected: int) -> GuaranteeError:
    return GuaranteeError(
        f"The pointer of {batch.topic}[{batch.partition}] in pipeline {mapping.pipeline!r} is at {found},"
        f" but {expected} was committed before.",
        hint="The database went back, perhaps to a backup. Make sure it is the right one, then run"
        " `inorder pipeline run upsert` again: it replays from the pointer.",
    )
