"""A paused topic waits in the outbox and a paused table in Kafka; others continue, and nothing is lost or reordered."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

import inorder
from inorder.app import App
from inorder.cli.main import main
from inorder.database.database import open_database
from inorder.database.postgres import connect
from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.slice_work import SliceWork
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.model.errors import ConfigurationError
from inorder.model.partitioning import shard_of
from inorder.pipeline.job import GenerationGate, follow_generations
from inorder.topics.pauses import PauseKind, SqlPauses
from inorder.topics.routes import TRUSTED_SECONDS
from tests.conftest import Eventually
from tests.integration.topics.conftest import SettingsOf
from tests.operating import install_schema, outbox_numbers
from tests.selection import few

STRATEGIES = ["drain", "mark-purge", "polling", "topic-lock"]
LAYOUTS = {"polling": "trendyol", "topic-lock": "deimos"}


@pytest.mark.full
@pytest.mark.parametrize("strategy", few(STRATEGIES, "drain", "topic-lock"))
def test_messages_of_a_paused_topic_wait_and_follow_in_order_while_others_are_sent(
    settings_of: SettingsOf,
    topic: str,
    postgres_url: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    strategy: str,
) -> None:
    layout, other = LAYOUTS.get(strategy, "native"), f"{topic}.other"
    settings = settings_of(relay={"strategy": strategy, "layout": layout})
    ensure_topic(settings.kafka.properties, other, 1)
    install_schema(settings, layout)
    publisher, number = inorder.Publisher(settings), 0

    def publish() -> None:
        nonlocal number
        number += 1
        with connect(postgres_url, "test") as connection:
            publisher.publish_list(
                [inorder.Message(name, key="k", value={"number": number}) for name in (topic, other)], connection
            )

    def values(name: str) -> list[int]:
        return [json.loads(record.value or b"")["number"] for record in read_back(settings.kafka.properties, name)]

    with App(settings) as app, inorder.Relay(settings):
        publish()
        eventually(lambda: values(topic) == values(other) == [1])
        app.pause(PauseKind.TOPIC, topic, reason="an incident")
        threading.Event().wait(2 * TRUSTED_SECONDS)  # until then a relay may send what it has not heard of
        publish()
        eventually(lambda: values(other) == list(range(1, number + 1)))
        assert values(topic) == [1]
        eventually(lambda: "topics.paused" in caplog.messages)
        app.resume(PauseKind.TOPIC, topic)
        eventually(lambda: values(topic) == list(range(1, number + 1)))


@pytest.mark.full
@pytest.mark.parametrize("strategy", few(["drain", "mark-purge", "polling"], "drain"))
def test_a_paused_key_waits_through_a_take_over_and_follows_in_order_while_others_are_sent(
    settings_of: SettingsOf, topic: str, postgres_url: str, eventually: Eventually, strategy: str
) -> None:
    layout = LAYOUTS.get(strategy, "native")
    settings = settings_of(relay={"strategy": strategy, "layout": layout})
    install_schema(settings, layout)
    publisher, number = inorder.Publisher(settings), 0

    def publish() -> None:
        nonlocal number
        number += 1
        with connect(postgres_url, "test") as connection:
            publisher.publish_list(
                [inorder.Message(topic, key=key, value={"number": number}) for key in ("a/b c", "k")], connection
            )

    def values(key: str) -> list[int]:
        records = read_back(settings.kafka.properties, topic)
        return [json.loads(record.value or b"")["number"] for record in records if record.key == key.encode()]

    with App(settings) as app:
        app.pause(PauseKind.KEY, f"{topic}/a/b c", reason="an incident")
        for _ in range(2):  # the second relay takes over
            with inorder.Relay(settings) as relay:
                publish()
                publish()
                eventually(lambda: values("k") == list(range(1, number + 1)))
                assert relay.last_error == "", "a pause is no error"
        assert values("a/b c") == []
        assert outbox_numbers(settings)["paused"] == 1
        assert f"key {topic}/a/b c" in app.status()["topics"]["paused"]
        with inorder.Relay(settings):
            app.resume(PauseKind.KEY, f"{topic}/a/b c")
            publish()
            eventually(lambda: values("a/b c") == values("k") == list(range(1, number + 1)))


@pytest.mark.full
def test_the_owner_of_a_paused_shard_reads_nothing_and_other_shards_continue(
    settings_of: SettingsOf, topic: str, postgres_url: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(relay={"shards": 2})
    install_schema(settings, "native")
    keys = {shard: next(f"k{n}" for n in count() if shard_of(topic, b"k%d" % n, 0, 2) == shard) for shard in (0, 1)}
    publisher = inorder.Publisher(settings)

    def publish(number: int) -> None:
        with connect(postgres_url, "test") as connection:
            publisher.publish_list(
                [inorder.Message(topic, key=key, value=str(number)) for key in keys.values()], connection
            )

    def values(shard: int) -> list[bytes | None]:
        records = read_back(settings.kafka.properties, topic)
        return [record.value for record in records if record.key == keys[shard].encode()]

    with App(settings) as app:
        app.pause(PauseKind.SHARD, "1", reason="an incident")
        for number in (1, 2):  # the second relay takes over
            with inorder.Relay(settings) as relay:
                eventually(lambda: len(relay.leader_ids) == 2)
                publish(number)
                eventually(lambda: len(values(0)) == number)  # noqa: B023 - called at once
        assert values(1) == []
        assert "relay.shard_paused" in caplog.messages
        with inorder.Relay(settings):
            app.resume(PauseKind.SHARD, "1")
            publish(3)
            eventually(lambda: values(0) == values(1) == [b"1", b"2", b"3"])


@pytest.mark.parametrize(
    ("relay", "kind", "name", "why"),
    [
        ({}, PauseKind.SHARD, "1", "no shard '1'"),
        ({"strategy": "polling", "layout": "trendyol"}, PauseKind.SHARD, "0", "has no shards to pause"),
        ({"strategy": "topic-lock", "layout": "deimos"}, PauseKind.KEY, "t/k", "does not hold single keys"),
        ({}, PauseKind.KEY, "k", "no key of a topic"),
        ({}, PauseKind.KEY, "t/" + 250 * "k", "no key of a topic"),
    ],
)
def test_what_a_relay_could_not_honour_is_refused(relay: dict[str, str], kind: PauseKind, name: str, why: str) -> None:
    settings = inorder.Settings.load(relay=relay, database={"url": "sqlite:///none.db"})
    with App(settings) as app, pytest.raises(ConfigurationError, match=why):
        app.pause(kind, name, reason="an incident")


@pytest.fixture
def tables(settings_of: SettingsOf, topic: str) -> inorder.Settings:
    ensure_topic({"bootstrap.servers": settings_of().kafka.properties["bootstrap.servers"]}, f"{topic}.other", 1)
    fed = [{"topic": topic, "table": "orders"}, {"topic": f"{topic}.other", "table": "payments"}]
    settings = settings_of(publisher={"backend": "kafka"}, pipeline={"tables": fed})
    install_schema(settings, "table")
    return settings


class Job:
    """The job `upsert` in this process, and what is in its tables."""

    def __init__(self, settings: inorder.Settings, app: App, topic: str) -> None:
        self._settings = settings
        self._app = app
        self._topic = topic
        self._published = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        stop, source = threading.Event(), KafkaSource(dict(self._settings.kafka.properties))

        def run_engine(reading: SliceWork, over: threading.Event) -> None:
            InProcess(reading, source).run(over)

        url = self._settings.database.require_url()
        with closing(open_database(url, "test")) as database, ThreadPoolExecutor(1) as pool:
            gate = GenerationGate(self._app.generations, self._app.pointers, SqlPauses(database).read)
            done = pool.submit(follow_generations, gate, self._app.upsert_work, stop, run_engine, look=0.1)
            try:
                yield
            finally:
                stop.set()
            done.result(60)

    def publish(self) -> str:
        self._published += 1
        with inorder.Publisher(self._settings) as publisher:
            for name in (self._topic, f"{self._topic}.other"):
                value = {"id": 1, "data": str(self._published)}
                publisher.publish(inorder.Message(name, key="1", value=value))
        return str(self._published)

    def data(self, table: str) -> str | None:
        with closing(open_database(self._settings.database.require_url(), "test")) as database:
            rows = database.execute(f"SELECT data FROM {table}").rows
        return rows[0][0] if rows else None


def test_records_of_a_paused_table_wait_while_another_is_filled(
    tables: inorder.Settings, topic: str, eventually: Eventually
) -> None:
    with App(tables) as app:
        job = Job(tables, app, topic)
        app.pause(PauseKind.TABLE, "orders", reason="a vacuum")
        with job.running():
            first = job.publish()
            eventually(lambda: job.data("payments") == first)
            assert job.data("orders") is None
            app.resume(PauseKind.TABLE, "orders")
            eventually(lambda: job.data("orders") == first)


def test_a_paused_job_continues_as_before_when_it_is_resumed(
    tables: inorder.Settings, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    with App(tables) as app:
        job = Job(tables, app, topic)
        with job.running():
            first = job.publish()
            eventually(lambda: job.data("orders") == job.data("payments") == first)
            app.pause(PauseKind.PIPELINE, "upsert", reason="a restore")
            eventually(lambda: "pipeline.paused" in caplog.messages)
            second = job.publish()
            assert (job.data("orders"), job.data("payments")) == (first, first)
            app.resume(PauseKind.PIPELINE, "upsert")
            eventually(lambda: job.data("orders") == job.data("payments") == second)


@pytest.mark.full
def test_the_commands_pause_and_resume_and_the_status_shows_why(
    tables: inorder.Settings,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    config = tmp_path / "inorder.toml"
    bootstrap, url = tables.kafka.properties["bootstrap.servers"], tables.database.require_url()
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n[database]\nurl = "{url}"\n'
        f'[[pipeline.tables]]\ntopic = "{topic}"\ntable = "orders"\n'
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["inorder", *arguments, "--config", str(config)])
        try:
            code = main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    assert run("pause", "topic", topic)[0] == 2, "without a reason"
    assert run("pause", "topic", topic, "--reason", "an incident")[0] == 0
    assert run("pause", "table", "orders", "--reason", "a vacuum")[0] == 0
    code, _, said = run("pause", "table", "order", "--reason", "a slip")
    assert (code, "There is no table 'order' to pause." in said, "There are: orders." in said) == (3, True, True)
    paused = json.loads(run("status", "--json")[1])["topics"]["paused"]
    assert {name: reason.partition(" (")[0] for name, reason in paused.items()} == {
        "table orders": "a vacuum",
        f"topic {topic}": "an incident",
    }
    assert run("resume", "topic", topic)[0] == 0
    code, _, said = run("resume", "topic", topic)
    assert (code, f"The topic {topic!r} is not paused." in said) == (1, True)
    assert list(json.loads(run("status", "--json")[1])["topics"]["paused"]) == ["table orders"]
    with App(tables) as app:
        logged = [(each.action, json.loads(each.target), each.state) for each in app.action_log.page()]
    assert logged == [
        ("resume", {"topic": topic}, "done"),
        ("resume", {"topic": topic}, "done"),
        ("pause", {"table": "orders"}, "done"),
        ("pause", {"topic": topic}, "done"),
    ]


def test_a_job_that_no_command_knows_is_not_paused(tables: inorder.Settings) -> None:
    with App(tables) as app, pytest.raises(ConfigurationError, match="There is no pipeline 'upsrt' to pause"):
        app.pause(PauseKind.PIPELINE, "upsrt", reason="a slip")
