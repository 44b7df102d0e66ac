"""One key is traced from the outbox to the table and the journal, with where it is held up, on each database."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import inorder
from inorder.database.database import open_database
from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.journal.service import journal_store
from inorder.kafka.admin import ensure_partitions, ensure_topic
from inorder.model.journal import Event, Key
from inorder.model.partitioning import Partitioner, partition_of
from inorder.operate.doctor import examine_order
from inorder.operate.key_trace import KeyTrace, findings
from inorder.pipeline.job import upsert_work
from tests.conftest import Eventually
from tests.integration.dead_letters.conftest import Job
from tests.integration.journal.replicator import Replicator
from tests.operating import install_schema, trace_key
from tests.selection import few


@pytest.fixture(params=few(["postgres", "mariadb", "sqlite"], "postgres", "sqlite"))
def job(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, tmp_path: Path) -> Job:
    """A table of each database, the outbox beside it."""
    url = f"sqlite:///{tmp_path / 'test.db'}" if request.param == "sqlite" else None
    return Job(url or request.getfixturevalue(f"{request.param}_url"), kafka_bootstrap, unique)


def settings_of(job: Job, **sections: Any) -> inorder.Settings:
    given: dict[str, Any] = {
        "journal": {"topic_prefixes": [f"{job.topic}.none"]},
        "relay": {"leadership": "none", "group": job.topic},
    } | sections
    return job.settings(**given)


def hops(followed: KeyTrace) -> list[str]:
    return [each.hop for each in findings(followed)]


def publish(settings: inorder.Settings, *messages: inorder.Message) -> None:
    engine = sa.create_engine(settings.database.require_url())
    with engine.begin() as connection:
        inorder.Outbox(settings.relay.table).publish_list(connection, list(messages))
    engine.dispose()


def count(settings: inorder.Settings) -> int:
    with closing(open_database(settings.database.require_url(), "test")) as database:
        return int(database.execute(f"SELECT count(*) FROM {settings.relay.table}").rows[0][0])


@pytest.mark.full
def test_a_key_is_found_at_each_hop_as_it_goes(job: Job, eventually: Eventually) -> None:
    settings = settings_of(job)
    install_schema(settings, "native")
    assert not any((followed := trace_key(settings, "42")).unseen.values())
    assert (hops(followed), followed.tables[0].version, followed.topics[0].records) == ([], None, 0)

    publish(settings, *(inorder.Message(job.topic, key=42, value={"id": 42, "data": data}) for data in "ab"))
    publish(settings, inorder.Message(job.topic, key=7, value={"id": 7, "data": "other"}))
    waiting = trace_key(settings, "42").outbox
    assert waiting is not None
    assert (waiting.rows, [row.topic for row in waiting.first]) == (2, [job.topic] * 2)
    assert hops(trace_key(settings, "42")) == ["outbox"]

    with inorder.Relay(settings):
        eventually(lambda: count(settings) == 0)
    eventually(lambda: hops(trace_key(settings, "42")) == ["table"])
    published = trace_key(settings, "42")
    assert (published.topics[0].records, published.topics[0].partition) == (2, 0)
    assert published.topics[0].last is not None

    job.apply(settings)
    applied = trace_key(settings, "42")
    assert hops(applied) == []
    [table] = applied.tables
    assert table.version == (0, published.topics[0].last.offset)
    assert table.row is not None
    assert (table.row["id"], table.row["data"]) == (42, "b")


@pytest.mark.full
def test_a_rejected_and_a_deleted_key_are_told(job: Job) -> None:
    settings = settings_of(job)
    rejected = job.send(1, n="one", data="x")
    job.consume()
    install_schema(settings, "native")
    [letter] = trace_key(settings, "1").tables[0].letters
    assert (letter.id, letter.code) == (f"{job.topic}:0:{rejected}", "wrong-type")
    assert hops(trace_key(settings, "1")) == ["dead letters"]
    job.send(2, data="x")
    job.producer.produce(job.topic, None, "2")
    assert job.producer.flush(60) == 0
    job.consume()
    [table] = trace_key(settings, "2").tables
    assert (table.is_deleted, table.row, hops(trace_key(settings, "2"))) == (True, None, [])


@pytest.mark.full
def test_a_row_that_was_deleted_or_changed_in_the_table_has_not_arrived(job: Job) -> None:
    settings = settings_of(job)
    install_schema(settings, "native")
    for key in (1, 2, 3, 4):
        job.send(key, data="x")
    last = job.send(4, data="x")  # identical: the version stays
    job.apply(settings)
    assert [hops(trace_key(settings, str(key))) for key in (1, 2, 3, 4)] == [[]] * 4
    with closing(open_database(job.url, "test")) as database:
        database.execute("DELETE FROM messages WHERE id = 1")
        database.execute("UPDATE messages SET data = 'y' WHERE id = 2")
        database.execute(f"UPDATE messages SET version_offset = {last} WHERE id = 3")
    said = {key: [each.sentence for each in findings(trace_key(settings, key))] for key in "1234"}
    assert [len(said[key]) for key in "1234"] == [1, 1, 1, 0]
    assert "The row is missing" in said["1"][0]
    assert "differs" in said["2"][0]
    assert "dropped as stale" in said["3"][0]


def test_a_key_that_no_row_can_have_is_looked_for_in_topics_only(
    postgres_url: str, kafka_bootstrap: str, unique: str
) -> None:
    job = Job(postgres_url, kafka_bootstrap, unique)
    settings = settings_of(job)
    install_schema(settings, "native")
    followed = trace_key(settings, "not a number")
    assert (followed.tables, [topic.topic for topic in followed.topics]) == ((), [unique])


@pytest.mark.full
def test_a_journal_is_followed_into_its_store_without_writing_to_its_topic(
    postgres_url: str, kafka_bootstrap: str, unique: str, eventually: Eventually
) -> None:
    properties: dict[str, object] = {"bootstrap.servers": kafka_bootstrap}
    topic = f"{unique}-journal"
    ensure_topic(properties, topic, 3)
    settings = settings_of(Job(postgres_url, kafka_bootstrap, unique), journal={"topic_prefixes": [topic]})
    install_schema(settings, "native")
    with closing(journal_store(settings)) as store:
        store.install()
    with inorder.Journals(settings) as journals:
        place = journals.journal(Key("42", topic)).append([Event(1), Event(2)])
        assert journals.journal(Key("42", topic)).pointer() == 2, "which leaves a mark"
    behind = trace_key(settings, "42")
    assert hops(behind) == ["journal"]
    assert [hop.records for hop in behind.topics if hop.topic == topic] == [1], "a mark is nothing to follow"
    with Replicator(properties, postgres_url, topic):
        eventually(lambda: not hops(trace_key(settings, "42")))
    [journal] = trace_key(settings, "42").journals
    assert (journal.seq_nr, journal.offset, journal.parked) == (2, place.offset, None)
    ends = [hop.end_offset for hop in trace_key(settings, "42").topics]
    assert ends == [hop.end_offset for hop in trace_key(settings, "42").topics], "to look leaves nothing behind"
    everywhere = trace_key(settings, "42", topic=topic, everywhere=True)
    assert [hop.records for hop in everywhere.topics] == [int(number == place.partition) for number in range(3)]


@pytest.mark.full
def test_the_command_prints_every_hop_and_exits_4_where_one_is_away(
    postgres_url: str, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    job = Job(postgres_url, kafka_bootstrap, unique)
    settings = settings_of(job)
    install_schema(settings, "native")
    publish(settings, inorder.Message(unique, key=5, value={"id": 5, "data": "a"}))

    def run(servers: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        config = tmp_path / "inorder.toml"
        config.write_text(
            f'[database]\nurl = "{postgres_url}"\n[kafka]\n"bootstrap.servers" = "{servers}"\n'
            f'[pipeline.upsert]\ntopic = "{unique}"\nfields = {{ n = "text", data = "text" }}\n'
            f'[journal]\ntopic_prefixes = ["{unique}.none"]\n'
        )
        command = [sys.executable, "-m", "inorder.cli", "key", "follow", "5", *arguments, "--config", str(config)]
        return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)

    ran = run(kafka_bootstrap)
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["hop", "outbox", "topic", "table"]
    assert "inorder relay status" in ran.stderr
    as_json = json.loads(run(kafka_bootstrap, "--json").stdout)
    assert (as_json["has_arrived"], as_json["outbox"]["rows"]) == (False, 1)
    away = run("127.0.0.1:9", "--json")
    assert (away.returncode, list(json.loads(away.stdout)["unseen"])) == (4, ["topics"])


@pytest.mark.full
def test_records_that_nothing_orders_are_found_by_following_the_key_and_by_the_doctor(
    job: Job, kafka_bootstrap: str
) -> None:
    ensure_partitions({"bootstrap.servers": kafka_bootstrap}, job.topic, 2)
    settings = settings_of(job)
    install_schema(settings, "native")
    install_schema(settings, "table")
    source = KafkaSource({"bootstrap.servers": kafka_bootstrap})
    home = partition_of(b"7", 2, Partitioner.MURMUR2) or 0
    for data in "abc":
        job.producer.produce(job.topic, json.dumps({"id": 7, "data": data}), "7", 1 - home)
    job.producer.produce(job.topic, json.dumps({"id": 7, "data": "keyless"}), None, home)
    assert job.producer.flush(60) == 0
    InProcess(upsert_work(settings), source).run(threading.Event(), once=True)
    followed = trace_key(settings, "7")
    assert [letter.code for letter in followed.tables[0].letters] == ["no-record-key"]
    assert hops(followed) == ["table", "dead letters"]
    job.producer.produce(job.topic, json.dumps({"id": 7, "data": "late"}), "7", home)
    assert job.producer.flush(60) == 0
    InProcess(upsert_work(settings), source).run(threading.Event(), once=True)
    assert hops(trace_key(settings, "7", everywhere=True)) == ["topic", "dead letters"]
    warned = [check.detail for check in examine_order(settings) if check.status == "warn"]
    assert warned == [
        f"{job.topic}: 1 records without a Kafka key were set aside",
        f"{job.topic}: 1 records were stale and left out of messages",
    ]
