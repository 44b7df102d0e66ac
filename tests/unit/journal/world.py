"""A journal with everything around it in memory, and short methods for its events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from inorder.journal.action import Delete
from inorder.journal.client import Journal, JournalClient
from inorder.journal.life import Fork
from inorder.journal.reading.reader import Heads, JournalReader, OffsetNotices, StoreWait
from inorder.journal.snapshots import SnapshotHistory
from inorder.model.journal import MAX_SEQ_NR, Event, EventRecord, Key, PartitionOffset
from inorder.testing.memory_journal import (
    MemoryHeads,
    MemoryJournalLog,
    MemoryJournalStore,
    MemoryReplicator,
    MemorySnapshots,
    Regime,
)

KEY = Key("account-1", "journal")
WAIT_SECONDS = 0.5
"""For how long reads wait for the store, in worlds with notices."""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class World:
    """One log, one store, a replicator that is driven by the test, and a client."""

    def __init__(
        self,
        *,
        cached: bool = False,
        doubled: bool = False,
        keeps_rows: bool = False,
        segment_size: int = 2,
        buffer_bytes: int = 1_000_000,
        heads: Heads | None = None,
        notices: OffsetNotices | None = None,
        store: MemoryJournalStore | None = None,
        log: MemoryJournalLog | None = None,
        snapshots: MemorySnapshots | None = None,
        timeout_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log = log or MemoryJournalLog(doubled=doubled)
        self.store = store or MemoryJournalStore(keeps_rows=keeps_rows)
        self.snapshots = snapshots or MemorySnapshots()
        self.replicator = MemoryReplicator(self.log, self.store, segment_size=segment_size, snapshots=self.snapshots)
        self.forks: list[Fork] = []
        self.heads = MemoryHeads(self.log, self.store) if cached else heads
        reader = JournalReader(
            self.log,
            self.store,
            clock,
            heads=self.heads,
            store_wait=None if notices is None else StoreWait(self.store, notices, clock, seconds=WAIT_SECONDS),
            buffer_bytes=buffer_bytes,
            timeout_seconds=timeout_seconds,
            on_fork=lambda _, fork: self.forks.append(fork),
        )
        self.journals = JournalClient(
            self.log,
            self.store,
            reader,
            snapshot_history=SnapshotHistory(self.snapshots, 3),
            now=lambda: NOON,
            clock=clock,
            timeout_seconds=timeout_seconds,
        )
        self.journal = self.journals.journal(KEY)

    def follow(self, regime: Regime) -> World:
        self.replicator.follow(regime)
        return self

    def append(self, *seq_nrs: int) -> PartitionOffset:
        return self.journal.append([event(seq_nr) for seq_nr in seq_nrs], allow_gaps=True)

    def delete(self, to: int) -> PartitionOffset:
        """A delete that does not read the end of the journal first."""
        return self.journals.send(KEY, Delete(to)).result()

    def replicate(self, *, behind: int = 0) -> None:
        """Lets the store catch up with all but the last records."""
        self.replicator.replicate(KEY.topic, 0, max(0, self.log.end(KEY.topic, 0) - behind))

    def read(self, from_seq_nr: int = 1, to: int = MAX_SEQ_NR) -> list[int]:
        return numbers(list(self.journal.read(from_seq_nr, to)))

    def other(self, id: str) -> Journal:
        return self.journals.journal(Key(id, KEY.topic))


def event(seq_nr: int) -> Event:
    return Event(seq_nr, f"event {seq_nr}")


def numbers(records: Sequence[EventRecord]) -> list[int]:
    assert [record.event for record in records] == [event(record.seq_nr) for record in records]
    return [record.seq_nr for record in records]
