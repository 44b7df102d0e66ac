"""Bad input in any amount: it lands in the dead letters, exactly it, and nothing good waits behind it."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from inorder.pipeline.mapping import TableMapping
from inorder.stores.postgres.table import PostgresTableStores
from tests.fault.engine_ordeal import Stage
from tests.integration.pipeline.engines import new_engine, upsert_work

LONG = pytest.mark.fault
_LETTERS = """
SELECT count(*)::int, count(DISTINCT "offset")::int, min("offset")::int, max("offset")::int
FROM inorder_dead_letter WHERE topic = %s AND "partition" = 0 AND code = 'not-json'
"""


def send_garbage(stage: Stage, records: int) -> None:
    """So many records in a row that nobody can read, in the first partition."""
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 50})
    for number in range(records):
        producer.produce(stage.topic, b"garbage %d" % number, b"0", 0)
        if number % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "garbage"),
    [
        ("resident", 20_000),
        pytest.param("resident", 500_000, marks=LONG),
        pytest.param("micro-batch", 500_000, marks=LONG),
    ],
)
def test_garbage_in_a_row_is_buried_exactly_and_the_good_records_around_it_are_applied(
    spark: SparkSession, stage: Stage, kind: str, garbage: int
) -> None:
    mapping = TableMapping("test", stage.topic, "messages")
    work = upsert_work(PostgresTableStores(stage.url, mapping), mapping)
    engine = new_engine(kind, spark, work, stage.bootstrap)
    stage.send(5)
    send_garbage(stage, garbage)
    stage.send(5)
    engine.run(threading.Event(), once=True)
    assert stage.applied() == (200, garbage)
    with stage.connect() as connection:
        buried = connection.execute(_LETTERS, (stage.topic,)).fetchone()
        rows = connection.execute("SELECT DISTINCT data FROM messages").fetchall()
    assert buried == (garbage, garbage, 50, 50 + garbage - 1), "all of it, each once, and nothing else"
    assert rows == [("9",)]
