"""Snapshots of journals: which slot one takes, which one is loaded, and to which life of its journal it belongs.

**What is authoritative.** For which snapshots exist: the store, the topic has none. For whether one may still be used:
the topic. A snapshot belongs to one life of its journal, the stretch between two purges, and ends with it. To say which
life, it carries a *place*: the offset of the mark at which it was saved. A purge at a larger offset makes it void.

**What is only a hint.** The time of a snapshot (it decides between two of one number and nothing else), and the record
id that a row carries, which can only rule a snapshot out.

The history of a journal has N slots (`journal.snapshots`). They are overwritten in place, since deleted rows are costly
in Cassandra:

| the history                               | a new snapshot                                                    |
|---|---|
| has one of the same number                | takes its slot: saving again changes nothing but the content      |
| has a free slot                           | takes it; a slot of a former life is free                         |
| is full                                   | replaces the smallest (number, then time)                         |
| has N newer ones                          | is not written, and its saver learns so: it would never be loaded |
| is larger than N, which was lowered       | is written; the N newest stay, the others are deleted             |

Saving:

    take a turn        Cassandra: a lock on the journal's history, which expires. PostgreSQL takes it in `write`
    send a mark        its offset is the snapshot's place; read the journal there, as every reader does (`reader.py`)
    check              the number is not above the journal's end; the journal had an action of this life before the mark
    write              PostgreSQL: lock, check that the life is the same, write. Cassandra: at the time 2^52 + place
    release the turn   Cassandra: if it had expired, nothing counts, and all is done again with a new mark

Loading: read the journal at a mark, then the rows. Those below a purge that the log has and the store lacks are void.
A row placed after the mark may belong to a later life, so then all is done again with a new mark.

Invariants:

1. A snapshot is loaded only in the life in which it was placed: if its place is P and there is a purge at Q > P, no
   reader with a mark after Q loads it. Either the reader sees the purge in the log, or the store has applied it, and
   then the row is gone: a purge deletes what is placed below it, in its own transaction (PostgreSQL), or at the time
   2^52 + Q, before the head is deleted (Cassandra). By the same rule a replayed purge deletes nothing of a later life.
2. Of all snapshots that were saved in a life and not deleted, the history has the N with the largest numbers.
3. Events are never skipped: `recover` returns a snapshot with all events after it, or raises.

Failure table:

| what happens                              | PostgreSQL                        | Cassandra                           |
|---|---|---|
| two savers at once                        | an advisory lock: one waits       | a lock row: one waits               |
| a saver dies                              | rolled back, the lock is free     | others wait until its lock expires  |
| a saver is paused for long                | the server ends its session       | its cells are older than those of   |
|                                           |                                   | the next savers, and lose; it finds |
|                                           |                                   | its lock gone, and repeats          |
| the answer to a save is lost              | saved or not; saving again does no harm                                 |
| a purge is replicated during a save       | the saver finds another life, and | the purge's tombstone is newer: the |
|                                           | raises `JournalChangedError`      | snapshot is never seen              |
| a purge is not replicated                 | readers see it in the log, and ignore snapshots of former lives         |
| a purge slice is replayed                 | deletes what is placed below the purge, nothing else                    |
| another program replicates, and does not  | -                                 | the record id differs, if the       |
| delete snapshots when it purges           |                                   | journal was replicated at the save  |
| events after a snapshot were deleted      | `recover` raises `SnapshotTooOldError`: they would be a hole            |
| the journal is parked, or damaged         | `DamagedRecordError`, as for reads                                      |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from inorder.journal.life import JournalFold, life_id
from inorder.journal.reading.head import ReadPlan
from inorder.journal.reading.reader import JournalReader, Moment
from inorder.model.deadline import Deadline
from inorder.model.errors import JournalChangedError, SnapshotTooOldError, ValidationError
from inorder.model.journal import (
    MAX_SEQ_NR,
    MIN_SEQ_NR,
    EventRecord,
    Key,
    PartitionOffset,
    SeqNr,
    SeqRange,
    Snapshot,
    SnapshotCriteria,
    check_seq_nr,
    next_seq_nr,
)


class MarkedMoment(NamedTuple):
    """A mark, and the journal at that offset."""

    mark: PartitionOffset
    moment: Moment


@dataclass(frozen=True, slots=True)
class Recovery:
    """A snapshot and a stream of the events after it, or of all events if there is none; both of one moment."""

    snapshot: Snapshot | None
    events: Iterator[EventRecord]
    marked: MarkedMoment
    """That moment, for an append that is to follow just these events."""


class SnapshotHistory(NamedTuple):
    """Where snapshots are kept, and how many of each journal."""

    store: SnapshotStore
    size: int = 10


@dataclass(frozen=True, slots=True)
class JournalSnapshots:
    """Saves, finds and deletes the snapshots of one journal, and recovers it from the latest."""

    key: Key
    history: SnapshotHistory
    mark_moment: Callable[[SeqNr], MarkedMoment]
    """Sends a mark and reads the journal there; events below the number are not needed."""
    reader: JournalReader
    deadline: Callable[[str], Deadline]

    def save(self, snapshot: Snapshot, life: UUID | None = None) -> bool:
        """Saves a snapshot, in the life that is named; False if the history is full of newer ones."""
        check_seq_nr(snapshot.seq_nr)
        deadline = self.deadline(f"Saving a snapshot of {self.key}")
        store, size = self.history
        return store.save(self.key, snapshot, size, lambda: self._settled(snapshot.seq_nr, deadline, life))

    def latest(self, criteria: SnapshotCriteria) -> Snapshot | None:
        return self._found(criteria, MAX_SEQ_NR)[1]

    def all(self) -> list[Snapshot]:
        """All snapshots of this life, the latest first."""
        deadline = self.deadline(f"Looking for snapshots of {self.key}")
        while True:
            rows = self._rows(self.mark_moment(MAX_SEQ_NR), SnapshotCriteria())
            found = None if rows is None else [self.history.store.load(self.key, row) for row in rows]
            if found is not None and None not in found:
                return [each for each in found if each is not None]
            deadline.remaining()

    def delete(self, criteria: SnapshotCriteria) -> int:
        """Deletes the snapshots that fit; returns how many there were."""
        return self.history.store.delete(self.key, criteria, lambda: self._life(self.mark_moment(MAX_SEQ_NR)))

    def recover(self, criteria: SnapshotCriteria) -> Recovery:
        """The latest snapshot that fits, with the events after it."""
        deadline = self.deadline(f"Recovering {self.key}")
        marked, found = self._found(criteria, MIN_SEQ_NR)
        while has_hole(marked.moment.plan, found):
            # A purge may have been replicated since the mark, and have deleted a snapshot.
            again, found_again = self._found(criteria, MIN_SEQ_NR)
            if self._life(again).life == self._life(marked).life:
                break
            marked, found = again, found_again
            deadline.remaining()
        if found is None:
            return Recovery(None, self.reader.events(marked.moment, SeqRange.all()), marked)
        if has_hole(marked.moment.plan, found):
            raise too_old_error(self.key, marked.moment.plan, found)
        first = next_seq_nr(found.seq_nr)
        behind = iter(()) if first is None else self.reader.events(marked.moment, SeqRange(first, MAX_SEQ_NR))
        return Recovery(found, behind, marked)

    def _settled(self, seq_nr: SeqNr, deadline: Deadline, life: UUID | None = None) -> LifeAtMark:
        while True:
            deadline.remaining()
            marked = self.mark_moment(MAX_SEQ_NR)
            name = JournalFold(self.key, marked.mark.partition).name(marked.moment.plan.life)
            if life is not None and name is not None and name != life:
                raise purged_error(self.key)
            require_reached(self.key, marked.moment.plan, seq_nr)
            if is_settled(marked.mark, marked.moment.plan):
                return self._life(marked)

    def _found(self, criteria: SnapshotCriteria, from_seq_nr: SeqNr) -> tuple[MarkedMoment, Snapshot | None]:
        deadline = self.deadline(f"Looking for a snapshot of {self.key}")
        while True:
            marked = self.mark_moment(from_seq_nr)
            rows = self._rows(marked, criteria)
            if rows == []:
                return marked, None
            found = self.history.store.load(self.key, rows[0]) if rows else None
            if found is not None:
                return marked, found
            deadline.remaining()

    def _rows(self, marked: MarkedMoment, criteria: SnapshotCriteria) -> list[SnapshotRow] | None:
        """The rows that fit, the latest first; None if only a new mark can decide."""
        if marked.moment.plan.life is None:
            return []
        rows, at_mark = self.history.store.rows(self.key), self._life(marked)
        return None if any(is_beyond(row, at_mark) for row in rows) else select_snapshots(rows, at_mark, criteria)

    def _life(self, marked: MarkedMoment) -> LifeAtMark:
        return life_at_mark(self.key, marked.mark, marked.moment.plan)


@dataclass(frozen=True, slots=True)
class Placement:
    """The slot of a snapshot, and the slots to empty for it."""

    slot: int
    emptied: tuple[int, ...] = ()


def place_snapshot(
    rows: Sequence[SnapshotRow], at_mark: LifeAtMark, seq_nr: SeqNr, time: datetime, size: int
) -> Placement | None:
    """The slot of a snapshot that is saved now; None if the history already holds `size` newer ones."""
    live = sorted((row for row in rows if is_live(row, at_mark)), key=_order, reverse=True)
    others = [row for row in live if row.seq_nr != seq_nr]
    if sum(_order(row) > (seq_nr, time) for row in others) >= size:
        return None
    going = [row.slot for row in live if row.seq_nr == seq_nr] + [row.slot for row in others[size - 1 :]]
    if not going:
        taken = {row.slot for row in others}
        return Placement(next(slot for slot in range(size) if slot not in taken))
    return Placement(going[0], tuple(going[1:]))


def is_live(row: SnapshotRow, at_mark: LifeAtMark) -> bool:
    """Whether a snapshot belongs to the life that its journal has at a mark, as far as the log shows."""
    stored = at_mark.stored_life
    if row.life is not None and stored is not None and row.life != stored:
        return False
    if at_mark.purged_at is None:
        return True
    # Offsets of two partitions cannot be compared; a journal that moved between partitions was purged in between.
    return row.place.partition == at_mark.place.partition and row.place.offset > at_mark.purged_at


def is_beyond(row: SnapshotRow, at_mark: LifeAtMark) -> bool:
    """Whether a snapshot was placed after a mark, perhaps in a life that began there."""
    is_behind = row.place.partition == at_mark.place.partition and row.place.offset > at_mark.place.offset
    return is_behind and (row.life is None or row.life != at_mark.stored_life)


def select_snapshots(rows: Iterable[SnapshotRow], at_mark: LifeAtMark, criteria: SnapshotCriteria) -> list[SnapshotRow]:
    """The snapshots of this life that fit, the latest first: by number, then by time."""
    found = [row for row in rows if is_live(row, at_mark) and criteria.fits(row.seq_nr, row.timestamp)]
    return sorted(found, key=_order, reverse=True)


def life_at_mark(key: Key, mark: PartitionOffset, plan: ReadPlan) -> LifeAtMark:
    head = plan.head
    if head is not None and head.is_begun:
        return LifeAtMark(mark, head.record_id, is_replicated=True, purged_at=plan.purged_at)
    begun = None if plan.log_from is None else life_id(key, mark.partition, plan.log_from)
    return LifeAtMark(mark, begun, is_replicated=False, purged_at=plan.purged_at)


def is_settled(mark: PartitionOffset, plan: ReadPlan) -> bool:
    """Whether the life of a plan is certainly the one at the mark, because it had an action before it.

    The store may have moved on since the mark, even to another life; then a new mark is needed.
    """
    if plan.head is not None and plan.head.is_begun:
        place = plan.head.partition_offset
        return place.partition != mark.partition or place.offset < mark.offset
    return plan.log_from is not None and plan.log_from < mark.offset


def require_reached(key: Key, plan: ReadPlan, seq_nr: SeqNr) -> None:
    """Raises `ValidationError` if a journal ends before the number of a snapshot."""
    end = 0 if plan.life is None else plan.life.end
    if seq_nr <= end:
        return
    where = f"where the journal {key} ends" if end else f"and the journal {key} has no event"
    raise ValidationError(
        "seq_nr", f"{seq_nr} is above {end}, {where}.", hint="Append the events before you save a snapshot of them."
    )


def has_hole(plan: ReadPlan, snapshot: Snapshot | None) -> bool:
    """Whether events after a snapshot, or from the beginning if there is none, are deleted."""
    return plan.life is not None and plan.life.delete_to > (0 if snapshot is None else snapshot.seq_nr)


def too_old_error(key: Key, plan: ReadPlan, snapshot: Snapshot) -> SnapshotTooOldError:
    delete_to = 0 if plan.life is None else plan.life.delete_to
    return SnapshotTooOldError(
        f"The latest snapshot of {key} that fits is at {snapshot.seq_nr},"
        f" but its events are deleted up to {delete_to}.",
        hint=f"If the journal starts over after {delete_to}, `inorder journal snapshot delete {key.topic} {key.id}"
        f" --to {delete_to}` lets it be read from there; else request a later snapshot.",
        seq_nr=snapshot.seq_nr,
        delete_to=delete_to,
    )


def purged_error(key: Key) -> JournalChangedError:
    """Raised by a save whose journal was purged meanwhile."""
    return JournalChangedError(
        f"The journal {key} was purged while a snapshot of it was saved; nothing was written.",
        hint="Read the journal again, and save its present state.",
    )


def _order(row: SnapshotRow) -> tuple[SeqNr, datetime]:
    return row.seq_nr, row.timestamp


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A snapshot in its slot, without payload and metadata."""

    slot: int
    seq_nr: SeqNr
    timestamp: datetime
    place: PartitionOffset
    """The mark at which it was saved; no other snapshot has the same."""
    life: UUID | None = None
    """The record id of the journal's head in the store; None if this life was not replicated yet."""


@dataclass(frozen=True, slots=True)
class LifeAtMark:
    """The life of a journal at a mark, as far as snapshots need to know it."""

    place: PartitionOffset
    """The mark."""
    life: UUID | None
    """The record id of the life, as the store has it or will have it."""
    is_replicated: bool
    """Whether the store has that record id."""
    purged_at: int | None = None
    """The offset of a purge before the mark that the store may not have applied."""

    @property
    def stored_life(self) -> UUID | None:
        """The record id if the store has it."""
        return self.life if self.is_replicated else None


class SnapshotStore(Protocol):
    """A few rows for each journal, overwritten in place. Used by many threads and processes; every call may block.

    The caller decides which row to load. The store makes savers of one journal take turns, and makes sure that a purge
    finds every snapshot placed before it.
    """

    def rows(self, key: Key) -> Sequence[SnapshotRow]:
        """All rows of a journal, in any order, of any life; more than the history's size if that was larger once."""

    def load(self, key: Key, row: SnapshotRow) -> Snapshot | None:
        """The snapshot of a row; None if its slot was overwritten or emptied since."""

    def save(self, key: Key, snapshot: Snapshot, size: int, send_mark: Callable[[], LifeAtMark]) -> bool:
        """Writes a snapshot where `place_snapshot` puts it; False if that leaves it out.

        `send_mark` may be called several times; the last call counts. From that call to the end of the write no one
        else changes this journal's history, or the write does not count and is repeated. If the store has applied a
        purge after the mark, `JournalChangedError` is raised, or the snapshot is never seen.
        """

    def delete(self, key: Key, criteria: SnapshotCriteria, send_mark: Callable[[], LifeAtMark]) -> int:
        """Empties the slots that fit; returns how many snapshots of the present life were in them."""

    def close(self) -> None:
        """Releases connections; may be called twice."""
