"""Snapshots on real Kafka, PostgreSQL and Cassandra: correct before the journal is in the store, and after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import inorder
from inorder.journal.client import Journal
from inorder.journal.stores.opening import open_journal_store
from inorder.kafka.admin import ensure_topic
from tests.conftest import Eventually
from tests.integration.journal.replicator import Replicator
from tests.selection import few


@pytest.fixture
def topic(kafka_bootstrap: str, unique: str) -> str:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 2)
    return unique


@pytest.fixture(params=few(["postgres", "cassandra"], "postgres"))
def store_url(request: pytest.FixtureRequest, unique: str) -> str:
    url = (
        request.getfixturevalue("postgres_url")
        if request.param == "postgres"
        else f"{request.getfixturevalue('cassandra').url}/{unique}"
    )
    with closing(open_journal_store(url)) as store:
        store.install()
    return str(url)


@pytest.fixture(params=few([True, False], True), ids=["head cache", "no head cache"])
def journals(
    request: pytest.FixtureRequest, kafka_bootstrap: str, store_url: str, topic: str
) -> Iterator[inorder.Journals]:
    del topic  # it must be there
    settings = inorder.Settings.load(
        None,
        kafka={"bootstrap.servers": kafka_bootstrap},
        journal={"store": store_url, "head_cache": request.param, "snapshots": 2},
    )
    with inorder.Journals(settings) as journals:
        yield journals


def recovered(journal: Journal) -> tuple[object, list[int]]:
    found = journal.recover()
    return None if found.snapshot is None else found.snapshot.payload, [record.seq_nr for record in found.events]


def test_a_journal_and_its_snapshots_through_two_lives(
    journals: inorder.Journals, topic: str, kafka_bootstrap: str, store_url: str, eventually: Eventually
) -> None:
    journal = journals.journal(inorder.Key("account-1", topic))
    replicator = Replicator({"bootstrap.servers": kafka_bootstrap}, store_url, topic, segment_size=2)

    def is_replicated() -> bool:
        mark = journal.mark()
        return bool(eventually(lambda: (journals.store.offset(topic, mark.partition) or 0) >= mark.offset))

    journal.append([inorder.Event(number) for number in range(1, 6)])
    for number in (1, 2, 4):
        assert journal.save_snapshot(number, {"sum": number}, metadata="mine") is not None
    assert journal.save_snapshot(1) is None
    assert recovered(journal) == ({"sum": 4}, [5])
    with replicator:
        assert is_replicated()
        assert recovered(journal) == ({"sum": 4}, [5])
        journal.delete(4)
        assert recovered(journal) == ({"sum": 4}, [5])
        assert is_replicated()
        assert recovered(journal) == ({"sum": 4}, [5])
    journal.purge()
    assert (journal.snapshot(), recovered(journal)) == (None, (None, []))
    journal.append([inorder.Event(1), inorder.Event(2)])
    assert (journal.snapshots(), recovered(journal)) == ([], (None, [1, 2]))
    assert journal.save_snapshot(1, "second life") is not None
    assert recovered(journal) == ("second life", [2])
    with Replicator({"bootstrap.servers": kafka_bootstrap}, store_url, topic, segment_size=2):
        assert is_replicated()
        assert recovered(journal) == ("second life", [2])
    assert journal.delete_snapshots(inorder.SnapshotCriteria.of(1)) == 1
    assert recovered(journal) == (None, [1, 2])
