"""What a reader of journals needs from the store that they are replicated to.

The topic decides, the store is a copy that may be behind. A replicator applies the actions of a partition in offset
order and then moves the partition's offset. In a database with transactions both happen at once; elsewhere a journal's
head and events may be ahead of the partition's offset, never behind it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Protocol
from uuid import UUID

from inorder.model.journal import DeleteTo, EventRecord, Key, PartitionOffset, SeqNr


@dataclass(frozen=True, slots=True)
class Expiry:
    """How long a journal lives after its last append, and the day on which it may go."""

    after: timedelta
    on: date


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The row of one journal in `metajournal`: what of the log is in the store, and what of that is visible."""

    partition_offset: PartitionOffset
    """The last action of this journal that is in the store."""
    segment_size: int
    seq_nr: SeqNr
    """The largest number that was ever appended in this life of the journal; it never falls."""
    delete_to: DeleteTo | None = None
    expiry: Expiry | None = None
    record_id: UUID | None = None
    """Names this life of the journal, and its events carry it; None in rows of old versions, or with no event yet."""

    @property
    def is_begun(self) -> bool:
        """Whether an event was ever appended; a delete of a journal that is not there makes a head without any."""
        return self.record_id is not None or self.seq_nr != self.delete_to


class EventualJournal(Protocol):
    """The read side of a store. Many threads use one at a time; every verb may block on the database.

    Faults of the environment are raised as `TransientError` within a time limit of the store's own.
    """

    def pointer(self, key: Key) -> JournalHead | None:
        """The journal's head; None where the store has no such journal.

        `DamagedRecordError` where it is parked: a record of it could not be read, and waits in quarantine with all that
        came after it.
        """

    def offset(self, topic: str, partition: int) -> int | None:
        """The partition's replicated offset: every record up to it is applied. None before the first.

        What any later call on this store returns includes these records.
        """

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        """The journal's events from a number to `head.seq_nr`, those up to `head.delete_to` left out, in order.

        Gaps are no end: it goes on to `head.seq_nr` whatever is missing on the way. Events that carry another
        `record_id` than the head's are of an earlier life and left out. Two events with one number raise
        `GuaranteeError`. It reads page by page and holds one page at most; closing the iterator frees what it holds.
        It may meet changes made after `head` was read: the caller compares heads at the end.
        """

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all journals of a topic that have a head or are parked, each once, in any order; page by page.

        A parked journal is one of them though it may have no head yet: whoever walks over all journals is to meet it,
        and is told by `pointer`, instead of taking what is left for everything.
        """

    def close(self) -> None:
        """Gives connections back; may be called twice."""
