"""Snapshots of journals: which slot one takes, which one is loaded, and to which life of its journal it belongs.

**What is authoritative.** For what snapshots there are: the store, nothing else has them. For whether one may still be
used: the topic. A snapshot belongs to one life of its journal, the stretch between two purges, and dies with it.

**What is only a hint.** The time of a snapshot (it decides between two of one number and nothing else), and the record
id that a row carries, which can only rule a snapshot out.

A journal has a ring of N slots (`journal.snapshots`). They are overwritten in place, since deleted rows are dear in
Cassandra:

| the ring                                  | a new snapshot                                                    |
|---|---|
| has one of the same number                | takes its slot: to save it again changes nothing but its content  |
| has a free slot                           | takes it; what is of a former life is free                        |
| is full                                   | replaces the smallest (number, then time)                         |
| has N newer ones                          | is left out, and its saver is told: nobody would load it          |
| is larger than N, which was lowered       | the N newest stay, the others go                                  |

Saving:

    take a turn        Cassandra: a lock on the journal's ring, which ends by itself. PostgreSQL takes it below
    send a mark        its offset is the snapshot's *place*; look at the journal there, as a read does (`reader`)
    check              the number is not above the journal's end; the journal had an action of this life before the mark
    write              PostgreSQL: lock, see that the life is the same, write. Cassandra: at the time 2^52 + place
    give the turn back Cassandra: if it had ended, nothing counts, and all is done again with a new mark

Loading: look at the journal at a mark, then read the rows. Those below a purge that the log has and the store has not
are void. One that was placed behind the mark may be of a life to come, so then all is done again with a new mark.

Invariants:

1. A snapshot is loaded only in the life in which it was placed: if its place is P and a purge stands at Q > P, no look
   at a mark behind Q loads it. Either the log shows the purge to the look, or the store has applied it, and then the
   row is gone: a purge deletes what is placed below it, in its own transaction (PostgreSQL), or at the time 2^52 + Q,
   before its head goes (Cassandra). A replay of the purge deletes nothing of a later life, by the same rule.
2. Of all snapshots that were saved in a life and not deleted, the ring has the N with the largest numbers.
3. Events are never skipped: `recover` shows a snapshot with all events behind it, or raises.

Failure table:

| what happens                              | PostgreSQL                        | Cassandra                           |
|---|---|---|
| two savers at once                        | an advisory lock: one waits       | a lock row: one waits               |
| a saver dies                              | rolled back, the lock is free     | others wait for its lock to end     |
| a saver is paused for long                | the server ends its session       | its cells are older than those of   |
|                                           |                                   | whoever came after it, and lose; it |
|                                           |                                   | finds its lock gone, and repeats    |
| the answer to a save is lost              | saved or not; to save again does no harm                                |
| a purge is replicated while one is saved  | the saver finds another life, and | the purge's tombstone is newer: it  |
|                                           | raises `JournalChangedError`      | is never seen                       |
| a purge is not replicated                 | readers know of it from the log, and leave former lives out             |
| a purge slice is replayed                 | deletes what is placed below the purge, nothing else                    |
| another program replicates, and leaves    | -                                 | the record id tells, if the journal |
| snapshots alone when it purges            |                                   | was replicated when it was saved    |
| events behind a snapshot were deleted     | `recover` raises `SnapshotTooOldError`: they would be a hole            |
| the journal is parked, or damaged         | `DamagedRecordError`, as for reads                                      |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from inorder.journal.life import life_id
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


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a snapshot goes, and the slots that are to be emptied for it."""

    slot: int
    emptied: tuple[int, ...] = ()


def place_snapshot(
    rows: Sequence[SnapshotRow], standing: LifeAtMark, seq_nr: SeqNr, time: datetime, size: int
) -> Placement | None:
    """The slot of a snapshot that is saved now; None where the ring has as many newer ones as it may hold."""
    live = sorted((row for row in rows if is_live(row, standing)), key=_order, reverse=True)
    others = [row for row in live if row.seq_nr != seq_nr]
    if sum(_order(row) > (seq_nr, time) for row in others) >= size:
        return None
    going = [row.slot for row in live if row.seq_nr == seq_nr] + [row.slot for row in others[size - 1 :]]
    if not going:
        taken = {row.slot for row in others}
        return Placement(next(slot for slot in range(size) if slot not in taken))
    return Placement(going[0], tuple(going[1:]))


def is_live(row: SnapshotRow, standing: LifeAtMark) -> bool:
    """Whether a snapshot is of the life that its journal has at a mark, as far as this can be told from the log."""
    stored = standing.stored_life
    if row.life is not None and stored is not None and row.life != stored:
        return False
    if standing.purged_at is None:
        return True
    # Offsets of two partitions cannot be compared; whoever moved the journal has purged it since.
    return row.place.partition == standing.place.partition and row.place.offset > standing.purged_at


def is_beyond(row: SnapshotRow, standing: LifeAtMark) -> bool:
    """Whether a snapshot was placed behind a mark, and perhaps in a life that began there."""
    is_behind = row.place.partition == standing.place.partition and row.place.offset > standing.place.offset
    return is_behind and (row.life is None or row.life != standing.stored_life)


def select_snapshots(
    rows: Iterable[SnapshotRow], standing: LifeAtMark, criteria: SnapshotCriteria
) -> list[SnapshotRow]:
    """The snapshots of this life that fit, the latest first: by number, then by time."""
    found = [row for row in rows if is_live(row, standing) and criteria.fits(row.seq_nr, row.timestamp)]
    return sorted(found, key=_order, reverse=True)


def life_at_mark(key: Key, mark: PartitionOffset, plan: ReadPlan) -> LifeAtMark:
    """What snapshots need to know of a journal at a mark."""
    head = plan.head
    if head is not None and head.is_begun:
        return LifeAtMark(mark, head.record_id, is_replicated=True, purged_at=plan.purged_at)
    begun = None if plan.log_from is None else life_id(key, mark.partition, plan.log_from)
    return LifeAtMark(mark, begun, is_replicated=False, purged_at=plan.purged_at)


def is_settled(mark: PartitionOffset, plan: ReadPlan) -> bool:
    """Whether the life of a plan is certainly the one at the mark: it had an action before.

    The store may have gone on since the mark, to another life even; then it takes a new mark to tell.
    """
    if plan.head is not None and plan.head.is_begun:
        place = plan.head.partition_offset
        return place.partition != mark.partition or place.offset < mark.offset
    return plan.log_from is not None and plan.log_from < mark.offset


def require_reached(key: Key, plan: ReadPlan, seq_nr: SeqNr) -> None:
    """Raises `ValidationError` where a journal does not reach to the number of a snapshot."""
    end = 0 if plan.life is None else plan.life.end
    if seq_nr <= end:
        return
    told = f"where the journal {key} ends" if end else f"and the journal {key} has no event"
    raise ValidationError(
        "seq_nr", f"{seq_nr} is above {end}, {told}.", hint="A snapshot stands for events that are appended already."
    )


def has_hole(plan: ReadPlan, snapshot: Snapshot | None) -> bool:
    """Whether events behind a snapshot, or behind nothing, are deleted."""
    return plan.life is not None and plan.life.delete_to > (0 if snapshot is None else snapshot.seq_nr)


def too_old_error(key: Key, plan: ReadPlan, snapshot: Snapshot) -> SnapshotTooOldError:
    """What is raised rather than to show a journal with a hole."""
    delete_to = 0 if plan.life is None else plan.life.delete_to
    return SnapshotTooOldError(
        f"The latest snapshot of {key} that fits is at {snapshot.seq_nr},"
        f" but its events are deleted up to {delete_to}.",
        hint=f"If {delete_to} is where it begins anew, `inorder journal snapshot delete {key.topic} {key.id}"
        f" --to {delete_to}` lets it be read from there; else ask for a later snapshot.",
        seq_nr=snapshot.seq_nr,
        delete_to=delete_to,
    )


def purged_error(key: Key) -> JournalChangedError:
    """What a saver is told whose journal has gone on to another life."""
    return JournalChangedError(
        f"The journal {key} was purged while a snapshot of it was saved; nothing was written.",
        hint="Read it again, and save what it comes to now.",
    )


def _order(row: SnapshotRow) -> tuple[SeqNr, datetime]:
    return row.seq_nr, row.timestamp


# What snapshots of journals need from a store: a few rows for each journal, overwritten in place.
#
# A snapshot is kept in the store alone; the topic knows nothing of it. To say which life of its journal it belongs
# to, it carries a *place*: the offset of the mark at which it was saved. A purge at a larger offset makes it void.
# What stands above this port decides which row to load; what stands below it sees to it that savers of one journal
# take turns, and that a purge finds every snapshot that was placed before it.


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A snapshot in its slot of the ring, without what makes it large."""

    slot: int
    seq_nr: SeqNr
    timestamp: datetime
    place: PartitionOffset
    """The mark at which it was saved; no other snapshot has the same."""
    life: UUID | None = None
    """The record id of the head that its journal had in the store; None if its life was not replicated yet."""


@dataclass(frozen=True, slots=True)
class LifeAtMark:
    """A journal at a mark, as far as snapshots need to know it."""

    place: PartitionOffset
    """The mark."""
    life: UUID | None
    """Names the journal's life there, as the store does or will."""
    is_replicated: bool
    """Whether the name is the store's own."""
    purged_at: int | None = None
    """The offset of a purge before the mark that the store may not have seen."""

    @property
    def stored_life(self) -> UUID | None:
        """The name of the life if it is certain that the store uses it."""
        return self.life if self.is_replicated else None


class SnapshotStore(Protocol):
    """Rings of snapshots. Many threads and processes use one at a time; every verb may block on the database."""

    def rows(self, key: Key) -> Sequence[SnapshotRow]:
        """All rows of a journal, in any order: of whatever life, and more than the ring's size if that was larger."""

    def load(self, key: Key, row: SnapshotRow) -> Snapshot | None:
        """The snapshot of a row; None where the slot has been overwritten or emptied since."""

    def save(self, key: Key, snapshot: Snapshot, size: int, stand: Callable[[], LifeAtMark]) -> bool:
        """Puts a snapshot into the ring as `journal.snapshots.placement` says; False where that leaves it out.

        `stand` sends the mark. It may be called several times; the last one counts. Between its call and the end of the
        write nobody else changes this journal's ring, or the write does not count and is done again. When the store has
        applied a purge behind the mark, the snapshot is refused with `JournalChangedError`, or is never seen.
        """

    def delete(self, key: Key, criteria: SnapshotCriteria, stand: Callable[[], LifeAtMark]) -> int:
        """Empties the slots that fit; says how many snapshots of the present life were in them."""

    def close(self) -> None:
        """Gives connections back; may be called twice."""


# Saves, finds and deletes the snapshots of one journal, and recovers it from the latest; `rings` has the rules.


class MarkedMoment(NamedTuple):
    """A mark, and the journal as it is there."""

    mark: PartitionOffset
    moment: Moment


@dataclass(frozen=True, slots=True)
class Recovery:
    """A snapshot, and the events behind it as a stream; all events where there is none. Both are of one moment."""

    snapshot: Snapshot | None
    events: Iterator[EventRecord]


class SnapshotHistory(NamedTuple):
    """Where snapshots are kept, and how many of each journal."""

    store: SnapshotStore
    size: int = 10


@dataclass(frozen=True, slots=True)
class JournalSnapshots:
    """The snapshots of one journal."""

    key: Key
    rings: SnapshotHistory
    look: Callable[[SeqNr], MarkedMoment]
    """Sends a mark and looks at the journal there; events below the number are of no interest."""
    reader: JournalReader
    deadline: Callable[[str], Deadline]

    def save(self, snapshot: Snapshot) -> bool:
        """Saves it; False where the ring is full of newer ones."""
        check_seq_nr(snapshot.seq_nr)
        deadline = self.deadline(f"Saving a snapshot of {self.key}")
        store, size = self.rings
        return store.save(self.key, snapshot, size, lambda: self._settled(snapshot.seq_nr, deadline))

    def latest(self, criteria: SnapshotCriteria) -> Snapshot | None:
        """The latest that fits."""
        return self._found(criteria, MAX_SEQ_NR)[1]

    def all(self) -> list[Snapshot]:
        """All of this life, the latest first."""
        deadline = self.deadline(f"Looking for snapshots of {self.key}")
        while True:
            rows = self._rows(self.look(MAX_SEQ_NR), SnapshotCriteria())
            found = None if rows is None else [self.rings.store.load(self.key, row) for row in rows]
            if found is not None and None not in found:
                return [each for each in found if each is not None]
            deadline.remaining()

    def delete(self, criteria: SnapshotCriteria) -> int:
        """Deletes those that fit; returns how many there were."""
        return self.rings.store.delete(self.key, criteria, lambda: self._standing(self.look(MAX_SEQ_NR)))

    def recover(self, criteria: SnapshotCriteria) -> Recovery:
        """The latest that fits, with the events behind it."""
        deadline = self.deadline(f"Recovering {self.key}")
        look, found = self._found(criteria, MIN_SEQ_NR)
        while has_hole(look.moment.plan, found):
            # A purge may have been replicated since the look, and have taken a snapshot with it.
            again, refound = self._found(criteria, MIN_SEQ_NR)
            if self._standing(again).life == self._standing(look).life:
                break
            look, found = again, refound
            deadline.remaining()
        if found is None:
            return Recovery(None, self.reader.events(look.moment, SeqRange.all()))
        if has_hole(look.moment.plan, found):
            raise too_old_error(self.key, look.moment.plan, found)
        first = next_seq_nr(found.seq_nr)
        behind = iter(()) if first is None else self.reader.events(look.moment, SeqRange(first, MAX_SEQ_NR))
        return Recovery(found, behind)

    def _settled(self, seq_nr: SeqNr, deadline: Deadline) -> LifeAtMark:
        while True:
            deadline.remaining()
            look = self.look(MAX_SEQ_NR)
            require_reached(self.key, look.moment.plan, seq_nr)
            if is_settled(look.mark, look.moment.plan):
                return self._standing(look)

    def _found(self, criteria: SnapshotCriteria, from_seq_nr: SeqNr) -> tuple[MarkedMoment, Snapshot | None]:
        deadline = self.deadline(f"Looking for a snapshot of {self.key}")
        while True:
            look = self.look(from_seq_nr)
            rows = self._rows(look, criteria)
            if rows == []:
                return look, None
            found = self.rings.store.load(self.key, rows[0]) if rows else None
            if found is not None:
                return look, found
            deadline.remaining()

    def _rows(self, look: MarkedMoment, criteria: SnapshotCriteria) -> list[SnapshotRow] | None:
        """Those that fit, the latest first; None where it takes a new look to tell."""
        if look.moment.plan.life is None:
            return []
        rows, standing = self.rings.store.rows(self.key), self._standing(look)
        return None if any(is_beyond(row, standing) for row in rows) else select_snapshots(rows, standing, criteria)

    def _standing(self, look: MarkedMoment) -> LifeAtMark:
        return life_at_mark(self.key, look.mark, look.moment.plan)
