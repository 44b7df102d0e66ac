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
    fold                          each key's records in offset order, to one row or one delete
    write, guarded by version     only rows and tombstones with a lower (generation, offset) change
    bury the dead letters
    move the pointer              to the last record's offset + 1, counters with it
    commit

Invariants:

1. A pointer never moves back, and the same offset never passes it twice.
2. Rows, dead letters, counters and pointer of a slice become visible together or not at all.
3. A row equals the fold, in offset order, of its key's valid records below the pointer, by the rules of the mode.
4. An older record never overwrites a newer one: the pointer drops it; if pointers are lost, the version.
5. A key has a row or a tombstone, never both, and the version of the one or the other never falls.

**Identical writes** do not touch the row, which saves most of the work when publishers repeat themselves. Its
version then stays behind the pointer, and this is exact because each record of the key above the version is
identical to the row *by itself*. For that, a fold whose records disagree on a field (true, then false: it
*wavered*) moves the version even if the row ends as it was. So if pointers are lost and the topic is replayed
in any chunking, no value moves, not even for a moment. Let a row have version v. A replayed slice that ends
at or below v is refused by the guard. One that begins above v holds only identical records. One that spans v
contains the record at v and what follows: each field it carries was last written in that same range when
the row came to be, so its fold gives the values that the row has, and at most the version rises.

**Deletes.** A record with a key and no value deletes its row. The version of the delete must outlive the row, or an
older record would make it again. It is kept in a table of its own, `inorder_tombstone`, and not in a column of the
target: readers of the target then need no condition to see only what is there, counts and unique keys are right, and a
table that exists needs no new column. A newer record makes the row again, with nothing of what it was before, and the
tombstone goes. The argument above holds with deletes: a delete always takes the version, so no record above the version
of a row or of a tombstone is one; and a replayed slice that spans the version contains all that came after the last
delete, or does not contain the delete at all.

**Modes.** In mode `insert` the first record of a key makes the row and the others are ignored; in mode `update` records
of a key without a row are. Both are exact in any chunking, because the fold of a slice follows the same rule.

**Records that the database refuses**, for a constraint or a value that does not fit, are told from faults of the
environment by the error's code. Nothing of the first try is left; the second one isolates them, in one transaction
again (isolation.py). What it costs is paid only by slices that hold such a record. One thing is not exact: records of a
key that are in one slice are one write, so a record that would be refused alone may pass together with a later one that
puts right what is wrong with it. After pointers are lost, a replay in other chunks may then decide otherwise.

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
| the database refuses a record             | it alone is buried, with the database's words; the rest of   |
|                                           | the slice is in the same commit                              |
| it refuses a record until another is there| it is tried again after the rest of its slice, up to         |
|                                           | `max_attempts` times                                         |
| disk full, deadlock, lock time-out,       | `TransientError`: everything is rolled back and tried again  |
| server shutting down, connection lost     | later, nothing is buried                                     |
| a late record of a deleted key            | its version is below the tombstone's: stale                  |
| half a million bad records in a row       | they are buried in bulk; a row each is all that they cost    |
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import assert_never

from inorder.engines.slice_work import (
    Apply,
    MovedBack,
    Skip,
    Slice,
    SliceOutcome,
    check_order,
    later_outcome,
    plan,
    settle_commit,
)
from inorder.model.errors import GuaranteeError, RejectedError
from inorder.pipeline.decoding import Decoded, dead_letter, decode_changes, decode_from
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import (
    DeadLetter,
    FoldedRow,
    RowKey,
    SliceCounters,
    SliceTransaction,
    TableStore,
    WriteCounts,
)


def apply_slice(store: TableStore, mapping: TableMapping, batch: Slice, expected: int = 0) -> SliceOutcome:
    """Applies what is new in the slice, in one transaction, and returns once its fate is known.

    Raises `TransientError` when the environment failed (call again later), `GuaranteeError` when the pointer moved back
    or the slice is out of order.
    """
    check_order(batch)
    try:
        return _commit(store, _SliceWriter(mapping, batch, expected))
    except RejectedError:
        # The first attempt is rolled back. Savepoints cost time, so only a slice that needs them has them.
        return _commit(store, _SliceWriter(mapping, batch, expected, isolates=True))


def _commit(store: TableStore, writer: _SliceWriter) -> SliceOutcome:
    batch = writer.batch
    return settle_commit(
        lambda: store.slice_transaction(batch.topic, batch.partition),
        writer.write,
        later_outcome,
        what=str(batch),
        hint="The pointer row says what is applied; the next start reads it.",
    )


@dataclass(frozen=True, slots=True)
class _SliceWriter:
    """The steps between BEGIN and COMMIT of one slice."""

    mapping: TableMapping
    batch: Slice
    expected: int
    isolates: bool = False

    def write(self, transaction: SliceTransaction, _lost: SliceOutcome | None) -> SliceOutcome:
        batch, pointer = self.batch, transaction.lock_pointer()
        decision = plan(pointer.next_offset, self.expected, batch)
        nothing = SliceOutcome(batch.topic, batch.partition, pointer.next_offset, read=len(batch), replayed=len(batch))
        match decision:
            case MovedBack():
                raise _moved_back(self.mapping, batch, pointer.next_offset, self.expected)
            case Skip():
                return nothing
            case Apply(from_offset):
                decoded = decode_from(from_offset, self.mapping, batch)
                tally = self._write(transaction, decoded, from_offset, pointer.generation)
                transaction.move_pointer(batch.next_offset, tally)
                return replace(
                    nothing,
                    next_offset=batch.next_offset,
                    applied=tally.written.applied,
                    identical=tally.written.identical,
                    stale=tally.written.stale,
                    ignored=tally.ignored,
                    rejected=tally.rejected,
                    replayed=len(batch) - decoded.records,
                )
            case _:
                assert_never(decision)

    def _write(
        self, transaction: SliceTransaction, decoded: Decoded, from_offset: int, generation: int
    ) -> SliceCounters:
        """Writes rows and dead letters; what is in neither was ignored."""
        written, letters = WriteCounts(), decoded.letters
        if self.isolates:
            isolation = Isolation(transaction, self.mapping, self.batch, from_offset, generation)
            isolation.write(decoded.rows)
            written, letters = isolation.written, sorted([*letters, *isolation.letters], key=attrgetter("offset"))
        elif decoded.rows:
            written = transaction.upsert(decoded.rows, generation)
        if letters:
            transaction.bury(letters)
        counted = written.applied + written.identical + written.stale + len(letters)
        return SliceCounters(written, decoded.records - counted, len(letters))


def _moved_back(mapping: TableMapping, batch: Slice, found: int, expected: int) -> GuaranteeError:
    return GuaranteeError(
        f"The pointer of {batch.topic}[{batch.partition}] in pipeline {mapping.pipeline!r} is at {found},"
        f" but {expected} was committed before.",
        hint="The database went back, perhaps to a backup. Make sure it is the right one, then run"
        " `inorder pipeline run upsert` again: it replays from the pointer.",
    )


# Which records the database refuses: found by halving the write, inside the one transaction of the slice.
#
# A bulk write that is refused says little about which row is to blame, so it is halved until single rows are refused.
# All others are written. Where the store has a quick way to write rows one by one (`SliceTransaction.upsert_each`),
# halving ends at a few dozen: with one bad row in five, nearly every half would be refused down to the last.
#
# Then each refused row is tried again, after everything else of the slice is there: a row that had to wait for another
# one passes now. What is still refused is taken apart, and its records are tried one after the other in offset order.
# Those that are refused by themselves become dead letters, with the database's words as the reason.
#
# Only `RejectedError` counts as a refusal. Whatever says that the environment failed goes on to the caller, so no dead
# letter is ever made because a disk is full or a server is shutting down.

logger = logging.getLogger("inorder.pipeline")

REFUSED = "refused-by-database"

_FEW = 64
"""So many rows are not halved any more where the store writes them one by one as quickly."""
_FLOOD = 100
"""With more rows refused than this, something is wrong with all of them; trying again would only take time."""
_LOGGED = 20
"""Records of one slice that have a line of their own in the log."""


@dataclass(slots=True)
class Isolation:
    """One slice, written row by row where it must be."""

    transaction: SliceTransaction
    mapping: TableMapping
    batch: Slice
    from_offset: int
    generation: int
    written: WriteCounts = field(default_factory=WriteCounts)
    letters: list[DeadLetter] = field(default_factory=list)
    _refused: list[tuple[FoldedRow, str]] = field(default_factory=list)
    """Rows that are refused by themselves, each with why."""

    def write(self, rows: Sequence[FoldedRow]) -> None:
        """Writes what the database takes; what it refuses is in `letters` afterwards."""
        self._halve(rows)
        for _ in range(self.mapping.max_attempts - 1):
            if len(self._refused) > _FLOOD:
                break
            again, self._refused = self._refused, []
            for row, _ in again:
                self._try_alone(row)
        for row, reason in self._refused:
            if row.records == 1 and self.mapping.mode == "upsert":
                self._bury(bisect_left(self.batch.offsets, row.offset), reason)
        if several := {row.key for row, _ in self._refused if row.records > 1 or self.mapping.mode != "upsert"}:
            self._one_by_one(several)

    def _halve(self, rows: Sequence[FoldedRow]) -> None:
        if len(rows) == 1:
            self._try_alone(rows[0])
        elif rows and self._tried(rows) is not None and not (len(rows) <= _FEW and self._wrote_each(rows)):
            middle = len(rows) // 2
            self._halve(rows[:middle])
            self._halve(rows[middle:])

    def _wrote_each(self, rows: Sequence[FoldedRow]) -> bool:
        """Writes row by row where the store has a quick way; whether it has."""
        ended = self.transaction.upsert_each(rows, self.generation)
        if ended is None:
            return False
        for row, outcome in zip(rows, ended, strict=True):
            if isinstance(outcome, RejectedError):
                self._refused.append((row, outcome.message))
            else:
                self.written += outcome
        return True

    def _try_alone(self, row: FoldedRow) -> None:
        if (reason := self._tried([row])) is not None:
            self._refused.append((row, reason))

    def _one_by_one(self, keys: set[RowKey]) -> None:
        """Of these keys every record by itself, those that the fold left out as well."""
        for index, (key, offset, values) in decode_changes(keys, self.from_offset, self.mapping, self.batch):
            if (reason := self._tried([FoldedRow(key, values, offset, 1)])) is not None:
                self._bury(index, reason)

    def _bury(self, index: int, reason: str) -> None:
        self.letters.append(dead_letter(self.batch, index, REFUSED, reason))
        self._log(self.batch.offsets[index], reason)

    def _log(self, offset: int, reason: str) -> None:
        # A flood must not fill the log as well; the dead letters have them all.
        if len(self.letters) <= _LOGGED:
            place = (self.mapping.pipeline, self.batch.topic, self.batch.partition, offset)
            logger.warning(
                "pipeline.record_refused pipeline=%s topic=%s partition=%d offset=%d reason=%s", *place, reason
            )

    def _tried(self, rows: Sequence[FoldedRow]) -> str | None:
        """None where the rows are written, else why not."""
        try:
            with self.transaction.isolated():
                written = self.transaction.upsert(rows, self.generation)
        except RejectedError as error:
            return error.message
        self.written += written
        return None
