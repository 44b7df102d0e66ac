"""An outbox table in memory, for simulations; the same contract suite checks it and PostgreSQL's."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from inorder.ports.outbox_store import OutboxRow, Scan


class MemoryOutbox:
    """Rows that appear when their transaction ends, with ids that were given out before."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rows: dict[int, OutboxRow] = {}
        self._open: dict[str, list[OutboxRow]] = {}
        self._last_id = 0

    def insert(self, transaction: str, topic: str, key: bytes, value: bytes) -> int:
        """Adds a row to an open transaction and gives it its id."""
        with self._changed:
            self._last_id += 1
            row = OutboxRow(self._last_id, topic, key, value, (), None, None)
            self._open.setdefault(transaction, []).append(row)
            return row.id

    def end(self, transaction: str, *, commit: bool = True) -> None:
        """Shows the rows of a transaction to everybody, or drops them."""
        with self._changed:
            rows = self._open.pop(transaction, [])
            if commit:
                self._rows.update({row.id: row for row in rows})
            self._changed.notify_all()

    def count(self) -> int:
        """How many rows are visible."""
        with self._changed:
            return len(self._rows)

    def read(self, scan: Scan, limit: int) -> list[OutboxRow]:
        """One look under the lock is one snapshot."""
        with self._changed:
            above = sorted(id for id in self._rows if id > scan.above)[:limit]
            probed = (id for id in scan.probes if id in self._rows)
            return [self._rows[id] for id in sorted({*above, *probed})]

    def holders(self) -> frozenset[str]:
        """The open transactions."""
        with self._changed:
            return frozenset(self._open)

    def purge(self, ids: Sequence[int]) -> int:
        """Deletes by id."""
        with self._changed:
            found = [id for id in ids if self._rows.pop(id, None) is not None]
            self._changed.notify_all()
            return len(found)

    def take(self, id: int) -> OutboxRow | None:
        """Removes one row and gives it to the caller."""
        with self._changed:
            return self._rows.pop(id, None)

    def put_back(self, row: OutboxRow) -> None:
        """Shows a row again under its old id."""
        with self._changed:
            self._rows[row.id] = row
            self._changed.notify_all()

    def begin_sleep(self) -> bool:
        """Always possible."""
        return True

    def wait(self, seconds: float) -> None:
        """Until a transaction ends."""
        with self._changed:
            self._changed.wait(seconds)

    def end_sleep(self) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to close."""
