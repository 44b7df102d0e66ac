"""Saves, finds and deletes the snapshots of one journal, and recovers it from the latest; `rings` has the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from inorder.journal.reading.reader import JournalReader, Moment
from inorder.journal.snapshots.rings import (
    fitting,
    has_hole,
    is_beyond,
    is_settled,
    require_reached,
    standing_at,
    too_old,
)
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
)
from inorder.model.journal.seq_nr import checked_seq_nr, next_seq_nr
from inorder.ports.deadline import Deadline
from inorder.ports.snapshot_store import SnapshotRow, SnapshotStore, Standing


class Look(NamedTuple):
    """A mark, and the journal as it is there."""

    mark: PartitionOffset
    moment: Moment


@dataclass(frozen=True, slots=True)
class Recovery:
    """A snapshot, and the events behind it as a stream; all events where there is none. Both are of one moment."""

    snapshot: Snapshot | None
    events: Iterator[EventRecord]


class Rings(NamedTuple):
    """Where snapshots are kept, and how many of each journal."""

    store: SnapshotStore
    size: int = 10


@dataclass(frozen=True, slots=True)
class JournalSnapshots:
    """The snapshots of one journal."""

    key: Key
    rings: Rings
    look: Callable[[SeqNr], Look]
    """Sends a mark and looks at the journal there; events below the number are of no interest."""
    reader: JournalReader
    deadline: Callable[[str], Deadline]

    def save(self, snapshot: Snapshot) -> bool:
        """Saves it; False where the ring is full of newer ones."""
        checked_seq_nr(snapshot.seq_nr)
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
            raise too_old(self.key, look.moment.plan, found)
        first = next_seq_nr(found.seq_nr)
        behind = iter(()) if first is None else self.reader.events(look.moment, SeqRange(first, MAX_SEQ_NR))
        return Recovery(found, behind)

    def _settled(self, seq_nr: SeqNr, deadline: Deadline) -> Standing:
        while True:
            deadline.remaining()
            look = self.look(MAX_SEQ_NR)
            require_reached(self.key, look.moment.plan, seq_nr)
            if is_settled(look.mark, look.moment.plan):
                return self._standing(look)

    def _found(self, criteria: SnapshotCriteria, from_seq_nr: SeqNr) -> tuple[Look, Snapshot | None]:
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

    def _rows(self, look: Look, criteria: SnapshotCriteria) -> list[SnapshotRow] | None:
        """Those that fit, the latest first; None where it takes a new look to tell."""
        if look.moment.plan.life is None:
            return []
        rows, standing = self.rings.store.rows(self.key), self._standing(look)
        return None if any(is_beyond(row, standing) for row in rows) else fitting(rows, standing, criteria)

    def _standing(self, look: Look) -> Standing:
        return standing_at(self.key, look.mark, look.moment.plan)
