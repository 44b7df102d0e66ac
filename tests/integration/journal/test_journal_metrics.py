"""Journals with a registry, on real Kafka and PostgreSQL: the figures equal what was done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

import inorder
from inorder.app import App
from inorder.engines.job_status import JobService
from inorder.engines.measures import SILENT
from inorder.journal.stores.postgres import PostgresJournal
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import SeqNrConflictError
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.journal.replicator import Replicator


@pytest.fixture
def topic(kafka_bootstrap: str, unique: str) -> str:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 1)
    return unique


@pytest.fixture
def settings(kafka_bootstrap: str, postgres_url: str, topic: str) -> Iterator[inorder.Settings]:
    store = PostgresJournal(postgres_url)
    store.install()
    yield inorder.Settings.load(
        None,
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        journal={"topic_prefixes": [topic], "head_cache": True, "expire_per_second": 1000},
        health={"listen": "127.0.0.1:0"},
    )
    store.close()


class Figures:
    """The samples of a registry, by name and labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def of(self, name: str, **labels: str) -> float:
        return self._registry.get_sample_value(f"inorder_{name}", labels) or 0

    def sum(self, name: str, **labels: str) -> float:
        """All samples that have these labels among others."""
        return sum(
            sample.value
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name == f"inorder_{name}" and labels.items() <= sample.labels.items()
        )


def test_every_verb_of_an_application_is_counted(settings: inorder.Settings, topic: str, postgres_url: str) -> None:
    registry = CollectorRegistry()
    figures = Figures(registry)
    replicator = Replicator(dict(settings.kafka.properties), postgres_url, topic)
    with inorder.Journals(settings, metrics=registry) as journals:
        journal = journals.journal(Key("id", topic))
        journal.append([Event(1, {"n": 1}), Event(2, "two")])
        journal.append([Event(3, b"three")])
        assert [record.seq_nr for record in journal.read()] == [1, 2, 3]
        assert journal.pointer() == 3
        with pytest.raises(SeqNrConflictError):
            journal.append([Event(9)], expected_seq_nr=8)
        journal.delete(1)
        journal.mark()
        assert figures.sum("head_cache_find_seconds_count", topic=topic) == 4
        assert figures.of("head_cache_journals", topic=topic) == 1
        with replicator:
            assert _read_from_store(journals, figures, topic)
        journal.purge()
    timed = {
        verb: figures.of("journal_latency_seconds_count", topic=topic, type=verb)
        for verb in ("append", "pointer", "delete", "mark", "purge")
    }
    assert timed == {"append": 3, "pointer": 1, "delete": 1, "mark": 1, "purge": 1}
    assert figures.of("journal_results_total", topic=topic, type="append", result="failure") == 1
    assert figures.of("journal_results_total", topic=topic, type="append", result="success") == 2
    assert figures.of("journal_events_total", topic=topic, type="append") == 3
    assert figures.of("journal_encode_seconds_count", payload_type="json") == 2
    assert figures.of("journal_encode_seconds_count", payload_type="binary") == 1
    assert figures.of("journal_decode_seconds_count", payload_type="json") >= 1
    for step in ("acquire", "use"):
        assert figures.of("journal_consumer_seconds_count", step=step) >= 1
        assert figures.of("journal_consumer_seconds_sum", step=step) > 0
    assert figures.of("head_cache_journals", topic=topic) == 0, "the closed cache is asked no more"


def _read_from_store(journals: inorder.Journals, figures: Figures, topic: str) -> bool:
    """Reads until the store has answered a whole read; every read shows the same."""
    for _ in range(1000):
        read = [record.seq_nr for record in journals.journal(Key("id", topic)).read()]
        assert read == [2, 3]
        if figures.of("journal_store_events_total", topic=topic) >= 2:
            verbs = ("pointer", "offset", "read")
            return all(figures.of("journal_store_latency_seconds_count", topic=topic, type=verb) for verb in verbs)
    return False


def test_without_a_registry_nothing_is_measured(settings: inorder.Settings, topic: str) -> None:
    with inorder.Journals(settings) as journals:
        assert type(journals.journal(Key("id", topic))).__name__ == "Journal"
        assert journals.meter is SILENT


def test_the_job_expire_tells_what_it_purged(
    settings: inorder.Settings, topic: str, postgres_url: str, eventually: Eventually
) -> None:
    store = PostgresJournal(postgres_url)
    with inorder.Journals(settings) as journals, Replicator(dict(settings.kafka.properties), postgres_url, topic):
        for id, days in (("short", 1), ("long", 30)):
            journals.journal(Key(id, topic)).append([Event(1)], expire_after=timedelta(days=days))
        eventually(lambda: len(list(store.ids(topic))) == 2)
        later = datetime.now(UTC).date() + timedelta(days=9)
        with App(settings) as app, JobService(settings.health.address, "expire", dict) as service:
            for dry_run in (True, False):
                stop = threading.Event()
                app.run_expire(once=True, stop=stop, dry_run=dry_run, today=lambda: later, service=service)
            assert service.address is not None
            with urlopen("http://{}:{}/metrics".format(*service.address), timeout=10) as answer:  # noqa: S310 - our own
                text = answer.read().decode()
    store.close()
    assert f'inorder_expire_journals_total{{outcome="purged",topic="{topic}"}} 1.0' in text
    assert f'inorder_expire_journals_total{{outcome="left",topic="{topic}"}} 1.0' in text
    assert "inorder_expire_pass_seconds_count 2.0" in text
    assert f'inorder_journal_latency_seconds_count{{topic="{topic}",type="purge"}} 1.0' in text
