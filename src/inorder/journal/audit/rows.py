"""The rows of one journal in a store, told apart as its head says: visible, in the wrong segment, or hidden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inorder.journal.audit.stored_rows import StoredRow
from inorder.journal.segments import journal_segment
from inorder.ports.journal_store import JournalHead

MOST_MISPLACED: Final = 100


class VisibleRows:
    """The visible rows in the order of their numbers; what else it comes by is counted or set aside."""

    def __init__(self, rows: Iterator[StoredRow], head: JournalHead | None, replicated: int) -> None:
        """What lies behind the offset `replicated` and is not visible yet is a slice in the making."""
        self.misplaced: list[StoredRow] = []
        self._rows = rows
        self._head = head
        self._replicated = replicated
        self._hidden = 0
        self._next: StoredRow | None = None

    def peek(self) -> StoredRow | None:
        """The next visible row, which stays; None at the end."""
        while self._next is None:
            row = next(self._rows, None)
            if row is None:
                return None
            if not self._is_visible(row):
                self._hidden += row.columns.offset <= self._replicated
            elif self._is_placed(row):
                self._next = row
            elif len(self.misplaced) < MOST_MISPLACED:
                self.misplaced.append(row)
        return self._next

    def take(self) -> StoredRow:
        """The next visible row; call it after `peek` has shown it."""
        row = self.peek()
        if row is None:
            raise LookupError("There is no row left.")
        self._next = None
        return row

    def hidden(self) -> int:
        """How many rows no reader sees; reads to the end."""
        while self.peek() is not None:
            self._next = None
        return self._hidden

    def _is_visible(self, row: StoredRow) -> bool:
        head = self._head
        if head is None or not (head.delete_to or 0) < row.seq_nr <= head.seq_nr:
            return False
        return head.record_id is None or row.record_id == head.record_id

    def _is_placed(self, row: StoredRow) -> bool:
        return self._head is not None and row.segment == journal_segment(row.seq_nr, self._head.segment_size)
