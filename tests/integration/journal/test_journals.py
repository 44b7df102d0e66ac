"""Journals on real Kafka and PostgreSQL: what has no counterpart in memory. The rest is `tests/contract/journals`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import inorder
from inorder.journal.stores.postgres import PostgresJournal
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import TopicUnavailableError
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.journal.replicator import Replicator


@pytest.fixture
def topic(kafka_bootstrap: str, unique: str) -> str:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 2)
    return unique


@pytest.fixture
def journals(kafka_bootstrap: str, postgres_url: str) -> Iterator[inorder.Journals]:
    settings = inorder.Settings.load(None, kafka={"bootstrap.servers": kafka_bootstrap}, database={"url": postgres_url})
    store = PostgresJournal(postgres_url)
    store.install()
    store.close()
    with inorder.Journals(settings) as journals:
        yield journals


def test_what_was_replicated_is_found_by_its_id(
    journals: inorder.Journals, topic: str, kafka_bootstrap: str, postgres_url: str, eventually: Eventually
) -> None:
    for id in ("a", "b"):
        journals.journal(Key(id, topic)).append([Event(1)])
    assert list(journals.ids(topic)) == []
    with Replicator({"bootstrap.servers": kafka_bootstrap}, postgres_url, topic):
        eventually(lambda: sorted(journals.ids(topic)) == ["a", "b"])
    journals.journal(Key("a", topic)).append([Event(2)])
    assert [journals.journal(Key(id, topic)).pointer() for id in ("a", "b")] == [2, 1]


def test_an_unknown_topic_is_named(journals: inorder.Journals, unique: str) -> None:
    with pytest.raises(TopicUnavailableError, match=f"{unique}-none"):
        journals.journal(Key("id", f"{unique}-none")).append([Event(1)])
