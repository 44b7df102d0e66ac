"""Journals on real Kafka, replicated by both engines to both stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import inorder
from inorder.app import App
from inorder.embedded import Cassandra
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.jobs import follow_topics
from inorder.journal.replication.job import ReplicateWork
from inorder.journal.stores.opening import JournalReplicas, JournalStore, open_journal_store
from inorder.kafka.admin import ensure_partitions
from inorder.model.errors import DamagedRecordError, OtherTopicError
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.pipeline.engines import ENGINES, SPARK_WAIT, Heard, new_engine
from tests.selection import few


@pytest.fixture
def journals(kafka_bootstrap: str, postgres_url: str) -> Iterator[inorder.Journals]:
    """Writers only: what they could read is not asked."""
    settings = inorder.Settings.load(None, kafka={"bootstrap.servers": kafka_bootstrap}, database={"url": postgres_url})
    with inorder.Journals(settings) as journals:
        yield journals


def opened(url: str) -> JournalStore:
    store = open_journal_store(url)
    store.install()
    return store


def numbers(store: JournalStore, key: Key) -> list[int]:
    head = store.pointer(key)
    return [] if head is None else [event.seq_nr for event in store.read(key, head, 1)]


def write(journals: inorder.Journals, topic: str) -> dict[str, list[int]]:
    """Five journals, one of them purged; returns what is left of each."""
    for number in range(5):
        journal = journals.journal(Key(f"id{number}", topic))
        for first in range(1, 12, 3):
            journal.append([Event(seq_nr, {"n": seq_nr}) for seq_nr in range(first, first + 3)])
    left = {f"id{number}": list(range(1, 13)) for number in range(5)}
    journals.journal(Key("id0", topic)).purge()
    return left | {"id0": []}


@pytest.mark.full
@pytest.mark.parametrize("kind", few(ENGINES, "resident"))
def test_every_journal_arrives_once_and_a_damaged_one_is_parked(
    kind: str,
    spark: SparkSession,
    journals: inorder.Journals,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    create_topic: Callable[..., None],
) -> None:
    create_topic(unique, 3)
    left = write(journals, unique)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    producer.produce(unique, b"", "damaged", headers=[(ACTION_HEADER, b"{")])
    producer.produce(unique, b"", "foreign")
    assert producer.flush(30) == 0
    work = ReplicateWork((unique,), JournalReplicas(postgres_url), segment_size=7)
    with closing(opened(postgres_url)) as store:
        heard = Heard()
        new_engine(kind, spark, work, kafka_bootstrap).run(threading.Event(), once=True, listener=heard)
        assert (heard.sum("rejected"), heard.sum("replayed")) == (1, 0)
        assert {id: numbers(store, Key(id, unique)) for id in left} == left
        with pytest.raises(DamagedRecordError, match="parked"):
            store.pointer(Key("damaged", unique))


@pytest.mark.full
def test_cassandra_is_filled_by_resident_tasks(
    spark: SparkSession,
    journals: inorder.Journals,
    kafka_bootstrap: str,
    cassandra: Cassandra,
    unique: str,
    create_topic: Callable[..., None],
) -> None:
    create_topic(unique, 2)
    left = write(journals, unique)
    url = f"{cassandra.url}/replicate"
    work = ReplicateWork((unique,), JournalReplicas(url), segment_size=7)
    with closing(opened(url)) as store:
        new_engine("resident", spark, work, kafka_bootstrap).run(threading.Event(), once=True)
        assert {id: numbers(store, Key(id, unique)) for id in left} == left


@pytest.mark.full
def test_topics_that_come_later_are_followed_and_two_jobs_at_once_do_no_harm(
    spark: SparkSession,
    journals: inorder.Journals,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    create_topic: Callable[..., None],
    eventually: Eventually,
) -> None:
    topics = [f"{unique}.first"]
    create_topic(topics[0], 1)
    work = ReplicateWork((), JournalReplicas(postgres_url))
    stop, heard = threading.Event(), Heard()

    def run(reading: object, over: threading.Event) -> None:
        assert isinstance(reading, ReplicateWork)
        new_engine("resident", spark, reading, kafka_bootstrap).run(over, listener=heard)

    def follow() -> None:
        follow_topics(work, lambda: tuple(topics), run, stop, look=0.2)

    with closing(opened(postgres_url)) as store, ThreadPoolExecutor(2) as pool:
        running = [pool.submit(follow) for _ in range(2)]
        try:
            journals.journal(Key("id", topics[0])).append([Event(1)])
            eventually(lambda: numbers(store, Key("id", topics[0])) == [1], SPARK_WAIT)
            create_topic(f"{unique}.second", 1)
            topics.append(f"{unique}.second")
            for topic in topics:
                journals.journal(Key("id", topic)).append([Event(2)])
            eventually(lambda: numbers(store, Key("id", topics[1])) == [2], SPARK_WAIT)
            eventually(lambda: numbers(store, Key("id", topics[0])) == [1, 2], SPARK_WAIT)
        finally:
            stop.set()
        for each in running:
            each.result(timeout=SPARK_WAIT)
    assert heard.sum("applied") == 3


@pytest.mark.parametrize("kind", few(ENGINES))
def test_partitions_that_are_added_to_a_topic_are_replicated_once_a_reset_has_accepted_them(
    kind: str,
    spark: SparkSession,
    journals: inorder.Journals,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    create_topic: Callable[..., None],
    eventually: Eventually,
) -> None:
    create_topic(unique, 1)
    work = ReplicateWork((unique,), JournalReplicas(postgres_url))
    settings = inorder.Settings.load(None, kafka={"bootstrap.servers": kafka_bootstrap}, database={"url": postgres_url})
    ids = [f"id {number}" for number in range(12)]

    def run_until(check: Callable[[], object]) -> BaseException | None:
        stop, engine = threading.Event(), new_engine(kind, spark, work, kafka_bootstrap)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(engine.run, stop)
            try:
                check()
            finally:
                stop.set()
            return running.exception(timeout=SPARK_WAIT)

    with closing(opened(postgres_url)) as store:

        def first() -> None:
            journals.journal(Key("first", unique)).append([Event(1)])
            eventually(lambda: numbers(store, Key("first", unique)) == [1], SPARK_WAIT)

        assert run_until(first) is None
        ensure_partitions({"bootstrap.servers": kafka_bootstrap}, unique, 3)
        with inorder.Journals(settings) as later, pytest.raises(OtherTopicError, match="has 3 partitions, and had 1"):
            later.journal(Key(ids[0], unique)).append([Event(1)])
        with App(settings) as app:
            app.journal_admin.reset(unique)
        with inorder.Journals(settings) as later:
            places = [later.journal(Key(id, unique)).append([Event(1), Event(2)]) for id in ids]
        assert {place.partition for place in places} == {0, 1, 2}
        all_there = lambda: all(numbers(store, Key(id, unique)) == [1, 2] for id in ids)  # noqa: E731
        assert run_until(lambda: eventually(all_there, SPARK_WAIT)) is None
