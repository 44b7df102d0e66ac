"""Records that cannot be applied, among many that can; and tables that refuse everything for a while."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import SparkSession

from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from tests.fakes.table_store import message
from tests.integration.pipeline.conftest import CreateTopic
from tests.integration.pipeline.engines import ENGINES, Heard, new_engine, upsert_work
from tests.selection import few

PARTITIONS = 2
RECORDS = 100_000
NO_DATE = 9_223_372_036_854_775_807 // 1000
"""A record's time in milliseconds, far behind the year 9999; its microseconds still fit 64 bits."""


def deep(levels: int) -> bytes:
    return b'{"id":1,"tree":%s%s}' % (b"[" * levels, b"]" * levels)


@pytest.mark.parametrize("kind", few(ENGINES, *ENGINES))
def test_ten_poison_records_among_a_hundred_thousand_are_ten_dead_letters(
    kind: str,
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    create_topic: CreateTopic,
    direct: Connection[Any],
) -> None:
    create_topic(unique, PARTITIONS, message_timestamp_after_max_ms=str(2**63 - 1))
    mapping = TableMapping("test", unique, "messages", fields=(("data", "text"), ("tree", "json"), ("at", "timestamp")))
    poison = [deep(300), deep(940), deep(1_000), deep(1_020), b'{"id":1,"at":"0001-01-01T00:00:00+14:00"}']
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "queue.buffering.max.messages": 2 * RECORDS})
    for key in range(RECORDS):
        producer.produce(unique, message(key, data="x"), str(key), key % PARTITIONS)
        if key % (RECORDS // 10) == 5_000:
            which = key // (RECORDS // 10)
            value = poison[which % len(poison)]
            producer.produce(unique, value, "1", 1, timestamp=NO_DATE if which % 2 else 1)
    producer.produce(unique, message(RECORDS, data="x"), str(RECORDS), RECORDS % PARTITIONS, timestamp=NO_DATE)
    assert producer.flush(60) == 0
    work, heard = upsert_work(SqlTableStores(postgres_url, mapping), mapping), Heard()
    new_engine(kind, spark, work, kafka_bootstrap).run(threading.Event(), once=True, listener=heard)
    assert direct.execute("SELECT count(*) FROM messages").fetchone() == (RECORDS + 1,)
    assert direct.execute("SELECT count(*), count(DISTINCT value) FROM inorder_dead_letter").fetchone() == (10, 5)
    assert heard.sum("rejected") == 10
