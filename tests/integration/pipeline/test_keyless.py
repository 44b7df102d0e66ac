"""Records that nothing orders: without a Kafka key on several partitions, or one key on two partitions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import SparkSession

import inorder
from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from tests.fakes.table_store import message
from tests.integration.pipeline.engines import ENGINES, Heard, new_engine, upsert_work
from tests.selection import few

LETTERS = "SELECT code, count(*), bool_and(key IS NULL), min(detail) FROM inorder_dead_letter GROUP BY code"


@pytest.fixture
def produce(kafka_bootstrap: str, unique: str) -> Callable[..., None]:
    """Sends a record to a partition."""

    def send(partition: int, value: bytes, key: str | None = None) -> None:
        producer = Producer({"bootstrap.servers": kafka_bootstrap})
        producer.produce(unique, value, key, partition)
        assert producer.flush(30) == 0

    return send


def run_once(url: str, bootstrap: str, mapping: TableMapping) -> Heard:
    """One pass over the topic in this process."""
    heard = Heard()
    source = KafkaSource({"bootstrap.servers": bootstrap})
    InProcess(upsert_work(SqlTableStores(url, mapping), mapping), source).run(threading.Event(), True, heard)
    return heard


@pytest.mark.parametrize("engine", few(ENGINES, "resident"))
def test_records_without_a_key_are_set_aside_by_name_and_the_others_are_applied(
    engine: str,
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    direct: Connection[Any],
    unique: str,
    create_topic: Callable[..., None],
    produce: Callable[..., None],
) -> None:
    create_topic(unique, 4)
    for turn in range(40):
        produce(turn * 7 % 4, message(1, data=f"v{turn}"))
    produce(2, message(2, data="keyed"), "2")
    mapping = TableMapping("test", unique, "messages")
    heard = Heard()
    work = upsert_work(SqlTableStores(postgres_url, mapping), mapping)
    new_engine(engine, spark, work, kafka_bootstrap).run(threading.Event(), once=True, listener=heard)
    assert (heard.sum("stale"), heard.sum("rejected"), heard.sum("applied")) == (0, 40, 1)
    assert direct.execute("SELECT id, data FROM messages").fetchall() == [(2, "keyed")]
    [(code, count, are_null, detail)] = direct.execute(LETTERS).fetchall()
    assert (code, count, are_null) == ("no-record-key", 40, True)
    assert "row 1 has no Kafka key" in detail


@pytest.mark.parametrize(
    ("partitions", "keyless"), [(1, "reject"), (4, "apply")], ids=["one partition", "by other means"]
)
def test_records_without_a_key_are_applied_where_they_have_an_order(
    partitions: int,
    keyless: str,
    kafka_bootstrap: str,
    postgres_url: str,
    direct: Connection[Any],
    unique: str,
    create_topic: Callable[..., None],
    produce: Callable[..., None],
) -> None:
    create_topic(unique, partitions)
    for turn in range(20):
        produce(partitions - 1, message(1, data=f"v{turn}"))
    heard = run_once(postgres_url, kafka_bootstrap, TableMapping("test", unique, "messages", keyless=keyless))
    assert (heard.sum("stale"), heard.sum("rejected")) == (0, 0)
    assert direct.execute("SELECT data FROM messages").fetchall() == [("v19",)]


@pytest.mark.parametrize("checks", [True, False])
def test_a_message_published_without_a_key_gets_that_of_its_row(
    checks: bool,
    kafka_bootstrap: str,
    postgres_url: str,
    direct: Connection[Any],
    unique: str,
    create_topic: Callable[..., None],
) -> None:
    create_topic(unique, 4)
    settings = inorder.Settings.load(
        kafka={"bootstrap.servers": kafka_bootstrap},
        publisher={"backend": "kafka", "checks_messages": checks},
        pipeline={"upsert": {"topic": unique}},
    )
    with inorder.Publisher(settings) as publisher:
        for turn in range(40):
            publisher.publish(inorder.Message(unique, value={"id": turn % 2, "data": f"v{turn}"}))
    heard = run_once(postgres_url, kafka_bootstrap, TableMapping("test", unique, "messages"))
    assert (heard.sum("stale"), heard.sum("rejected"), heard.sum("read")) == (0, 0, 40)
    assert direct.execute("SELECT id, data FROM messages ORDER BY id").fetchall() == [(0, "v38"), (1, "v39")]


@pytest.mark.parametrize("engine", few(ENGINES, "resident"))
def test_a_stale_record_is_logged_with_the_key_of_its_row(
    engine: str,
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    create_topic: Callable[..., None],
    produce: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_topic(unique, 2)
    mapping = TableMapping("test", unique, "messages")
    work = upsert_work(SqlTableStores(postgres_url, mapping), mapping)
    for turn in range(3):
        produce(0, message(7, data=f"v{turn}"), "7")
    run_once(postgres_url, kafka_bootstrap, mapping)
    produce(1, message(7, data="v3"), "7")
    with caplog.at_level(logging.WARNING, "inorder.pipeline"):
        heard = Heard()
        new_engine(engine, spark, work, kafka_bootstrap).run(threading.Event(), once=True, listener=heard)
    assert heard.sum("stale") == 1
    [record] = [each for each in caplog.records if each.msg == "pipeline.records_not_applied"]
    assert (vars(record)["stale"], vars(record)["stale_keys"]) == (1, ["7"])
