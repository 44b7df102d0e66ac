"""Journals in Cassandra, as an audit sees them: every row of the segments that a journal may have rows in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any, Final

from inorder.journal.audit.stored_rows import Look, StoredRow
from inorder.journal.replication.stored import EventColumns
from inorder.journal.segments import SegmentSpan, journal_segment, metajournal_segments
from inorder.model.journal import Key, PartitionOffset
from inorder.ports.journal_store import JournalHead
from inorder.stores.cassandra.journal import CassandraJournal, head_of
from inorder.stores.cassandra.session import CassandraSession, our_errors

AT_ONCE: Final = 64
"""Questions that are under way together."""


class CassandraJournalRows:
    """A `JournalRows` on a keyspace."""

    def __init__(self, url: str) -> None:
        self._session = CassandraSession(url)
        self._journal = CassandraJournal(url)

    def looks(self, keys: Sequence[Key]) -> Mapping[Key, Look]:
        """Heads and quarantine of some journals of one topic."""
        if not keys:
            return {}
        parked = {id for (id,) in self._session.execute("parked", keys[0].topic)}
        found: dict[Key, Look] = {}
        for key, head in zip(keys, self._heads(keys), strict=True):
            look = Look(head, self._waiting(key) if key.id in parked else frozenset())
            if look != Look():
                found[key] = look
        return found

    def rows(self, key: Key, head: JournalHead | None) -> Iterator[StoredRow]:
        """The rows of the segments of a head, and of one more at either end."""
        first, last = _segments(head)
        for segment in range(first, last + 1):
            rows = iter(self._session.execute("rows", key.id, key.topic, segment))
            while True:
                with our_errors():  # the next page may fail where the first did not
                    row = next(rows, None)
                if row is None:
                    break
                yield _row(row)

    def offset(self, topic: str, partition: int) -> int | None:
        """The partition's replicated offset."""
        return self._journal.offset(topic, partition)

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all journals of a topic."""
        return self._journal.ids(topic)

    def close(self) -> None:
        """Leaves the cluster."""
        self._session.close()
        self._journal.close()

    def _heads(self, keys: Sequence[Key]) -> Iterator[JournalHead | None]:
        statement = self._session.prepared("head")
        for start in range(0, len(keys), AT_ONCE):
            with our_errors():
                asked = [
                    [
                        self._session.session.execute_async(statement, (key.topic, segment, key.id))
                        for segment in metajournal_segments(key.id)
                    ]
                    for key in keys[start : start + AT_ONCE]
                ]
                answers = [[row for each in futures if (row := each.result().one()) is not None] for futures in asked]
            # The segment of today is asked before the old one.
            yield from (head_of(rows[0]) if rows else None for rows in answers)

    def _waiting(self, key: Key) -> frozenset[PartitionOffset]:
        rows = self._session.execute("waiting", key.topic, key.id)
        return frozenset(PartitionOffset(partition, offset) for partition, offset in rows)


def _segments(head: JournalHead | None) -> SegmentSpan:
    if head is None:
        return SegmentSpan(0, 1)
    first = journal_segment(max(1, head.delete_to or 0), head.segment_size)
    return SegmentSpan(max(0, first - 1), journal_segment(max(1, head.seq_nr), head.segment_size) + 1)


def _row(row: Any) -> StoredRow:
    segment, seq_nr, timestamp, record_id, *rest = row
    found = EventColumns(*rest)
    columns = found._replace(tags=frozenset(found.tags or ()), headers=dict(found.headers or {}))
    return StoredRow(segment, seq_nr, timestamp.replace(tzinfo=UTC), record_id, columns)
