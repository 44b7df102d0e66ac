"""Snapshots in memory; the real stores pass the same contract."""

from __future__ import annotations

import threading
from collections.abc import Callable

from inorder.journal.snapshots.rings import fitting, placement, purged_meanwhile
from inorder.model.journal import Key, PartitionOffset, Snapshot, SnapshotCriteria
from inorder.ports.snapshot_store import SnapshotRow, Standing


class MemorySnapshots:
    """One lock for all rings; a purge is remembered, so that a saver who is late finds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings: dict[Key, dict[int, tuple[SnapshotRow, Snapshot]]] = {}
        self._purged: dict[Key, PartitionOffset] = {}

    def rows(self, key: Key) -> list[SnapshotRow]:
        """The ring."""
        with self._lock:
            return [row for row, _ in self._rings.get(key, {}).values()]

    def load(self, key: Key, row: SnapshotRow) -> Snapshot | None:
        """One snapshot, if its slot is as it was."""
        found, snapshot = self._rings.get(key, {}).get(row.slot, (None, None))
        return snapshot if found == row else None

    def save(self, key: Key, snapshot: Snapshot, size: int, stand: Callable[[], Standing]) -> bool:
        """Under the lock, from the mark on."""
        standing = stand()
        with self._lock:
            if _is_void(standing.place, self._purged.get(key)):
                raise purged_meanwhile(key)
            ring = self._rings.setdefault(key, {})
            rows = [row for row, _ in ring.values()]
            placed = placement(rows, standing, snapshot.seq_nr, snapshot.timestamp, size)
            if placed is None:
                return False
            for slot in placed.emptied:
                del ring[slot]
            row = SnapshotRow(placed.slot, snapshot.seq_nr, snapshot.timestamp, standing.place, standing.stored_life)
            ring[placed.slot] = row, snapshot
            return True

    def delete(self, key: Key, criteria: SnapshotCriteria, stand: Callable[[], Standing]) -> int:
        """Under the lock."""
        standing = stand()
        with self._lock:
            ring = self._rings.get(key, {})
            going = fitting([row for row, _ in ring.values()], standing, criteria)
            for row in going:
                del ring[row.slot]
            return len(going)

    def void(self, key: Key, purge: PartitionOffset) -> None:
        """What a replicator does when it applies a purge."""
        with self._lock:
            self._purged[key] = max(purge, self._purged.get(key, purge))
            ring = self._rings.get(key, {})
            for slot in [slot for slot, (row, _) in ring.items() if _is_void(row.place, purge)]:
                del ring[slot]

    def close(self) -> None:
        """Nothing is held."""


def _is_void(place: PartitionOffset, purge: PartitionOffset | None) -> bool:
    return purge is not None and (place.partition != purge.partition or place.offset < purge.offset)
