"""Records that cannot be applied, among many that can; and tables that refuse everything for a while."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import SparkSession

from inorder.model.errors import MassRefusalError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from tests.conftest import Eventually
from tests.fakes.table_store import message
from tests.integration.pipeline.conftest import CreateTopic
from tests.integration.pipeline.engines import ENGINES, SPARK_WAIT, Heard, new_engine, upsert_work
from tests.integration.pipeline.test_partition_faults import KEYS, PARTITIONS, Tables, tables, values
from tests.selection import few

__all__ = ["tables"]  # a fixture

RECORDS = 100_000
NO_DATE = 9_223_372_036_854_775_807 // 1000
"""A record's time in milliseconds, far behind the year 9999; its microseconds still fit 64 bits."""


def deep(levels: int) -> bytes:
    return b'{"id":1,"tree":%s%s}' % (b"[" * levels, b"]" * levels)


@pytest.mark.full
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


TRIGGER = """
    CREATE FUNCTION break_a() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the trigger is broken'; END $$;
    CREATE TRIGGER break_a BEFORE INSERT OR UPDATE ON a FOR EACH ROW EXECUTE FUNCTION break_a();
"""


SHOWN_AS_WAITING = "inorder_pointer WHERE waiting_since > updated_at"


class Load:
    """Publishes to all partitions of two topics, a few records at a time, until it is stopped."""

    def __init__(self, bootstrap: str, topics: tuple[str, ...]) -> None:
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topics = topics
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.01):
            for topic in self._topics:
                self._producer.produce(topic, message(self.sent, data="x"), str(self.sent), self.sent % PARTITIONS)
            self.sent += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


def count(direct: Connection[Any], table: str) -> int:
    [(number,)] = direct.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(number)


@pytest.mark.full
@pytest.mark.parametrize("kind", few(ENGINES, *ENGINES))
def test_a_broken_trigger_under_load_costs_no_dead_letter_and_delays_no_other_table(
    kind: str, tables: Tables, kafka_bootstrap: str, direct: Connection[Any], eventually: Eventually
) -> None:
    running, load = tables.start(kind), Load(kafka_bootstrap, tables.topics)
    try:
        eventually(lambda: min(count(direct, "a"), count(direct, "b")) > 100, SPARK_WAIT)
        direct.execute(TRIGGER)
        first = tables.topics[0]
        eventually(lambda: tables.heard.waiting.keys() == {(first, 0), (first, 1)}, SPARK_WAIT)
        assert count(direct, SHOWN_AS_WAITING) == 2
        # The other table goes on meanwhile, for a while.
        stood, sent = count(direct, "a"), load.sent
        eventually(lambda: count(direct, "b") > sent + 500, SPARK_WAIT)
        assert count(direct, "a") == stood
        direct.execute("DROP TRIGGER break_a ON a")
        eventually(lambda: count(direct, "a") > sent + 500, SPARK_WAIT)
    finally:
        load.stop()
    eventually(lambda: count(direct, "a") == count(direct, "b") == load.sent, SPARK_WAIT)
    assert count(direct, "inorder_dead_letter") == 0
    assert count(direct, SHOWN_AS_WAITING) == 0
    assert "P0001" in str(tables.heard.waiting[first, 0])
    assert tables.heard.errors == {}
    tables.stop.set()
    running.result(SPARK_WAIT)


@pytest.mark.full
@pytest.mark.parametrize("kind", few(ENGINES, *ENGINES))
def test_once_does_not_wait_and_reads_the_other_table_to_its_end(
    kind: str, tables: Tables, kafka_bootstrap: str, direct: Connection[Any]
) -> None:
    direct.execute(TRIGGER)
    for topic in tables.topics:
        tables.produce(topic, "1")
    with pytest.raises(MassRefusalError, match="waits at offset 0: 10 of 10 records are refused with code P0001"):
        tables.run_once(kind)
    assert (count(direct, "a"), count(direct, "b"), count(direct, "inorder_dead_letter")) == (0, KEYS, 0)
    direct.execute("DROP TRIGGER break_a ON a")
    tables.run_once(kind)
    assert (count(direct, "a"), count(direct, "b"), count(direct, "inorder_dead_letter")) == (KEYS, KEYS, 0)


@pytest.mark.full
@pytest.mark.parametrize("kind", few(ENGINES, "resident"))
def test_a_bad_record_that_is_alone_in_its_slice_is_buried_and_the_next_ones_are_applied(
    kind: str, tables: Tables, kafka_bootstrap: str, direct: Connection[Any], eventually: Eventually
) -> None:
    direct.execute("ALTER TABLE a ADD CONSTRAINT short CHECK (length(data) < 9)")
    running = tables.start(kind)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for round_ in range(3):
        producer.produce(tables.topics[0], message(0, data="far too long"), "0", 0)
        producer.flush(30)
        eventually(lambda: count(direct, "inorder_dead_letter") == round_ + 1, SPARK_WAIT)  # noqa: B023 - awaited here
        producer.produce(tables.topics[0], message(0, data=f"fine {round_}"), "0", 0)
        producer.flush(30)
        eventually(lambda: values(direct, "a") == {f"fine {round_}"}, SPARK_WAIT)  # noqa: B023 - the same
    assert tables.heard.waiting == {}
    tables.stop.set()
    running.result(SPARK_WAIT)
