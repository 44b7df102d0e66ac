"""What a lag of 0 hides: open transactions, and partitions that restart for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg import Connection
from pyspark.sql import SparkSession

import inorder
from inorder.app import App
from inorder.engines.in_process import InProcess
from inorder.engines.job_status import JobFigures
from inorder.engines.partition_reader import KafkaSource
from inorder.kafka.admin import Cluster
from inorder.pipeline.job import upsert_work as work_of
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from tests.conftest import Eventually
from tests.fakes.table_store import message
from tests.integration.pipeline.engines import SPARK_WAIT, new_engine, upsert_work
from tests.operating import install_schema


@contextmanager
def open_transaction(bootstrap: str, topic: str) -> Iterator[Producer]:
    """A transaction with one record, which is aborted at the end."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, message(1, data="hung"), "1", 0)
    assert producer.flush(30) == 0
    yield producer
    producer.abort_transaction(30)


@pytest.fixture
def settings(kafka_bootstrap: str, postgres_url: str, unique: str) -> inorder.Settings:
    return inorder.Settings.load(
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        pipeline={"upsert": {"topic": unique}},
    )


def produce(bootstrap: str, topic: str, partition: int, *values: bytes, key: str = "1") -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, key, partition, timestamp=int((time.time() - 3600) * 1000))
    assert producer.flush(30) == 0


def test_an_open_transaction_and_the_oldest_record_are_shown_though_the_lag_is_zero(
    settings: inorder.Settings, kafka_bootstrap: str, unique: str, create_topic: Callable[..., None]
) -> None:
    create_topic(unique, 3)
    install_schema(settings, "table")
    produce(kafka_bootstrap, unique, 0, message(1, data="a", colour="red"), b"garbage", b"more garbage")
    InProcess(work_of(settings), KafkaSource({"bootstrap.servers": kafka_bootstrap})).run(threading.Event(), once=True)
    produce(kafka_bootstrap, unique, 1, message(2, data="old"), key="2")
    with App(settings) as app, open_transaction(kafka_bootstrap, unique):
        found, status = app.pipeline_backlog(), app.pipeline_status()
    assert found.records == {(unique, 0): 0, (unique, 1): 1, (unique, 2): 0}
    assert found.undecided == {(unique, 0): 1, (unique, 1): 0, (unique, 2): 0}
    assert found.oldest_seconds.keys() == {(unique, 0), (unique, 1)}
    assert found.oldest_seconds[unique, 0] < 1800 < found.oldest_seconds[unique, 1] < 7200
    assert found.dead_letters == {("upsert:messages", "not-json"): 2}
    assert found.stale == {(unique, 0): 0, (unique, 1): 0, (unique, 2): 0}
    assert [one["undecided"] for one in status["partitions"]] == [1, 0, 0]
    assert status["unknown_fields"] == {"colour": 1}


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger AS $$
BEGIN RAISE 'no space' USING ERRCODE = 'disk_full'; END $$ LANGUAGE plpgsql;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON messages FOR EACH ROW WHEN (NEW.id = 1) EXECUTE FUNCTION refuse();
"""


@pytest.mark.full
def test_a_partition_that_restarts_for_ever_is_not_well_and_recovers(
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    direct: Connection[Any],
    unique: str,
    create_topic: Callable[..., None],
    eventually: Eventually,
) -> None:
    create_topic(unique, 2)
    mapping = TableMapping("test", unique, "messages")
    work = upsert_work(SqlTableStores(postgres_url, mapping), mapping)
    direct.execute(REFUSE)
    # Five times as fast, so that 30 s of restarts are six; pauses between them are 5 s at most.
    figures, stop = JobFigures("upsert", clock=lambda: 5 * time.monotonic()), threading.Event()
    produce(kafka_bootstrap, unique, 1, message(1, data="a"))
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(new_engine("resident", spark, work, kafka_bootstrap).run, stop, listener=figures)
        try:
            wanted = f"{unique}[1] was restarted"
            eventually(lambda: wanted in figures.trouble and "no space" in figures.trouble, SPARK_WAIT)
            direct.execute("DROP TRIGGER refuse ON messages")
            eventually(lambda: figures.reading(is_running=True, lag=None).offsets, SPARK_WAIT)
            eventually(lambda: not figures.trouble, SPARK_WAIT)
        finally:
            stop.set()
        run.result(60)
    reading = figures.reading(is_running=True, lag=None)
    assert reading.restarts[unique, 1] >= 5
    assert reading.measures[unique]["slice_records#sum"] == 1


def lag_of_group(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """As kafka-consumer-groups computes it: written ends less committed offsets."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(partitions)])
    client = AdminClient({"bootstrap.servers": bootstrap})
    found = client.list_consumer_group_offsets([asked])[group].result(30)
    ends = Cluster({"bootstrap.servers": bootstrap}).written_ends(topic, partitions)
    return {place.partition: ends[place.partition] - place.offset for place in found.topic_partitions}


def test_the_lag_of_the_mirror_group_is_that_of_the_pointers_and_markers_are_no_lag(
    settings: inorder.Settings, kafka_bootstrap: str, unique: str, create_topic: Callable[..., None]
) -> None:
    create_topic(unique, 2)
    install_schema(settings, "table")
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": unique})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(unique, message(1, data="a"), "1", 0)
    producer.commit_transaction(30)
    InProcess(work_of(settings), KafkaSource({"bootstrap.servers": kafka_bootstrap})).run(threading.Event(), once=True)
    pipeline = settings.pipeline.model_copy(update={"mirror_group": f"{unique}-lag"})
    mirroring = settings.model_copy(update={"pipeline": pipeline})
    with App(mirroring) as app, app.mirror(app.upsert_pointers):
        """One copy at the end is enough."""
    assert lag_of_group(kafka_bootstrap, f"{unique}-lag", unique, 2) == {0: 0, 1: 0}
    produce(kafka_bootstrap, unique, 1, message(2, data="b"), message(2, data="c"), key="2")
    with App(mirroring) as app, app.mirror(app.upsert_pointers):
        """The same again."""
    assert lag_of_group(kafka_bootstrap, f"{unique}-lag", unique, 2) == {0: 0, 1: 2}


def test_a_field_that_begins_to_come_is_planned_by_its_values_and_added_when_it_is_chosen(
    settings: inorder.Settings,
    kafka_bootstrap: str,
    direct: Connection[Any],
    unique: str,
    create_topic: Callable[..., None],
) -> None:
    create_topic(unique, 2)
    install_schema(settings, "table")
    produce(kafka_bootstrap, unique, 0, message(1, data="a", seen="2026-01-31T12:00:00Z"))
    source = KafkaSource({"bootstrap.servers": kafka_bootstrap})
    InProcess(work_of(settings), source).run(threading.Event(), once=True)
    with App(settings) as app:
        [planned] = app.plan_columns()
        assert (planned.field, planned.records, planned.type) == ("seen", 1, "timestamp")
        assert [column.field for column in app.apply_columns({"seen": "timestamp"}, "messages")] == ["seen"]
    fields = {"data": "text", "seen": "timestamp"}
    upsert = settings.pipeline.upsert.model_copy(update={"fields": fields})
    wider = settings.model_copy(update={"pipeline": settings.pipeline.model_copy(update={"upsert": upsert})})
    produce(kafka_bootstrap, unique, 0, message(1, seen="2026-02-01T12:00:00Z"))
    InProcess(work_of(wider), source).run(threading.Event(), once=True)
    assert direct.execute("SELECT data, seen::date::text FROM messages").fetchall() == [("a", "2026-02-01")]
