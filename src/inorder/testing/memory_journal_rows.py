"""The rows of a store in memory, as an audit sees them; rows can be changed behind the replicator's back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from inorder.journal.audit.stored_rows import Look, StoredRow
from inorder.journal.replication.stored import event_columns
from inorder.model.journal import Key, PartitionOffset
from inorder.ports.journal_store import JournalHead
from inorder.testing.memory_replica import MemoryReplica

Change = Callable[[list[StoredRow]], list[StoredRow]]


class MemoryJournalRows:
    """A `JournalRows`; `heads` and `changes` are what somebody has done to the store by hand."""

    def __init__(self, store: MemoryReplica) -> None:
        self.heads: dict[Key, JournalHead | None] = {}
        self.changes: dict[Key, Change] = {}
        self._store = store

    def looks(self, keys: Sequence[Key]) -> Mapping[Key, Look]:
        """Heads and quarantine."""
        found = {key: self.look(key) for key in keys}
        return {key: look for key, look in found.items() if look != Look()}

    def look(self, key: Key) -> Look:
        """Head and quarantine of one journal."""
        waiting = self._store.quarantined(key.topic, key.id)
        head = self.heads[key] if key in self.heads else self._store.head(key)
        return Look(head, frozenset(PartitionOffset(each.partition, each.offset) for each in waiting))

    def rows(self, key: Key, head: JournalHead | None) -> Iterator[StoredRow]:  # noqa: ARG002 - the port's signature
        """All rows."""
        rows = list(self._rows(key))
        return iter(self.changes.get(key, list)(rows))

    def offset(self, topic: str, partition: int) -> int | None:
        """The replicated offset."""
        return self._store.offset(topic, partition)

    def ids(self, topic: str) -> Iterator[str]:
        """Journals with a head."""
        return self._store.ids(topic)

    def close(self) -> None:
        """Nothing is held."""

    def _rows(self, key: Key) -> Iterator[StoredRow]:
        rows = self._store._rows(key)
        for (segment, seq_nr), (time, event, record_id) in sorted(rows.events.items(), key=lambda row: row[0]):
            if rows.is_live(segment, seq_nr, time):
                yield StoredRow(segment, seq_nr, event.timestamp, record_id.value, event_columns(event))
