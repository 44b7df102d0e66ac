"""A journal with a log in memory and a real store; a test decides when it is replicated."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

from inorder.engines.slice_work import Slice
from inorder.journal.client import JournalClient
from inorder.journal.codec import RecordSender
from inorder.journal.reading.reader import JournalReader
from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.replication.store_port import JournalReplica
from inorder.journal.snapshots import Recovery, SnapshotHistory, SnapshotStore
from inorder.journal.stores.ports import EventualJournal
from inorder.model.journal import Event, Key
from inorder.testing.memory_journal import MemoryJournalLog

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Stored:
    """One journal and its snapshots; each save is a second later than the one before."""

    def __init__(
        self, store: EventualJournal, replica: JournalReplica, snapshots: SnapshotStore, topic: str, segment_size: int
    ) -> None:
        self.log = MemoryJournalLog()
        self.snapshots = snapshots
        self.key = Key("account-1", topic)
        self._store = store
        self._replica = replica
        self._segment_size = segment_size
        self._seconds = 0
        self._lock = threading.Lock()
        self.journal = self.with_ring(3).journal(self.key)

    def with_ring(self, size: int) -> JournalClient:
        """Journals that keep the given number of snapshots."""
        reader = JournalReader(self.log, self._store, time.monotonic)
        history = SnapshotHistory(self.snapshots, size)
        return JournalClient(
            self.log, self._store, reader, snapshot_history=history, sender=RecordSender("here", "1.2"), now=self._now
        )

    def append(self, *seq_nrs: int, about: str = "") -> None:
        self.journal.append([Event(seq_nr, f"{about}{seq_nr}") for seq_nr in seq_nrs])

    def save(self, *seq_nrs: int, about: str = "") -> None:
        for seq_nr in seq_nrs:
            self.journal.save_snapshot(seq_nr, f"{about}up to {seq_nr}")

    def replicate(self, first: int | None = None, end: int | None = None) -> None:
        """Lets the store catch up, or replays from an offset."""
        offset = self._store.offset(self.key.topic, 0)
        start = first if first is not None else 0 if offset is None else offset + 1
        records = self.log.records_between(
            self.key.topic, 0, start, self.log.end(self.key.topic, 0) if end is None else end
        )
        batch = Slice(
            self.key.topic,
            0,
            offsets=[record.offset for record in records],
            keys=[record.key for record in records],
            values=[record.value for record in records],
            timestamps=[None if record.timestamp_ms is None else record.timestamp_ms * 1000 for record in records],
            headers=[record.headers for record in records],
        )
        with self._lock:
            ReplicateWorker(self._replica, self._segment_size).apply(batch, expected=0)

    def saved(self) -> list[int]:
        """The numbers of the snapshots, the latest first."""
        return [snapshot.seq_nr for snapshot in self.journal.snapshots()]

    def kept(self) -> list[int]:
        """The numbers that are in the table, whatever they are worth."""
        return sorted(row.seq_nr for row in self.snapshots.rows(self.key))

    def recovered(self) -> tuple[int | None, list[int]]:
        """The number of the snapshot, and those of the events behind it."""
        return shown(self.journal.recover())

    def _now(self) -> datetime:
        self._seconds += 1
        return NOON + timedelta(seconds=self._seconds)


def shown(recovery: Recovery) -> tuple[int | None, list[int]]:
    snapshot = recovery.snapshot
    return None if snapshot is None else snapshot.seq_nr, [record.seq_nr for record in recovery.events]
