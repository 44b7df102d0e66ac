"""Tombstones go when no record can be older than they are any more, and not before."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import inorder
from inorder.app import App
from inorder.database.database import Database, open_database
from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.pipeline.job import table_mappings, upsert_work
from inorder.pipeline.tombstones import TombstoneCleaning
from inorder.topics.stores.generations import SqlTopicGenerations
from tests.conftest import Eventually
from tests.integration.pipeline.conftest import CreateTopic
from tests.operating import install_schema
from tests.selection import few

PARTITIONS = 2


class Cleaned:
    """A topic, the job of its table, and the cleaning, with a clock that nobody sets back."""

    def __init__(self, bootstrap: str, url: str, topic: str) -> None:
        self.topic = topic
        self.properties: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self.settings = inorder.Settings.load(
            kafka=self.properties,
            database={"url": url},
            pipeline={"upsert": {"topic": topic, "table": "messages"}},
        )
        self.database: Database = open_database(url, "test")
        self.admin = AdminClient(self.properties)

    def send(self, key: int, data: str | None, partition: int = 0) -> None:
        producer = Producer(self.properties)
        value = None if data is None else json.dumps({"id": key, "data": data})
        producer.produce(self.topic, value, str(key), partition)
        assert producer.flush(30) == 0

    def apply(self) -> None:
        InProcess(upsert_work(self.settings), KafkaSource(self.properties)).run(threading.Event(), once=True)

    def clean(self, *, dry_run: bool = False) -> tuple[int, int, tuple[tuple[str, int], ...]]:
        """How many are left, how many were removed, and which partitions hold back the rest."""
        generations = SqlTopicGenerations(self.database)
        source = KafkaSource(self.properties)
        mappings = table_mappings(self.settings)
        cleaning = TombstoneCleaning(mappings, self.database, generations, source, margin_seconds=0)
        [found] = cleaning.run(dry_run=dry_run)
        return found.tombstones, found.removed, found.held_by

    def trim(self, **before: int) -> None:
        """What retention does."""
        places = [TopicPartition(self.topic, int(name[1:]), offset) for name, offset in before.items()]
        for future in self.admin.delete_records(places).values():
            future.result(timeout=30)

    def rows(self) -> dict[int, str]:
        found = self.database.execute("SELECT id, data FROM messages").rows
        return dict(found)


@pytest.fixture(params=few(["postgres", "mariadb", "sqlite"], "postgres"))
def cleaned(
    request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, create_topic: CreateTopic, tmp_path: Path
) -> Iterator[Cleaned]:
    create_topic(unique, PARTITIONS)
    at = request.param
    url = f"sqlite:///{tmp_path}/tables.db" if at == "sqlite" else request.getfixturevalue(f"{at}_url")
    made = Cleaned(kafka_bootstrap, url, unique)
    install_schema(made.settings, "table")
    yield made
    made.database.close()


def test_a_tombstone_goes_once_all_partitions_have_lost_what_was_there_before_it(cleaned: Cleaned) -> None:
    cleaned.send(1, "old")
    cleaned.send(2, "other", partition=1)
    cleaned.send(1, None)
    cleaned.apply()
    assert cleaned.clean() == (1, 0, ())  # the first mark: p0 ends at 2, p1 at 1
    assert cleaned.clean() == (1, 0, ((cleaned.topic, 0), (cleaned.topic, 1)))
    cleaned.trim(p0=2)
    assert cleaned.clean() == (1, 0, ((cleaned.topic, 1),))
    cleaned.trim(p1=1)
    assert cleaned.clean(dry_run=True) == (1, 1, ())
    assert cleaned.clean() == (0, 1, ())
    cleaned.send(1, "new")
    cleaned.apply()
    assert cleaned.rows() == {1: "new", 2: "other"}


def test_a_tombstone_that_came_after_the_mark_waits_for_the_next_one(cleaned: Cleaned) -> None:
    cleaned.send(1, None)
    cleaned.apply()
    cleaned.clean()
    cleaned.send(2, "kept")
    cleaned.send(2, None)
    cleaned.apply()
    cleaned.trim(p0=1)
    assert cleaned.clean() == (1, 1, ())
    # The pointer is lost: what the topic still has of key 2 is older than its tombstone, and must stay so.
    cleaned.database.execute("DELETE FROM inorder_pointer")
    cleaned.apply()
    assert cleaned.rows() == {}
    assert cleaned.clean() == (1, 0, ((cleaned.topic, 0),))


def test_a_tombstone_stays_while_an_older_dead_letter_may_be_retried(cleaned: Cleaned) -> None:
    producer = Producer(cleaned.properties)
    producer.produce(cleaned.topic, b"not JSON", "1", 0)
    assert producer.flush(30) == 0
    cleaned.send(1, None)
    cleaned.apply()
    cleaned.clean()
    cleaned.trim(p0=2)
    assert cleaned.clean() == (1, 0, ())
    cleaned.database.execute("DELETE FROM inorder_dead_letter")
    cleaned.send(2, "later")
    cleaned.trim(p0=3)
    assert cleaned.clean() == (0, 1, ())


def test_what_a_topic_held_is_gone_once_it_is_deleted(cleaned: Cleaned) -> None:
    cleaned.send(1, None)
    cleaned.apply()
    cleaned.clean()
    cleaned.admin.delete_topics([cleaned.topic])[cleaned.topic].result(30)
    assert cleaned.clean() == (0, 1, ())


def test_what_holds_tombstones_back_is_named(cleaned: Cleaned) -> None:
    cleaned.send(1, None)
    cleaned.apply()
    cleaned.clean()
    with App(cleaned.settings) as app:
        assert [each.as_dict() for each in app.clean_tombstones(dry_run=True)] == [
            {"table": "messages", "tombstones": 1, "removed": 0, "held_by": [f"{cleaned.topic}[0]"]}
        ]


def test_the_job_cleans_by_itself(cleaned: Cleaned, eventually: Eventually) -> None:
    cleaned.send(1, None)
    cleaned.apply()
    cleaned.clean()
    cleaned.trim(p0=1)
    pipeline = cleaned.settings.pipeline.model_copy(update={"clean_seconds": 1})
    count = "SELECT count(*) FROM inorder_tombstone"
    with App(cleaned.settings.model_copy(update={"pipeline": pipeline})) as app, app.cleaning():
        eventually(lambda: cleaned.database.execute(count).rows == [(0,)])
