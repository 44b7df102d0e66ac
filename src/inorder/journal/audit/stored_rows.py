"""What an audit needs of a store: its rows as they lie there, those included that no reader sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from inorder.journal.replication.stored import EventColumns
from inorder.model.journal import Key, PartitionOffset, SeqNr
from inorder.ports.journal_store import JournalHead


class StoredRow(NamedTuple):
    """A row of the table `journal`, not decoded: what is wrong with it is for the audit to say."""

    segment: int
    seq_nr: SeqNr
    timestamp: datetime
    record_id: UUID | None
    columns: EventColumns

    @property
    def place(self) -> PartitionOffset:
        """The record that it claims to come from."""
        return PartitionOffset(self.columns.partition, self.columns.offset)


@dataclass(frozen=True, slots=True)
class Look:
    """What a store says about one journal at a moment: its head, and which of its records are in quarantine."""

    head: JournalHead | None = None
    waiting: frozenset[PartitionOffset] = frozenset()


class JournalRows(Protocol):
    """The rows of a store. Used by one thread at a time."""

    def looks(self, keys: Sequence[Key]) -> Mapping[Key, Look]:
        """What the store says about journals of one topic; those it knows nothing of are left out."""

    def rows(self, key: Key, head: JournalHead | None) -> Iterator[StoredRow]:
        """The rows of a journal by segment, number and time, page by page: whatever head or life they belong to.

        Where a table can only be asked segment by segment, these are the segments of the head and one more at either
        end; the first two where there is no head.
        """

    def offset(self, topic: str, partition: int) -> int | None:
        """The partition's replicated offset; None before the first."""

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all journals of a topic that have a head."""

    def close(self) -> None:
        """Gives connections back; may be used again afterwards."""
