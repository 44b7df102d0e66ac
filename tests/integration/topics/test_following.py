"""Publishers that write straight to Kafka follow a switch, and every reader sees each key in order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

import inorder
from inorder.database.postgres import connect
from inorder.kafka.readers import read_back
from inorder.model.errors import PublishError
from inorder.relay.options import Pace
from inorder.testing.checker import Verdict, check_delivery
from inorder.topics.generations import Phase
from inorder.topics.switch import Commit, Step
from tests.conftest import Eventually
from tests.integration.topics.conftest import SettingsOf
from tests.operating import fail_over, generations_status, install_schema

KEYS = 6


class Publishing:
    """Publishes round after round in a thread, and notes what was sent."""

    def __init__(self, publisher: inorder.Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic
        self._stop = threading.Event()
        self.rounds = 0

    def run(self) -> None:
        while not self._stop.wait(0.005):
            left = [inorder.Message(self._topic, key=str(key), value=str(self.rounds + 1)) for key in range(KEYS)]
            while left:
                try:
                    self._publisher.publish_list(left)
                    left = []
                except PublishError as error:
                    left = list(error.unsent)
            self.rounds += 1

    def __enter__(self) -> None:
        """Goes on until the end of the block."""

    def __exit__(self, *_error: object) -> None:
        self._stop.set()

    def verdict(self, settings: inorder.Settings, *generations: str) -> Verdict:
        """What is in the generations, one after the other, against what was published."""
        committed = [(str(key).encode(), place) for key in range(KEYS) for place in range(1, self.rounds + 1)]
        records = [record for topic in generations for record in read_back(settings.kafka.properties, topic)]
        return check_delivery(committed, [(record.key, int(record.value or b"0")) for record in records])


@pytest.mark.full
@pytest.mark.parametrize("backend", ["kafka", pytest.param("kafka_async", marks=pytest.mark.fault)])
def test_a_publisher_without_a_database_follows_a_switch_to_more_partitions(
    settings_of: SettingsOf, topic: str, eventually: Eventually, backend: str
) -> None:
    settings = settings_of(publisher={"backend": backend})
    own = inorder.Settings.load(
        kafka=dict(settings.kafka.properties),
        publisher={"backend": backend},
        topics={topic: {"partitioner": "id-modulo"}},
    )
    with inorder.Publisher(own) as publisher, ThreadPoolExecutor(1) as pool:
        publishing = Publishing(publisher, topic)
        running = pool.submit(publishing.run)
        with publishing:
            eventually(lambda: publishing.rounds > 20)
            state = fail_over(settings, topic, partitions=8)
            switched = publishing.rounds
            eventually(lambda: publishing.rounds > switched + 20)
        running.result()
        publisher.flush(60)
    assert state.current.topic == f"{topic}.g1"
    verdict = publishing.verdict(settings, topic, f"{topic}.g1")
    assert replace(verdict, duplicated=0).holds, verdict
    placed = {(record.key, record.partition) for record in read_back(settings.kafka.properties, f"{topic}.g1")}
    assert placed == {(str(key).encode(), key % 8) for key in range(KEYS)}, "by the rule of the topic"
    assert [each["late"] for each in generations_status(settings, topic)[0]["generations"]] == [0, 0]


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_relay_follows_a_switch_without_the_long_wait_of_a_topic_that_is_gone(
    settings_of: SettingsOf,
    topic: str,
    eventually: Eventually,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
) -> None:
    monkeypatch.setattr("inorder.relay.parts.Pace", partial(Pace, topic=3600.0))
    settings = settings_of(relay={"strategy": strategy})
    install_schema(settings, "native")

    def publish_while_it_is_closed(step: Step) -> None:
        if isinstance(step, Commit) and step.state.takes_records and step.state.phase is Phase.STEADY:
            with connect(postgres_url, "test") as connection:
                inorder.Outbox().publish(connection, inorder.Message(topic, key="k", value="v"))
                connection.commit()
            eventually(lambda: "is being switched" in relay.last_error)

    with inorder.Relay(settings) as relay:
        eventually(lambda: relay.is_leader)
        fail_over(settings, topic, to=f"{topic}.backup", on_step=publish_while_it_is_closed)
        eventually(lambda: relay.published == 1)
    assert [record.key for record in read_back(settings.kafka.properties, f"{topic}.backup")] == [b"k"]


@pytest.mark.fault
def test_a_relay_that_delivers_at_least_once_follows_and_other_topics_do_not_wait(
    settings_of: SettingsOf, topic: str, eventually: Eventually, postgres_url: str
) -> None:
    settings = settings_of(relay={"delivery": "at-least-once"}, topics={f"{topic}.other": {}})
    install_schema(settings, "native")
    rounds, other, stop = 0, f"{topic}.other", threading.Event()

    def write() -> None:
        nonlocal rounds
        with connect(postgres_url, "test", autocommit=True) as connection:
            while not stop.wait(0.01):
                messages = [
                    inorder.Message(name, key=str(key), value=str(rounds + 1))
                    for key in range(KEYS)
                    for name in (topic, other)
                ]
                with connection.transaction():
                    inorder.Outbox().publish_list(connection, messages)
                rounds += 1

    with inorder.Relay(settings) as relay, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            eventually(lambda: relay.published > 100)
            fail_over(settings, topic, to=f"{topic}.backup")
            before = relay.published
            eventually(lambda: relay.published > before + 500)
        finally:
            stop.set()
        writing.result()
        eventually(lambda: relay.published >= rounds * KEYS * 2)
    committed = [(str(key).encode(), place) for key in range(KEYS) for place in range(1, rounds + 1)]
    for generations in ((topic, f"{topic}.backup"), (other,)):
        records = [record for name in generations for record in read_back(settings.kafka.properties, name)]
        verdict = check_delivery(committed, [(record.key, int(record.value or b"0")) for record in records])
        assert replace(verdict, duplicated=0).holds, verdict
