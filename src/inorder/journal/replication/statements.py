"""What a store has to write for an action, as values: the decision is made once, each store only spells it.

They are carried out in the order given. In a store without transactions a crash may fall between any two; the order is
such that carrying out the whole again is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from inorder.journal.expiry import KEEP_EXPIRY, ExpiryChange
from inorder.journal.segments import SegmentSpan
from inorder.model.journal import DeleteTo, EventRecord, PartitionOffset, SeqNr
from inorder.ports.journal_store import JournalHead


@dataclass(frozen=True, slots=True)
class InsertEvents:
    """Rows of one segment of `journal`; each carries the record id of its journal's life."""

    segment: int
    events: tuple[EventRecord, ...]
    record_id: UUID | None


@dataclass(frozen=True, slots=True)
class InsertHead:
    """A new row of `metajournal`; it is created and updated at the time given."""

    head: JournalHead
    created: datetime
    origin: str | None


@dataclass(frozen=True, slots=True)
class UpdateHead:
    """Columns of a row of `metajournal`; None is a column that stays as it is."""

    partition_offset: PartitionOffset
    updated: datetime
    seq_nr: SeqNr | None = None
    delete_to: DeleteTo | None = None
    clears_delete_to: bool = False
    record_id: UUID | None = None
    expiry: ExpiryChange = KEEP_EXPIRY


@dataclass(frozen=True, slots=True)
class DeleteEvents:
    """All rows of some segments of `journal`; of the last one only those up to a number, where one is given."""

    segments: SegmentSpan
    to: SeqNr | None = None


@dataclass(frozen=True, slots=True)
class DeleteHead:
    """The row of `metajournal`; and, before it, the snapshots of the life that ends: those placed below the purge."""


Statement: TypeAlias = InsertEvents | InsertHead | UpdateHead | DeleteEvents | DeleteHead
