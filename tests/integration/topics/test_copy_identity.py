"""A copy is of one topic into one other: where either is re-created in the middle, it is refused by name."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import inorder
from inorder.app import App
from inorder.engines.partition_reader import KafkaSource
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.model.errors import OtherTopicError
from inorder.topics.generations import Generation, TopicState
from inorder.topics.stores.generations import SqlTopicGenerations
from inorder.topics.stores.kafka_copy import CopyWork
from tests.conftest import Eventually
from tests.integration.topics.conftest import SettingsOf
from tests.operating import migrate_topic, recreate


@dataclass
class Copied:
    """A topic of two generations; both are copied into one topic."""

    settings: inorder.Settings
    topic: str
    eventually: Eventually

    @property
    def second(self) -> str:
        return f"{self.topic}.g1"

    @property
    def destination(self) -> str:
        return f"{self.topic}.all"

    def produce(self, topic: str, *values: str) -> None:
        producer = Producer(self.settings.kafka.properties)
        for value in values:
            producer.produce(topic, value, "key", 0)
        assert producer.flush(30) == 0

    def copy(self, **options: bool) -> dict[str, int]:
        return migrate_topic(self.settings, self.topic, to=self.destination, **options)

    def values(self) -> list[str]:
        return [
            (record.value or b"").decode() for record in read_back(self.settings.kafka.properties, self.destination)
        ]

    def recreate(self, topic: str) -> None:
        recreate(dict(self.settings.kafka.properties), topic, 1, self.eventually)


@pytest.fixture
def copied(settings_of: SettingsOf, unique: str, eventually: Eventually) -> Copied:
    """Both generations are copied, up to here."""
    found = Copied(settings_of(publisher={"backend": "kafka"}), unique, eventually)
    for topic in (found.topic, found.second):
        ensure_topic(found.settings.kafka.properties, topic, 1)
    found.produce(found.topic, "1", "2")
    found.produce(found.second, "3", "4")
    with App(found.settings) as app:
        first, second = Generation(0, found.topic, 1, (2,)), Generation(1, found.second, 1)
        assert SqlTopicGenerations(app.database).replace(TopicState(found.topic, (first, second)))
    assert found.copy() == {found.topic: 2, found.second: 2}
    return found


@pytest.mark.full
def test_a_recreated_destination_is_refused_and_a_reset_copies_everything_again(copied: Copied) -> None:
    copied.recreate(copied.destination)
    copied.produce(copied.second, "5")
    with pytest.raises(OtherTopicError, match=f"{copied.destination}' was deleted and re-created.*had id") as refused:
        copied.copy()
    assert f"inorder topics migrate {copied.topic} --to {copied.destination} --reset" in refused.value.hint
    assert copied.values() == []
    assert copied.copy(reset=True) == {copied.topic: 2, copied.second: 3}
    assert copied.values() == ["1", "2", "3", "4", "5"]
    assert copied.copy(reset=True) == {copied.topic: 0, copied.second: 0}, "nothing to accept, nothing twice"


@pytest.mark.full
def test_a_deleted_destination_is_not_created_again_without_a_word(copied: Copied) -> None:
    source = KafkaSource(dict(copied.settings.kafka.properties))
    admin = AdminClient(copied.settings.kafka.properties)
    for future in admin.delete_topics([copied.destination]).values():
        future.result(timeout=30)
    copied.eventually(lambda: source.topic_id(copied.destination) is None)
    with pytest.raises(OtherTopicError, match="was deleted in the middle of a copy"):
        copied.copy()
    assert copied.copy(reset=True) == {copied.topic: 2, copied.second: 2}
    assert copied.values() == ["1", "2", "3", "4"]


def test_a_recreated_source_is_refused_and_a_reset_copies_what_it_holds(copied: Copied) -> None:
    copied.recreate(copied.second)
    copied.produce(copied.second, "5", "6", "7")
    with pytest.raises(OtherTopicError, match=f"{copied.second}' was deleted and re-created"):
        copied.copy()
    assert copied.copy(reset=True) == {copied.topic: 0, copied.second: 3}
    assert copied.values() == ["1", "2", "3", "4", "5", "6", "7"]


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_task_that_was_given_other_topics_copies_nothing(copied: Copied, side: str) -> None:
    properties = dict(copied.settings.kafka.properties)
    with App(copied.settings) as app:
        ids = SqlTopicGenerations(app.database).read_copies(copied.destination)[copied.second]
    work = CopyWork(tuple(properties.items()), copied.second, copied.destination, ids=ids)
    source = KafkaSource(properties)
    with closing(source.open({(copied.second, 0): 0}, headers=True)) as reader:
        batch = reader.read(10, 10.0).slices[0]
    copied.recreate(copied.destination if side == "destination" else copied.second)
    with closing(work.open()) as worker, pytest.raises(OtherTopicError, match="re-created"):
        worker.apply(replace(batch, topic_id=source.topic_id(copied.second)), 0)
    if side == "destination":
        assert copied.values() == []
