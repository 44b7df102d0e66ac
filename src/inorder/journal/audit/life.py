"""A journal since its last purge as the topic has it, and whether the head of a store agrees with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from inorder.journal.codec.records import timestamp_of
from inorder.journal.expiry import expiry_at
from inorder.ports.journal_log import LogRecord
from inorder.ports.journal_store import Expiry, JournalHead


@dataclass(slots=True)
class FoldedLife:
    """What the records so far lead to, and where that last changed."""

    head: JournalHead | None = None
    is_whole: bool = True
    """Whether all of it is known; else it began before the first record that the topic still has."""
    began_at: int = -1
    changed_at: int = -1
    last_at: int = -1
    expiries: set[Expiry | None] = field(default_factory=set)

    def follow(self, record: LogRecord, head: JournalHead | None, *, is_append: bool) -> None:
        """The life after a record."""
        before, self.head, self.last_at = self.head, head, record.offset
        if head is None:
            return
        if before is None:
            self.began_at = record.offset
        if before is None or replace(before, partition_offset=head.partition_offset) != head:
            self.changed_at = record.offset
        if is_append and before is not None and before.seq_nr == head.seq_nr and head.expiry is not None:
            # All of it are forks. A replicator that has them in one slice with the append before them takes their time
            # for the day of the expiry: either is right.
            self.expiries |= {head.expiry, expiry_at(timestamp_of(record), head.expiry.after)}
        elif is_append or not self.expiries:
            self.expiries = {head.expiry}

    def agrees(self, head: JournalHead) -> bool:
        """Whether the head of the store is the one that the topic leads to.

        Actions that change nothing may have been left out of its offset.
        """
        expected = self.head
        if expected is None:
            return False
        same = (head.seq_nr, head.delete_to or 0) == (expected.seq_nr, expected.delete_to or 0)
        is_placed = not self.is_whole or self.changed_at <= head.partition_offset.offset <= self.last_at
        return same and is_placed and (not self.expiries or head.expiry in self.expiries)
