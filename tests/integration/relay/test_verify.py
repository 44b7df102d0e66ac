"""`inorder verify run` against running relays: correct ones, none, and two that are made to break a guarantee."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import inorder
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import committed_consumer
from inorder.verify.history import VerifyOutcome, ViolationKind, judge
from inorder.verify.run import VerifyPlan, VerifyRun
from tests.conftest import Eventually
from tests.integration.relay.commands import Commands
from tests.integration.relay.conftest import Bench

FEW = ("--events", "150", "--keys", "8")

# A row in fifty vanishes in the transaction that wrote it, or is there twice: what a wrong relay would do.
LOSING = """
CREATE FUNCTION sabotage() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RETURN CASE WHEN NEW.id % 50 = 0 THEN NULL ELSE NEW END; END $$;
CREATE TRIGGER sabotage BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION sabotage();
"""
DOUBLING = """
CREATE FUNCTION sabotage() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO outbox (topic, key, value) VALUES (NEW.topic, NEW.key, NEW.value); RETURN NULL; END $$;
CREATE TRIGGER sabotage AFTER INSERT ON outbox FOR EACH ROW WHEN (pg_trigger_depth() = 0 AND NEW.id % 50 = 0)
EXECUTE FUNCTION sabotage();
"""


def topics_left(bench: Bench) -> list[str]:
    found = AdminClient({"bootstrap.servers": bench.bootstrap}).list_topics(timeout=30).topics
    return [name for name in found if name.startswith("inorder-verify-")]


def assert_nothing_left(bench: Bench, eventually: Eventually) -> None:
    assert bench.count() == 0
    eventually(lambda: topics_left(bench) == [])  # the metadata of a deleted topic is there for a moment


def test_a_running_relay_passes_and_nothing_stays_behind(bench: Bench, tmp_path: Path, eventually: Eventually) -> None:
    bench.relay()
    kept = tmp_path / "history"
    commands = Commands(bench, tmp_path)
    run = commands.run("verify", "run", *FEW, "--json", "--history", str(kept))
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["verdict"] == "ok"
    assert found["delivered"] == found["committed"] > 100
    assert found["rolled_back"] > 0
    again = commands.run_bare("verify", "check", str(kept), "--json")
    assert (again.returncode, json.loads(again.stdout)) == (0, found)
    assert_nothing_left(bench, eventually)


@pytest.mark.full
@pytest.mark.parametrize(
    ("sabotage", "kind"), [pytest.param(LOSING, "lost", marks=pytest.mark.full), (DOUBLING, "duplicated")]
)
def test_an_installation_that_breaks_a_guarantee_fails_with_a_witness(
    bench: Bench, tmp_path: Path, eventually: Eventually, sabotage: str, kind: str
) -> None:
    with bench.connect() as connection:
        connection.execute(sabotage)
    bench.relay()
    run = Commands(bench, tmp_path).run("verify", "run", *FEW, "--json")
    assert run.returncode == 5, run.stderr
    found = json.loads(run.stdout)
    assert found["verdict"] == "failed"
    assert found[kind] > 0
    assert len(found["witness"]) == 3
    assert_nothing_left(bench, eventually)


def test_without_a_relay_the_verdict_is_unknown_and_the_rows_are_withdrawn(
    bench: Bench, eventually: Eventually
) -> None:
    history = VerifyRun(bench.settings(), VerifyPlan(events=30, keys=5, seconds=0.1)).execute()
    judgement = judge(history)
    assert judgement.outcome is VerifyOutcome.UNKNOWN
    assert judgement.waiting == judgement.committed > 0
    assert judgement.count(ViolationKind.LOST) == 0
    assert_nothing_left(bench, eventually)


class HandMadeJob:
    """Applies the records of a topic to its table, as the job `upsert` does, or writes what was never published."""

    def __init__(self, bench: Bench, topic: str, *, is_wrong: bool) -> None:
        self._bench = bench
        self._topic = topic
        self._is_wrong = is_wrong
        self.deleted = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hand-made job")

    def create_table(self) -> None:
        with self._bench.connect() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS messages (id bigint PRIMARY KEY, enabled boolean, data text)"
            )

    def __enter__(self) -> HandMadeJob:
        self.create_table()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = committed_consumer(self._bench.properties, "test")
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        with self._bench.connect() as connection:
            while not self._stop.is_set():
                for message in consumer.consume(100, 0.05):
                    if message.error() is None:
                        self._apply(connection, message.key(), message.value())
                connection.commit()
        consumer.close()

    def _apply(self, connection: psycopg.Connection[Any], key: Any, value: Any) -> None:
        id = int(key)
        if value is None:
            self.deleted += 1
            connection.execute("DELETE FROM messages WHERE id = %s", (id,))
            return
        row = json.loads(value)
        if self._is_wrong and id % 2:
            row["data"] = "event 999999"
        connection.execute(
            "INSERT INTO messages VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE "
            "SET enabled = excluded.enabled, data = excluded.data",
            (id, row["enabled"], row["data"]),
        )


def settings_with_table(bench: Bench, topic: str) -> inorder.Settings:
    return inorder.Settings.load(
        kafka={"bootstrap.servers": bench.bootstrap},
        database={"url": bench.url},
        relay={"group": bench.group},
        pipeline={"upsert": {"topic": topic}},
    )


@pytest.mark.parametrize(
    ("is_wrong", "outcome"),
    [
        pytest.param(False, VerifyOutcome.OK, id="right"),
        pytest.param(True, VerifyOutcome.FAILED, id="wrong", marks=pytest.mark.full),
    ],
)
def test_the_table_of_a_topic_is_looked_at_and_left_as_it_was(
    bench: Bench, unique: str, is_wrong: bool, outcome: VerifyOutcome
) -> None:
    ensure_topic(bench.properties, unique, 1)
    bench.relay()
    settings = settings_with_table(bench, unique)
    plan = VerifyPlan(events=60, keys=6, topic=unique)
    job = HandMadeJob(bench, unique, is_wrong=is_wrong)
    job.create_table()
    with job:
        judgement = judge(VerifyRun(settings, plan).execute())
    assert judgement.outcome is outcome, judgement
    assert (judgement.count(ViolationKind.PHANTOM) > 0) is is_wrong
    assert bench.count() == 0
    with bench.connect() as connection:
        assert connection.execute("SELECT * FROM messages").fetchall() == []


def test_a_job_that_starts_after_the_verification_leaves_the_table_empty(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    ensure_topic(bench.properties, unique, 1)
    bench.relay()
    said: list[str] = []
    stop = threading.Event()
    job = HandMadeJob(bench, unique, is_wrong=False)
    job.create_table()
    plan = VerifyPlan(events=20, keys=4, topic=unique)
    run = VerifyRun(settings_with_table(bench, unique), plan, stop=stop, say=said.append)
    with ThreadPoolExecutor(1) as pool, closing(committed_consumer(bench.properties, "test")) as consumer:
        running = pool.submit(run.execute)
        eventually(lambda: consumer.get_watermark_offsets(TopicPartition(unique, 0), timeout=30)[1] > 0)
        stop.set()
        judgement = judge(running.result())
    assert judgement.outcome is VerifyOutcome.UNKNOWN, judgement
    assert judgement.delivered > 0
    assert "may not have applied all records" in said[-1]
    assert bench.count() == 0
    with job:
        eventually(lambda: job.deleted == plan.keys)
    with bench.connect() as connection:
        assert connection.execute("SELECT * FROM messages").fetchall() == []


def test_a_topic_in_which_another_producer_holds_a_transaction_open_is_unknown_and_not_failed(
    bench: Bench, unique: str
) -> None:
    ensure_topic(bench.properties, unique, 1)
    bench.relay()
    other = Producer({"bootstrap.servers": bench.bootstrap, "transactional.id": f"{unique}-other"})
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(unique, b"of others")
    assert other.flush(60) == 0
    judgement = judge(VerifyRun(bench.settings(), VerifyPlan(events=30, keys=5, seconds=1, topic=unique)).execute())
    other.abort_transaction(60)
    assert judgement.outcome is VerifyOutcome.UNKNOWN, judgement
    assert judgement.waiting == judgement.committed > 0
