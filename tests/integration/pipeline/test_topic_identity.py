"""A pointer belongs to one incarnation of a topic: what was never applied is never taken for applied.

The job runs in this process, on real Kafka and PostgreSQL; what decides is the same for all engines.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg import Connection

import inorder
from inorder.app import App
from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.progress import RunTotals
from inorder.engines.slice_work import SliceWork
from inorder.model.errors import GuaranteeError
from inorder.pipeline.job import GenerationGate, follow_generations
from tests.integration.pipeline.conftest import CreateTopic
from tests.operating import fail_over, install_schema, migrate_topic, pipeline_status


class Job:
    """The job `upsert` of one table, run to the end of its topic."""

    def __init__(self, bootstrap: str, url: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.url = url
        self.topic = topic
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    @property
    def settings(self) -> inorder.Settings:
        return inorder.Settings.load(
            kafka={"bootstrap.servers": self.bootstrap},
            database={"url": self.url},
            publisher={"backend": "kafka"},
            pipeline={"upsert": {"topic": self.topic, "table": "messages", "max_value_bytes": 200}},
        )

    def run(self) -> dict[str, int]:
        """What `inorder pipeline run upsert --once` does, without Spark."""
        totals = RunTotals()

        def run_engine(reading: SliceWork, over: threading.Event) -> None:
            source = KafkaSource({"bootstrap.servers": self.bootstrap})
            InProcess(reading, source).run(over, once=True, listener=totals)

        with App(self.settings) as app:
            gate = GenerationGate(app.generations, app.pointers)
            follow_generations(gate, app.upsert_work, threading.Event(), run_engine)
        return totals.totals()

    def produce(self, keys: Sequence[int], data: str, *, partition: int = 0, topic: str | None = None) -> None:
        """One record of each key, into one partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for key in keys:
            value = json.dumps({"id": key, "data": data})
            producer.produce(topic or self.topic, value, str(key), partition)
        assert producer.flush(30) == 0

    def trim(self, before: int, *, partition: int = 0, topic: str | None = None) -> None:
        """What retention does."""
        places = [TopicPartition(topic or self.topic, partition, before)]
        for future in self.admin.delete_records(places).values():
            future.result(timeout=30)


@pytest.fixture
def job(kafka_bootstrap: str, postgres_url: str, unique: str) -> Job:
    found = Job(kafka_bootstrap, postgres_url, unique)
    install_schema(found.settings, "table")
    return found


def stored(direct: Connection[Any]) -> dict[int, str]:
    return dict(direct.execute("SELECT id, data FROM messages").fetchall())


def pointers(direct: Connection[Any]) -> list[tuple[int, int, int]]:
    found = direct.execute('SELECT "partition", generation, next_offset FROM inorder_pointer ORDER BY topic, 1')
    return found.fetchall()


def test_a_recreated_topic_that_was_refilled_past_the_pointer_is_noticed_and_a_reset_applies_all_of_it(
    job: Job, direct: Connection[Any], create_topic: CreateTopic, recreate_topic: CreateTopic
) -> None:
    create_topic(job.topic, 1)
    job.produce(range(100), "old")
    job.run()
    recreate_topic(job.topic, 1)
    job.produce(range(300), "new")
    with pytest.raises(GuaranteeError, match="re-created"):
        job.run()
    assert stored(direct) == dict.fromkeys(range(100), "old")
    with App(job.settings) as app:
        app.reset_pipeline(job.topic)
    assert job.run()["stale"] == 0
    assert stored(direct) == dict.fromkeys(range(300), "new")
    assert pointers(direct) == [(0, 1, 300)]


def test_a_recreated_topic_that_holds_less_than_was_applied_is_newer_after_a_reset(
    job: Job, direct: Connection[Any], create_topic: CreateTopic, recreate_topic: CreateTopic
) -> None:
    create_topic(job.topic, 2)
    job.produce(range(100), "old")
    job.produce(range(100, 120), "old", partition=1)
    job.run()
    recreate_topic(job.topic, 1)
    job.produce(range(40), "new")
    with pytest.raises(GuaranteeError, match="re-created"):
        job.run()
    with App(job.settings) as app:
        app.reset_pipeline(job.topic)
    assert job.run()["stale"] == 0
    assert stored(direct) == {key: "new" if key < 40 else "old" for key in range(120)}
    assert pointers(direct) == [(0, 1, 40)]


def test_another_topic_in_a_mapping_is_refused_until_a_reset_makes_it_newer(
    job: Job, direct: Connection[Any], create_topic: CreateTopic
) -> None:
    create_topic(job.topic, 1)
    job.produce(range(50), "old")
    job.run()
    job.topic = f"{job.topic}-renamed"
    create_topic(job.topic, 1)
    job.produce(range(20), "new")
    with pytest.raises(GuaranteeError, match=r"has applied topic .* and now reads"):
        job.run()
    with App(job.settings) as app:
        app.reset_pipeline(job.topic)
    assert job.run()["stale"] == 0
    assert stored(direct) == {key: "new" if key < 20 else "old" for key in range(50)}


def test_a_topic_that_a_mapping_names_again_is_refused_until_a_reset_makes_it_newer(
    job: Job, direct: Connection[Any], create_topic: CreateTopic
) -> None:
    first, second = job.topic, f"{job.topic}-renamed"
    for name, data in ((first, "old"), (second, "new")):
        job.topic = name
        create_topic(name, 1)
        job.produce(range(20), data)
        with App(job.settings) as app:
            app.reset_pipeline(name)
        job.run()
    job.topic = first
    job.produce(range(10), "newest")
    with pytest.raises(GuaranteeError, match=r"has applied topic .*-renamed' and now reads"):
        job.run()
    with App(job.settings) as app:
        app.reset_pipeline(first)
    assert job.run()["stale"] == 0
    assert stored(direct) == {key: "newest" if key < 10 else "old" for key in range(20)}
    with App(job.settings) as app:
        assert app.reset_pipeline(first) == []


@pytest.mark.full
def test_a_topic_switched_after_a_reset_is_newer_than_all_before(
    job: Job, direct: Connection[Any], create_topic: CreateTopic, recreate_topic: CreateTopic
) -> None:
    create_topic(job.topic, 1)
    job.produce(range(30), "old")
    job.run()
    recreate_topic(job.topic, 1)
    job.produce(range(30), "new")
    with App(job.settings) as app:
        app.reset_pipeline(job.topic)
    job.run()
    fail_over(job.settings, job.topic)
    job.produce(range(10), "newest", topic=f"{job.topic}.g1")
    assert job.run()["stale"] == 0
    assert stored(direct) == {key: "newest" if key < 10 else "new" for key in range(30)}


def test_a_closed_generation_is_applied_again_to_its_end_before_the_next_one(
    job: Job, direct: Connection[Any], create_topic: CreateTopic
) -> None:
    create_topic(job.topic, 1)
    job.produce(range(20), "old")
    job.run()
    job.produce(range(10, 30), "late")
    fail_over(job.settings, job.topic)
    job.produce(range(5), "new", topic=f"{job.topic}.g1")
    with App(job.settings) as app:
        app.reset_pipeline(job.topic, from_first=True)
    totals = job.run()
    assert (totals["applied"] + totals["identical"], totals["stale"]) == (45, 0)
    wanted = dict.fromkeys(range(5), "new") | dict.fromkeys(range(5, 10), "old") | dict.fromkeys(range(10, 30), "late")
    assert stored(direct) == wanted


def test_copies_behind_the_end_of_a_closed_generation_are_no_lag(
    job: Job, direct: Connection[Any], create_topic: CreateTopic
) -> None:
    create_topic(job.topic, 1)
    job.produce(range(30), "old")
    job.run()
    fail_over(job.settings, job.topic)
    job.produce(range(20), "new", topic=f"{job.topic}.g1")
    job.run()
    assert migrate_topic(job.settings, job.topic) == {f"{job.topic}.g1": 20}
    assert job.run()["applied"] == 0
    status = pipeline_status(job.settings)
    assert (status["behind"], status["undecided"], status["oldest_seconds"]) == (0, 0, None)
    assert stored(direct) == {key: "new" if key < 20 else "old" for key in range(30)}


def test_dead_letters_of_both_incarnations_are_kept(
    job: Job, direct: Connection[Any], create_topic: CreateTopic, recreate_topic: CreateTopic
) -> None:
    create_topic(job.topic, 1)
    letters = 'SELECT "offset", generation FROM inorder_dead_letter ORDER BY 2'
    job.produce([1], "old" * 100)
    job.run()
    assert direct.execute(letters).fetchall() == [(0, 0)]
    recreate_topic(job.topic, 1)
    job.produce([1], "new" * 100)
    with App(job.settings) as app:
        app.reset_pipeline(job.topic)
    job.run()
    assert direct.execute(letters).fetchall() == [(0, 0), (0, 1)]


def test_records_that_retention_deletes_from_a_partition_never_read_before_are_loud(
    job: Job, direct: Connection[Any], create_topic: CreateTopic
) -> None:
    create_topic(job.topic, 2)
    job.produce([1], "first")
    job.run()
    job.produce(range(50), "lost", partition=1)
    job.trim(20, partition=1)
    with pytest.raises(GuaranteeError, match=r"\[1\] is at 0, but the partition begins at 20"):
        job.run()
    with App(job.settings) as app:
        app.reset_pipeline(job.topic)
    job.run()
    assert pointers(direct) == [(0, 0, 1), (1, 0, 50)]


@pytest.mark.full
def test_loss_in_a_later_generation_is_accepted_by_a_reset(
    job: Job, direct: Connection[Any], create_topic: CreateTopic
) -> None:
    create_topic(job.topic, 1)
    job.produce(range(10), "old")
    job.run()
    fail_over(job.settings, job.topic)
    later = f"{job.topic}.g1"
    job.produce(range(50), "new", topic=later)
    job.trim(20, topic=later)
    with pytest.raises(GuaranteeError, match="begins at 20"):
        job.run()
    # What the hint said before: the gate creates them again at 0.
    direct.execute("DELETE FROM inorder_pointer WHERE topic = %s", [later])
    with pytest.raises(GuaranteeError, match="begins at 20"):
        job.run()
    with App(job.settings) as app:
        app.reset_pipeline(job.topic)
    job.run()
    assert stored(direct) == dict.fromkeys(range(10), "old") | dict.fromkeys(range(20, 50), "new")
    assert pointers(direct)[-1] == (0, 1, 50)


def test_rows_of_version_0_1_0_are_adopted_at_first_sight(
    job: Job, direct: Connection[Any], create_topic: CreateTopic, recreate_topic: CreateTopic
) -> None:
    create_topic(job.topic, 2)
    job.produce(range(10), "old")
    job.run()
    for column in ("topic_id", "leader_epoch", "leader_epoch_at", "end_offset", "unknown_fields"):
        direct.execute(f"ALTER TABLE inorder_pointer DROP COLUMN {column}")
    direct.execute('DELETE FROM inorder_pointer WHERE "partition" = 1')
    install_schema(job.settings, "table")
    job.produce(range(10), "new")
    job.run()
    assert stored(direct) == dict.fromkeys(range(10), "new")
    ids = direct.execute("SELECT DISTINCT topic_id FROM inorder_pointer").fetchall()
    assert len(ids) == 1
    assert ids[0][0]
    recreate_topic(job.topic, 2)
    with pytest.raises(GuaranteeError, match="re-created"):
        job.run()
