"""What tasks on Spark have measured is served by the driver, and equals what was done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import inorder
from inorder.engines.job_status import JobService, Lag
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.jobs import replicate_work
from inorder.journal.service import journal_store
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.pipeline.engines import ENGINES, new_engine
from tests.operating import journal_lag
from tests.selection import few

Samples = dict[frozenset[str], float]


def write(settings: inorder.Settings, topic: str) -> None:
    """Seven appends with twelve events, a delete, a purge and two marks; two more records that are in no journal."""
    with inorder.Journals(settings) as journals:
        for number in range(3):
            journal = journals.journal(Key(f"id{number}", topic))
            journal.append([Event(1, "one"), Event(2, b"two")], expire_after=timedelta(days=1))
            journal.append([Event(3), Event(4)], expire_after=timedelta(days=1))
        journals.journal(Key("id0", topic)).delete(2)
        journals.journal(Key("id1", topic)).purge()
        journals.journal(Key("id2", topic)).mark()
        # The number is taken: a fork.
        journals.journal(Key("id2", topic)).append([Event(4, "another")], expire_after=timedelta(days=1))
    producer = Producer({"bootstrap.servers": str(settings.kafka.properties["bootstrap.servers"])})
    producer.produce(topic, b"", "damaged", headers=[(ACTION_HEADER, b"{")])
    producer.produce(topic, b"", "foreign")
    assert producer.flush(30) == 0


def scrape(service: JobService) -> Samples:
    assert service.address is not None
    with urlopen("http://{}:{}/metrics".format(*service.address), timeout=10) as answer:  # noqa: S310 - our own
        text = answer.read().decode()
    return {
        frozenset((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("kind", few(ENGINES))
def test_the_figures_of_tasks_reach_the_endpoint_and_are_exact(
    kind: str,
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    create_topic: Callable[..., None],
    eventually: Eventually,
) -> None:
    settings = inorder.Settings.load(
        None,
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        journal={"topic_prefixes": [unique], "origin": "here"},
        health={"listen": "127.0.0.1:0"},
    )
    create_topic(unique, 2)
    with closing(journal_store(settings)) as store:
        store.install()
    write(settings, unique)
    work = replicate_work(settings)
    assert work.is_measured

    def lag() -> Lag:
        return {(row.topic, row.partition): row.behind for row in journal_lag(settings)}

    with JobService(settings.health.address, "replicate", lag) as service:
        engine = new_engine(kind, spark, replace(work, topics=(unique,)), kafka_bootstrap)
        engine.run(threading.Event(), once=True, listener=service.listener)
        found = scrape(service)
        eventually(lambda: frozenset(("inorder_pipeline_lag_records", "replicate", unique, "0")) in scrape(service))

    def of(name: str, *labels: str) -> float | None:
        return found.get(frozenset((f"inorder_{name}", *labels)))

    counts = {name: of(f"replicator_{name}_total", unique) for name in ("records", "forks", "quarantined_records")}
    assert counts == {"records": 13, "forks": 1, "quarantined_records": 1}
    assert of("replicator_parked_journals_total", unique) == 1
    for latency in ("replication", "delivery"):
        name = f"replicator_{latency}_latency_seconds"
        kinds = {kind: of(f"{name}_count", unique, kind) for kind in ("append", "delete", "purge", "mark")}
        assert kinds == {"append": 7, "delete": 1, "purge": 1, "mark": 3}, "a delete and a purge read first"
        assert (of(f"{name}_sum", unique, "append") or 0) > 0
    assert of("replicator_version_records_total", unique, version("inorder")) == 12
    assert of("replicator_expiry_journals_total", unique, "day") is not None
    assert of("replicator_round_records_sum", unique) == 14
    assert (of("replicator_bytes_total", unique) or 0) > 0
    assert of("pipeline_records_total", "replicate", unique, "rejected") == 1
    verbs = ("lock_offset", "heads", "carry_out", "move_offset", "commit")
    assert all((of("journal_replica_latency_seconds_sum", unique, verb) or 0) > 0 for verb in verbs)
    assert of("replicator_round_seconds_count", unique) == of("journal_replica_latency_seconds_count", unique, "commit")
