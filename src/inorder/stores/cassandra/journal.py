"""Journals in Cassandra, as readers see them: heads, offsets, and events a page at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from inorder.journal.quarantine import is_parked
from inorder.journal.segments import (
    DEFAULT_SEGMENTS,
    OLD_SEGMENTS,
    journal_segment,
    metajournal_segments,
    segment_size,
)
from inorder.journal.stored import check_unique, stored_event
from inorder.model.journal import EventRecord, Key, PartitionOffset, SeqNr
from inorder.ports.journal_store import Expiry, JournalHead
from inorder.stores.cassandra.schema import install
from inorder.stores.cassandra.session import CassandraSession, our_errors

AT_ONCE: Final = 200
"""Segments of `metajournal` that are asked together."""


class CassandraJournal:
    """An `EventualJournal` on a keyspace."""

    def __init__(self, url: str) -> None:
        self._session = CassandraSession(url)

    def install(self) -> list[str]:
        """Makes keyspace and tables, or migrates them; returns the statements that were run."""
        return install(self._session)

    def pointer(self, key: Key) -> JournalHead | None:
        """The journal's head, in the segment where it is now or was in old versions."""
        waiting = self._session.execute("quarantine_begins", key.topic, key.id).one()
        if waiting is not None:
            raise is_parked(key, waiting.partition, waiting.offset)
        for segment in metajournal_segments(key.id):
            row = self._session.execute("head", key.topic, segment, key.id).one()
            if row is not None:
                return head_of(row)
        return None

    def offset(self, topic: str, partition: int) -> int | None:
        """The partition's replicated offset."""
        row = self._session.execute("offset", topic, partition, serial=True).one()
        return None if row is None or row[0] is None or row[0] < 0 else int(row[0])

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        """The visible events from a number on, segment after segment up to the head's last."""
        first = max(from_seq_nr, (head.delete_to or 0) + 1)
        before = 0
        for segment in range(journal_segment(first, head.segment_size), _last_segment(head) + 1):
            for row in self._rows(key, segment, first, head.seq_nr):
                if head.record_id is not None and row.meta_record_id != head.record_id:
                    continue
                check_unique(key, before, row.seq_nr)
                before = row.seq_nr
                yield _event(row)

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all journals of a topic, segment after segment."""
        return (id for (id,) in self._of_all_segments("ids", topic))

    def expired(self, topic: str, before: date) -> Iterator[str]:
        """The ids of the journals that were to go before a day.

        The index of the table answers for one day only, so all heads are looked at: a missed day may be any.
        """
        rows = self._of_all_segments("expiries", topic)
        return (id for id, on in rows if on is not None and _date(on) < before)

    def _of_all_segments(self, name: str, topic: str) -> Iterator[Any]:
        for first in range(0, max(DEFAULT_SEGMENTS, OLD_SEGMENTS), AT_ONCE):
            with our_errors():
                statement, session = self._session.prepared(name), self._session.session
                answers = [session.execute_async(statement, (topic, first + step)) for step in range(AT_ONCE)]
                found = [row for answer in answers for row in answer.result()]
            yield from found

    def close(self) -> None:
        """Leaves the cluster."""
        self._session.close()

    def _rows(self, key: Key, segment: int, first: SeqNr, last: SeqNr) -> Iterator[Any]:
        rows = iter(self._session.execute("events", key.id, key.topic, segment, first, last))
        while True:
            with our_errors():  # the next page may fail where the first did not
                row = next(rows, None)
            if row is None:
                return
            yield row


def head_of(row: Sequence[Any]) -> JournalHead:
    """The head of a row, in the order of the statement `head`."""
    partition, offset, size, seq_nr, delete_to, expire_after, expire_on, record_id = row
    expiry = None
    if expire_after is not None and expire_on is not None:
        expiry = Expiry(_duration(expire_after), _date(expire_on))
    return JournalHead(PartitionOffset(partition, offset), segment_size(size), seq_nr, delete_to, expiry, record_id)


def _event(row: Any) -> EventRecord:
    return stored_event(
        row.seq_nr,
        row.timestamp.replace(tzinfo=UTC),
        row.partition,
        row.offset,
        row.origin,
        row.version,
        row.tags,
        row.metadata,
        row.payload_type,
        row.payload_txt,
        row.payload_bin,
        dict(row.headers or {}),
    )


def _last_segment(head: JournalHead) -> int:
    return journal_segment(head.seq_nr, head.segment_size)


def _duration(value: Any) -> timedelta:
    return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)


def _date(value: Any) -> date:
    return datetime.fromtimestamp(value.seconds, UTC).date()
