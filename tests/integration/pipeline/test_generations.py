"""A table is filled across a switch of its topic, by both engines: it ends right, and no reader sees it go back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg import Connection
from pyspark.sql import SparkSession

import inorder
from inorder.app import App
from inorder.engines.slice_work import SliceWork
from inorder.model.errors import PublishError
from inorder.pipeline.job import GenerationGate, follow_generations, upsert_work
from tests.conftest import Eventually
from tests.integration.pipeline.conftest import CreateTopic
from tests.integration.pipeline.engines import ENGINES, SPARK_WAIT, Heard, new_engine
from tests.operating import fail_over, install_schema
from tests.selection import few

KEYS = 20


class Rounds:
    """Publishes rounds, each a newer value of every key."""

    def __init__(self, publisher: inorder.Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic
        self.done = 0

    def publish(self, count: int) -> None:
        for number in range(self.done + 1, self.done + count + 1):
            left = [
                inorder.Message(self._topic, key=str(key), value={"id": key, "data": f"{number:06}"})
                for key in range(KEYS)
            ]
            while left:
                try:
                    self._publisher.publish_list(left)
                    left = []
                except PublishError as error:
                    left = list(error.unsent)
            self.done = number

    def value(self) -> str:
        return f"{self.done:06}"


@pytest.mark.parametrize("kind", few(ENGINES))
def test_a_switch_reaches_the_table_in_order(
    kind: str,
    spark: SparkSession,
    create_topic: CreateTopic,
    direct: Connection[Any],
    postgres_url: str,
    kafka_bootstrap: str,
    unique: str,
    eventually: Eventually,
) -> None:
    create_topic(unique, 4)
    settings = inorder.Settings.load(
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        publisher={"backend": "kafka"},
        pipeline={"upsert": {"topic": unique, "table": "messages"}},
    )
    install_schema(settings, "table")
    work = upsert_work(settings)
    heard, stop = Heard(), threading.Event()

    def run_engine(reading: SliceWork, over: threading.Event) -> None:
        new_engine(kind, spark, reading, kafka_bootstrap).run(over, listener=heard)

    seen = Seen(direct)
    with inorder.Publisher(settings) as publisher, App(settings) as app, ThreadPoolExecutor(1) as pool:
        rounds = Rounds(publisher, unique)
        rounds.publish(20)
        gate = GenerationGate(app.generations, app.pointers)
        running = pool.submit(follow_generations, gate, work, stop, run_engine)
        try:
            eventually(lambda: seen.look() == {rounds.value()}, SPARK_WAIT)
            rounds.publish(20)
            fail_over(settings, unique, partitions=8)
            rounds.publish(20)
            eventually(lambda: seen.look() == {rounds.value()}, SPARK_WAIT)
        finally:
            stop.set()
        running.result(30)
    pointers = direct.execute(
        "SELECT topic, count(*), min(generation), max(generation) FROM inorder_pointer GROUP BY 1"
    )
    assert sorted(pointers.fetchall()) == [(unique, 4, 0, 0), (f"{unique}.g1", 8, 1, 1)]
    versions = direct.execute("SELECT DISTINCT version_generation FROM messages").fetchall()
    assert versions == [(1,)]
    assert (heard.sum("stale"), heard.sum("rejected")) == (0, 0)


class Seen:
    """Looks at the table, and fails if a row is older than at the look before."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._before: dict[int, str] = {}

    def look(self) -> set[str]:
        rows: dict[int, str] = dict(self._connection.execute("SELECT id, data FROM messages").fetchall())
        older = {key: (self._before[key], data) for key, data in rows.items() if data < self._before.get(key, "")}
        assert not older, older
        self._before = rows
        return set(rows.values()) if len(rows) == KEYS else set()
