"""What snapshots of journals need from a store: a few rows for each journal, overwritten in place.

A snapshot is kept in the store alone; the topic knows nothing of it. To say which life of its journal it belongs to, it
carries a *place*: the offset of the mark at which it was saved. A purge at a larger offset makes it void. What stands
above this port decides which row to load; what stands below it sees to it that savers of one journal take turns, and
that a purge finds every snapshot that was placed before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from inorder.model.journal import Key, PartitionOffset, SeqNr, Snapshot, SnapshotCriteria


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
class Standing:
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

    def save(self, key: Key, snapshot: Snapshot, size: int, stand: Callable[[], Standing]) -> bool:
        """Puts a snapshot into the ring as `journal.snapshots.placement` says; False where that leaves it out.

        `stand` sends the mark. It may be called several times; the last one counts. Between its call and the end of the
        write nobody else changes this journal's ring, or the write does not count and is done again. When the store has
        applied a purge behind the mark, the snapshot is refused with `JournalChangedError`, or is never seen.
        """

    def delete(self, key: Key, criteria: SnapshotCriteria, stand: Callable[[], Standing]) -> int:
        """Empties the slots that fit; says how many snapshots of the present life were in them."""

    def close(self) -> None:
        """Gives connections back; may be called twice."""
