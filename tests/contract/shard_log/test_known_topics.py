"""What is known of a topic is asked for once, again after a minute, and kept while nobody answers."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from inorder.embedded import Kafka
from inorder.kafka.admin import Cluster, ensure_partitions, ensure_topic
from inorder.kafka.errors import CLIENT_LOG
from inorder.kafka.topic_facts import KnownTopics
from inorder.model.errors import RejectedError, TopicUnavailableError, TransientError
from tests.conftest import Eventually
from tests.contract.shard_log.making import row


class Clock:
    """Stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def client_of(properties: dict[str, object]) -> Producer:
    return Producer({"bootstrap.servers": str(properties["bootstrap.servers"])}, logger=CLIENT_LOG)


def test_partitions_added_to_a_topic_in_use_are_seen_within_a_minute(
    properties: dict[str, object], unique: str, eventually: Eventually
) -> None:
    clock, client = Clock(), client_of(properties)
    topics = KnownTopics(properties, clock=clock)
    ensure_topic(properties, unique, 1)

    def count() -> int:
        topics.require(client, [row(unique, 1)], [unique])
        return topics.count(unique)

    def grows() -> bool:
        clock.now += 61
        return count() == 3

    assert count() == 1
    ensure_partitions(properties, unique, 3)
    assert count() == 1, "trusted, so nobody is asked"
    eventually(grows)


def test_a_topic_that_the_broker_makes_on_demand_is_waited_for(properties: dict[str, object], unique: str) -> None:
    topics = KnownTopics(properties)
    topics.require(client_of(properties), [row(unique, 1)], [unique])
    assert topics.counts([unique]) == {unique: 4}


@pytest.mark.full
def test_a_topic_that_does_not_exist_is_refused_with_the_name_that_was_meant_and_not_created(
    properties: dict[str, object], unique: str
) -> None:
    ensure_topic(properties, f"{unique}-orders", 1)
    strict = {**properties, "allow.auto.create.topics": False}
    client, mistyped = Producer({**strict}, logger=CLIENT_LOG), f"{unique}-oders"
    topics = KnownTopics(strict)
    with pytest.raises(TopicUnavailableError, match=f"{mistyped}.*; did you mean '{unique}-orders'") as caught:
        topics.require(client, [row(mistyped, 1)], [mistyped])
    assert "allow.auto.create.topics" in caught.value.hint
    assert mistyped not in Cluster(properties).topic_names()
    ensure_topic(properties, mistyped, 1)
    topics.require(client, [row(mistyped, 1)], [mistyped])


def test_a_topic_that_the_settings_name_is_made_on_demand(properties: dict[str, object], unique: str) -> None:
    strict = {**properties, "allow.auto.create.topics": False}
    topics = KnownTopics(strict, named=[unique])
    topics.require(Producer({**strict}, logger=CLIENT_LOG), [row(unique, 1)], [unique])
    assert topics.counts([unique]) == {unique: 4}


def test_an_invalid_name_is_the_fault_of_the_first_row_that_has_it(properties: dict[str, object], unique: str) -> None:
    rows = [row(unique, 1), row("not/a/topic", 2), row("not/a/topic", 3)]
    with pytest.raises(RejectedError) as caught:
        KnownTopics(properties).require(client_of(properties), rows, [unique, "not/a/topic"])
    assert caught.value.row_id == 2


@pytest.mark.full
def test_what_is_known_is_kept_while_nobody_answers(own_broker: Kafka, unique: str) -> None:
    properties: dict[str, object] = {"bootstrap.servers": own_broker.bootstrap}
    clock, client = Clock(), client_of(properties)
    topics = KnownTopics(properties, clock=clock)
    topics.require(client, [row(unique, 1)], [unique])
    own_broker.kill()
    clock.now = 61
    topics.require(client, [row(unique, 1)], [unique])
    assert topics.count(unique) == 4
    assert topics.blame(client, [row(unique, 1)]) is None, "an outage is no fault of a topic"
    with pytest.raises(TransientError, match="row 2 to topic 'another'"):
        topics.require(client, [row("another", 2)], ["another"])
