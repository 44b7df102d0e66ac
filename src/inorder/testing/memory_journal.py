"""Journals without servers: a log, a store, and a replicator that is as far behind as a test likes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from inorder.journal.action import Append, Delete, Mark, Purge
from inorder.journal.codec.records import action_of, events_of, timestamp_of
from inorder.journal.forks import Fork
from inorder.journal.reading.head_cache import Ahead, Known, PartitionCache, Seen, seen
from inorder.journal.replication.transition import At, Change, append, delete, purge
from inorder.model.journal import Key, PartitionOffset
from inorder.ports.deadline import Deadline
from inorder.ports.journal_log import LogRecord
from inorder.testing.memory_journal_log import MemoryJournalLog
from inorder.testing.memory_journal_store import MemoryJournalStore
from inorder.testing.memory_snapshots import MemorySnapshots


class Regime(NamedTuple):
    """How far the store is behind the log after each record; None is for ever."""

    name: str
    records_behind: int | None = 0
    offset_behind: int = 0
    """How much further the partition's offset is behind."""
    forgets: bool = False
    """Whether the log loses what is replicated."""


REGIMES = (
    Regime("the store is empty", None),
    Regime("the log has only marks", forgets=True),
    Regime("in step"),
    *(Regime(f"the offset is {n} behind", 0, n) for n in (1, 2, 3)),
    *(Regime(f"the store is {n} behind", n) for n in (1, 2, 3, 4)),
    *(Regime(f"the store is {n} behind, its offset one more", n, 1) for n in (1, 2, 3)),
)
"""The ways in which the original's tests let replication lag."""


class MemoryReplicator:
    """Applies records to the store, one by one, up to wherever it is told."""

    def __init__(
        self,
        log: MemoryJournalLog,
        store: MemoryJournalStore,
        *,
        segment_size: int = 2,
        snapshots: MemorySnapshots | None = None,
    ) -> None:
        self._log = log
        self._store = store
        self._snapshots = snapshots
        self._segment_size = segment_size
        self._next: dict[tuple[str, int], int] = {}
        self._lives = 0
        self.forks: list[Fork] = []

    def follow(self, regime: Regime) -> None:
        """Replicates after every record from now on, as far as the regime lets it."""
        self._log.on_sent = lambda topic, partition: self._keep_up(regime, topic, partition)

    def replicate(self, topic: str, partition: int, end: int, *, moves_offset: bool = True) -> None:
        """Applies the records below an offset."""
        place = topic, partition
        for record in self._log.lying(topic, partition, self._next.get(place, 0), end):
            self._apply(record, topic, partition)
        self._next[place] = max(end, self._next.get(place, 0))
        if moves_offset and end:
            self._store.move_offset(topic, partition, end - 1)

    def _keep_up(self, regime: Regime, topic: str, partition: int) -> None:
        if regime.records_behind is None:
            return
        end = max(0, self._log.end(topic, partition) - regime.records_behind)
        self.replicate(topic, partition, end, moves_offset=False)
        if end > regime.offset_behind:
            self._store.move_offset(topic, partition, end - 1 - regime.offset_behind)
        if regime.forgets:
            self._log.forget(topic, partition, end)

    def _apply(self, record: LogRecord, topic: str, partition: int) -> None:
        action = action_of(record, topic, partition)
        if action is None or isinstance(action, Mark) or record.key is None:
            return
        key = Key(record.key.decode(), topic)
        change = self._change(key, action, record, partition)
        if self._snapshots is not None and isinstance(action, Purge):
            self._snapshots.void(key, PartitionOffset(partition, record.offset))
        self._store.carry_out(key, change.statements)
        self.forks.extend(change.forks)

    def _change(self, key: Key, action: Append | Delete | Purge, record: LogRecord, partition: int) -> Change:
        head = self._store.pointer(key)
        at = At(PartitionOffset(partition, record.offset), timestamp_of(record))
        match action:
            case Append():
                self._lives += 1
                events = events_of(action, record, key.topic, partition)
                return append(head, at, events, segment_size=self._segment_size, record_id=UUID(int=self._lives))
            case Delete():
                return delete(head, at, action.to, segment_size=self._segment_size, origin=action.origin)
            case Purge():
                return purge(head, at)


class MemoryHeads:
    """A head cache that has always seen everything."""

    def __init__(self, log: MemoryJournalLog, store: MemoryJournalStore, **limits: int) -> None:
        self._log = log
        self._store = store
        self._limits = limits
        self._caches: dict[tuple[str, int], PartitionCache] = {}

    def find(self, key: Key, partition: int, offset: int, deadline: Deadline) -> Ahead | Known | None:  # noqa: ARG002 - the port's signature
        """What the log has of the journal."""
        cache = self._caches.setdefault((key.topic, partition), PartitionCache(**self._limits))
        replicated = self._store.offset(key.topic, partition)
        if replicated is not None:
            cache.remove(replicated)
        cache.add(self._seen(key.topic, partition, -1 if cache.offset is None else cache.offset))
        found = cache.find(key.id.encode(), offset)
        return found if isinstance(found, Ahead | Known) else None

    def _seen(self, topic: str, partition: int, after: int) -> Iterator[Seen]:
        for record in self._log.lying(topic, partition, after + 1, self._log.end(topic, partition)):
            yield seen(record, topic, partition)
