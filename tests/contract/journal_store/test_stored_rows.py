"""What an audit sees of a store: heads, quarantine, and every row, whether or not a reader sees it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from inorder.journal.audit.findings import JournalRows, StoredState, find_differences
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.segments import journal_segment
from inorder.journal.stores.cassandra import CassandraJournalRows
from inorder.journal.stores.opening import JournalReplicas, StoredRows, open_journal_store
from inorder.journal.stores.postgres import PostgresJournalRows
from inorder.model.journal import Key, PartitionOffset, RecordMetadata
from inorder.model.message import Record
from tests.contract.journal_store.replaying import Replicating, slice_of


@pytest.fixture(scope="module", params=["postgres", "cassandra"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A store; tests keep apart by their topics."""
    name, server = f"rows{uuid.uuid4().hex[:8]}", request.getfixturevalue(request.param)
    if request.param == "postgres":
        yield server.create_database(name)
        server.drop_database(name)
    else:
        yield f"{server.url}/{name}"


@contextmanager
def replicating(url: str, topic: str) -> Iterator[tuple[Replicating, JournalRows]]:
    with (
        closing(open_journal_store(url)) as store,
        closing(JournalReplicas(url)()) as replica,
        closing(StoredRows(url)()) as rows,
    ):
        store.install()
        yield Replicating(replica, store, Key("a", topic), 2), rows


def test_an_audit_sees_heads_quarantine_and_all_rows(url: str, unique: str) -> None:
    with replicating(url, unique) as (journal, rows):
        b = Key("b", unique)
        journal.append(1, 2, 3, payload={"n": 1}, tags=["x", "y"], metadata=RecordMetadata({"m": 1}))
        journal.append(4, payload=b"\x00", headers={"h": "v"}, expire_after=timedelta(days=1))
        journal.append(5, payload="text")
        journal.append(1, key=b)
        journal.flush()
        damaged = Record(unique, b"b", b"?", ((ACTION_HEADER, b"{"),), None, 0)
        journal.replicate(slice_of(unique, 0, [(4, damaged)]))

        looks = rows.states([journal.key, b, Key("nobody", unique)])
        head = journal.store.pointer(journal.key)
        assert looks[journal.key] == StoredState(head)
        assert looks[b].waiting == {PartitionOffset(0, 4)}
        assert looks[b].head is not None
        assert set(looks) == {journal.key, b}
        assert (rows.states([]), rows.offset(unique, 0), sorted(rows.ids(unique))) == ({}, 4, ["a", "b"])

        found = list(rows.rows(journal.key, head))
        events = journal.events()
        assert [(row.segment, row.seq_nr) for row in found] == [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]
        for event, row in zip(events, found, strict=True):
            assert find_differences(event, journal_segment(event.seq_nr, 2), row) == []
            assert (row.record_id, row.place) == (head and head.record_id, event.partition_offset)


def test_rows_are_seen_without_a_head_and_after_a_close(url: str, unique: str) -> None:
    with replicating(url, unique) as (journal, rows):
        journal.append(1, 2, 3)
        journal.flush()
        with_head = list(rows.rows(journal.key, journal.store.pointer(journal.key)))
        rows.close()
        assert list(rows.rows(journal.key, None)) == with_head
        assert list(rows.rows(Key("nobody", unique), None)) == []


def test_pages_follow_each_other(postgres_url: str, unique: str) -> None:
    with replicating(postgres_url, unique) as (journal, _), closing(PostgresJournalRows(postgres_url, page=2)) as paged:
        journal.append(*range(1, 8))
        journal.flush()
        assert [row.seq_nr for row in paged.rows(journal.key, None)] == list(range(1, 8))


def test_the_store_of_a_url_is_opened(url: str) -> None:
    is_postgres = url.startswith("postgresql")
    assert isinstance(StoredRows(url)(), PostgresJournalRows if is_postgres else CassandraJournalRows)
    assert url not in repr(StoredRows(url))
