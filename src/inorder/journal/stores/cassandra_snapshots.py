"""Snapshots in Cassandra: savers of one journal take turns, and every cell has the time of its mark.

A turn is a row in `locks` that expires. Its holder sends a mark, reads the history, writes, and releases the turn by a
compare-and-set. If that finds the turn gone, nothing counts and all is done again with a new mark.

A cell's time is made from the mark's offset, as in `cassandra_clock.py`: the tombstone of a purge covers everything
placed before it, whenever it is written; and a saver that was paused and lost its turn loses to the next ones, since
their marks come after its own. No two snapshots have the same time, so the cells of two never mix.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypeVar
from uuid import uuid4

from inorder.journal.snapshots import LifeAtMark, SnapshotRow, place_snapshot, select_snapshots
from inorder.journal.stores.cassandra_clock import PartitionClocks
from inorder.journal.stores.cassandra_session import CassandraSession
from inorder.journal.stores.rows import SnapshotColumns, snapshot_columns, stored_snapshot
from inorder.model.errors import TransientError
from inorder.model.journal import Key, PartitionOffset, Snapshot, SnapshotCriteria

T = TypeVar("T")

TURN_SECONDS: Final = 30
PATIENCE_SECONDS: Final = 60.0
"""Longer than a turn, so that the turn of a saver that died expires meanwhile."""
_PAUSE_SECONDS: Final = 0.02


class CassandraSnapshots:
    """A `SnapshotStore` on a keyspace."""

    def __init__(self, url: str, *, turn_seconds: int = TURN_SECONDS) -> None:
        self._session = CassandraSession(url)
        self._turn_seconds = turn_seconds
        self._clocks = PartitionClocks(self._session)

    def rows(self, key: Key) -> list[SnapshotRow]:
        found = self._session.execute("snapshots", key.id, key.topic)
        return [
            SnapshotRow(slot, seq_nr, timestamp.replace(tzinfo=UTC), PartitionOffset(partition, offset), life)
            for slot, seq_nr, timestamp, partition, offset, life in found
        ]

    def load(self, key: Key, row: SnapshotRow) -> Snapshot | None:
        found = self._session.execute("snapshot", key.id, key.topic, row.slot).one()
        if found is None or (found.partition, found.offset) != (row.place.partition, row.place.offset):
            return None
        columns = SnapshotColumns(*found[2:])
        return stored_snapshot(columns._replace(timestamp=columns.timestamp.replace(tzinfo=UTC)))

    def save(self, key: Key, snapshot: Snapshot, size: int, send_mark: Callable[[], LifeAtMark]) -> bool:
        columns = snapshot_columns(snapshot)

        def write() -> bool:
            at_mark = send_mark()
            placed = place_snapshot(self.rows(key), at_mark, snapshot.seq_nr, snapshot.timestamp, size)
            if placed is None:
                return False
            place, life = at_mark.place, at_mark.stored_life
            row = key.id, key.topic, placed.slot, place.partition, place.offset, life, *columns
            micros = self._micros(key, at_mark)
            self._session.execute("save_snapshot", *row, micros)
            for slot in placed.emptied:
                self._session.execute("delete_snapshot", micros, key.id, key.topic, slot)
            return True

        return self._in_turn(key, write)

    def delete(self, key: Key, criteria: SnapshotCriteria, send_mark: Callable[[], LifeAtMark]) -> int:
        def write() -> int:
            at_mark = send_mark()
            going = select_snapshots(self.rows(key), at_mark, criteria)
            micros = self._micros(key, at_mark) if going else 0
            for row in going:
                self._session.execute("delete_snapshot", micros, key.id, key.topic, row.slot)
            return len(going)

        return self._in_turn(key, write)

    def close(self) -> None:
        self._session.close()

    def _in_turn(self, key: Key, write: Callable[[], T]) -> T:
        name, token = f"snapshot {key}", str(uuid4())
        while True:
            self._take_turn(name, token)
            try:
                done = write()
            finally:
                is_ours = bool(self._session.execute("unlock_snapshots", name, token).one()[0])
            if is_ours:
                return done

    def _take_turn(self, name: str, token: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = threading.Event()
        while not self._has_turn(name, token):
            if time.monotonic() > deadline:
                raise TransientError(
                    f"Timed out after {PATIENCE_SECONDS:g} s: other processes hold the lock {name!r}.",
                    hint=f"A lock expires within {self._turn_seconds} s; try again.",
                )
            pause.wait(_PAUSE_SECONDS)

    def _has_turn(self, name: str, token: str) -> bool:
        seconds = self._turn_seconds
        row = name, seconds * 1000, datetime.now(UTC), token, seconds
        answer = self._session.execute("lock_snapshots", *row).one()
        # Ours too if the answer to the first request was lost.
        return bool(answer[0]) or getattr(answer, "metadata", None) == token

    def _micros(self, key: Key, at_mark: LifeAtMark) -> int:
        # Read each time: a replicator may have made a new clock since.
        return self._clocks.settle(key.topic, at_mark.place.partition).micros(at_mark.place.offset)
