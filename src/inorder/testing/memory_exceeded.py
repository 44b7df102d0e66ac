"""The exceeded store in memory, beside an outbox in memory; those of the databases pass the same contract suite."""

from __future__ import annotations

from inorder.ports.exceeded_store import Exceeding, Key
from inorder.ports.outbox_store import OutboxRow
from inorder.testing.memory_outbox import MemoryOutbox


class MemoryExceeded:
    """Rows that left the outbox, and the keys that wait for them."""

    def __init__(self, outbox: MemoryOutbox) -> None:
        self._outbox = outbox
        self.rows: dict[int, tuple[OutboxRow, Exceeding]] = {}

    def exceed(self, exceeding: Exceeding) -> None:
        """Moves the row if it is still there."""
        row = self._outbox.take(exceeding.row_id)
        if row is not None:
            self.rows[row.id] = (row, exceeding)

    def parked(self) -> dict[Key, tuple[int, ...]]:
        """Keys of the rows that park."""
        found: dict[Key, tuple[int, ...]] = {}
        for id, (row, exceeding) in sorted(self.rows.items()):
            if exceeding.parks and row.key is not None:
                key = (row.topic, row.key)
                found[key] = (*found.get(key, ()), id)
        return found

    def retry(self, id: int) -> None:
        """Puts a row back in its old place."""
        self._outbox.put_back(self.rows.pop(id)[0])

    def discard(self, id: int) -> None:
        """Gives a row up."""
        del self.rows[id]

    def close(self) -> None:
        """Nothing to close."""
