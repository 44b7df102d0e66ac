"""What a subscription remembers of journals beyond its memory: a temporary SQLite database, which ends with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final, NamedTuple

_TABLE: Final = """
    CREATE TABLE state (
        partition INTEGER, id BLOB, last INTEGER, state BLOB, PRIMARY KEY (partition, id)
    ) WITHOUT ROWID
"""
_INDEX: Final = "CREATE INDEX state_last ON state (partition, last)"


class SpilledState(NamedTuple):
    """The state of a journal as of the record at an offset."""

    partition: int
    id: bytes
    last: int
    state: bytes


class StateSpill:
    """States by journal, on disk; the file has no name and is gone when it is closed. Used by one thread at a time."""

    def __init__(self) -> None:
        self._database: sqlite3.Connection | None = None

    def get(self, partition: int, id: bytes) -> bytes | None:
        if self._database is None:
            return None
        found = self._database.execute("SELECT state FROM state WHERE partition = ? AND id = ?", (partition, id))
        row = found.fetchone()
        return None if row is None else bytes(row[0])

    def put(self, states: Iterable[SpilledState]) -> None:
        rows = list(states)
        if rows:
            self._open().executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", rows)

    def remove(self, partition: int, last: int) -> int:
        """Removes the states of journals whose last record is not above an offset; returns how many."""
        if self._database is None:
            return 0
        return self._database.execute("DELETE FROM state WHERE partition = ? AND last <= ?", (partition, last)).rowcount

    def close(self) -> None:
        """Removes everything; may be called twice."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            # An empty name is a private file that SQLite deletes. A thread pool may iterate over a subscription.
            self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute(_TABLE)
            self._database.execute(_INDEX)
        return self._database
