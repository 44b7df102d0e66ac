"""Journals in PostgreSQL, as an audit sees them: every row that is there, page by page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import psycopg

from inorder import sql
from inorder.journal.audit.stored_rows import Look, StoredRow
from inorder.journal.replication.stored import EventColumns
from inorder.model.journal import Key, PartitionOffset
from inorder.ports.journal_store import JournalHead
from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.journal import PAGE, PostgresJournal, head_of
from inorder.stores.postgres.sqlstate import our_errors

_STATEMENTS: Final = sql.load("inorder.stores.postgres", "stored_rows.sql")
_HEADS: Final = sql.load("inorder.stores.postgres", "journal.sql")["heads"]


class PostgresJournalRows:
    """A `JournalRows` on one connection, beside a reader."""

    def __init__(self, url: str, *, page: int = PAGE) -> None:
        self._url = url
        self._page = page
        self._journal = PostgresJournal(url, application_name="inorder audit")
        self._connection: psycopg.Connection[Any] | None = None

    def looks(self, keys: Sequence[Key]) -> Mapping[Key, Look]:
        """Heads and quarantine of some journals of one topic."""
        if not keys:
            return {}
        topic, bound = keys[0].topic, {"topic": keys[0].topic, "ids": [key.id for key in keys]}
        waiting = defaultdict[str, set[PartitionOffset]](set)
        for id, partition, offset in self._fetch(_STATEMENTS["waiting"], **bound):
            waiting[id].add(PartitionOffset(partition, offset))
        heads = {id: head_of(row) for id, *row in self._fetch(_HEADS, **bound)}
        ids = waiting.keys() | heads.keys()
        return {Key(id, topic): Look(heads.get(id), frozenset(waiting.get(id, ()))) for id in ids}

    def rows(self, key: Key, head: JournalHead | None) -> Iterator[StoredRow]:  # noqa: ARG002 - here all are found
        """All rows of a journal."""
        place: tuple[Any, ...] = (-1, 0, "-infinity")
        while rows := self._page_of(key, *place):
            yield from map(_row, rows)
            if len(rows) < self._page:
                return
            place = rows[-1][:3]

    def offset(self, topic: str, partition: int) -> int | None:
        """The partition's replicated offset."""
        return self._journal.offset(topic, partition)

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all journals of a topic."""
        return self._journal.ids(topic)

    def close(self) -> None:
        """Gives connections back."""
        self._journal.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _page_of(self, key: Key, segment: int, seq_nr: int, timestamp: Any) -> list[tuple[Any, ...]]:
        place = {"segment": segment, "seq_nr": seq_nr, "timestamp": timestamp}
        return self._fetch(_STATEMENTS["rows"], topic=key.topic, id=key.id, **place, limit=self._page)

    def _fetch(self, statement: str, **bound: Any) -> list[tuple[Any, ...]]:
        with our_errors():
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._url, "inorder audit", autocommit=True)
            return self._connection.execute(statement, bound, binary=True).fetchall()


def _row(row: tuple[Any, ...]) -> StoredRow:
    segment, seq_nr, timestamp, record_id, *rest = row
    found = EventColumns(*rest)
    return StoredRow(segment, seq_nr, timestamp, record_id, found._replace(tags=frozenset(found.tags)))
