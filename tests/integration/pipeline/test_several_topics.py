"""Several tables in one application, and what its status says, by both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import SparkSession

from inorder.pipeline.job import UpsertWork
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from inorder.settings import Settings
from tests.conftest import Eventually
from tests.fakes.table_store import message
from tests.integration.pipeline.engines import ENGINES, SPARK_WAIT, Heard, new_engine, upsert_work
from tests.operating import pipeline_status
from tests.selection import few


@pytest.fixture
def work(postgres_url: str, unique: str) -> UpsertWork:
    """People and orders, each with a topic."""
    mappings = (
        TableMapping("people", f"{unique}.people", "people", fields=(("name", "text"),)),
        TableMapping("orders", f"{unique}.orders", "orders", fields=(("total", "double"),)),
    )
    targets = [upsert_work(SqlTableStores(postgres_url, one), one).targets for one in mappings]
    return UpsertWork(tuple(target for some in targets for target in some))


def send(bootstrap: str, topic: str, **fields: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key in range(10):
        producer.produce(topic, message(key, **fields), str(key))
    assert producer.flush(30) == 0


def filled(direct: Connection[Any], table: str, column: str) -> list[tuple[object, int]]:
    return direct.execute(f"SELECT {column}, count(*)::int FROM {table} GROUP BY 1 ORDER BY 1").fetchall()


@pytest.mark.parametrize("kind", few(ENGINES))
def test_a_topic_that_comes_later_joins_those_that_are_read(
    kind: str,
    spark: SparkSession,
    work: UpsertWork,
    kafka_bootstrap: str,
    create_topic: Callable[..., None],
    direct: Connection[Any],
    eventually: Eventually,
) -> None:
    people, orders = work.topics
    create_topic(people, 3)
    send(kafka_bootstrap, people, name="Ada")
    stop, heard = threading.Event(), Heard()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(new_engine(kind, spark, work, kafka_bootstrap).run, stop, listener=heard)
        try:
            eventually(lambda: filled(direct, "people", "name") == [("Ada", 10)], SPARK_WAIT)
            create_topic(orders, 2)
            send(kafka_bootstrap, orders, total=1.5)
            send(kafka_bootstrap, people, name="Grace")
            eventually(lambda: filled(direct, "orders", "total") == [(1.5, 10)], SPARK_WAIT)
            eventually(lambda: filled(direct, "people", "name") == [("Grace", 10)], SPARK_WAIT)
            # Spark tells of a batch some time after it.
            eventually(lambda: heard.phases, SPARK_WAIT)
        finally:
            stop.set()
        running.result(timeout=SPARK_WAIT)
    assert heard.sum("applied") == 30


def test_the_status_adds_up_and_marks_of_transactions_do_not_wait(
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    spark: SparkSession,
    create_topic: Callable[..., None],
    tmp_path: Path,
) -> None:
    config = tmp_path / "inorder.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka_bootstrap}"\n[database]\nurl = "{postgres_url}"\n'
        f'[pipeline.upsert]\ntopic = "{unique}"\n'
    )
    create_topic(unique, 2)
    mapping = TableMapping("upsert:messages", unique, "messages")
    engine = new_engine("resident", spark, upsert_work(SqlTableStores(postgres_url, mapping), mapping), kafka_bootstrap)
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": unique})
    producer.init_transactions(30)
    producer.begin_transaction()
    for key in range(4):
        producer.produce(unique, message(key, data="a"), str(key), key % 2)
    producer.produce(unique, b"garbage", "1", 1)
    producer.commit_transaction(30)

    before = pipeline_status(Settings.load(config))
    assert (before["applied"], before["behind"], before["last_slice_seconds"]) == (0, 7, None)
    engine.run(threading.Event(), once=True)
    after = pipeline_status(Settings.load(config))
    assert (after["applied"], after["rejected"], after["behind"]) == (4, 1, 0)
    assert 0 <= after["last_slice_seconds"] < 60
    assert [(one["partition"], one["next_offset"]) for one in after["partitions"]] == [(0, 2), (1, 3)]
