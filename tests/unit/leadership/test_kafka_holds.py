"""A lease is held while its instance leads, and during a hand-over; never once the partition is lost."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from inorder.relay.leadership.election import State
from inorder.relay.stores.kafka_lease import ElectionTimes, GroupMember, KafkaLease, KafkaLeases, leader_topic

TOPIC = leader_topic("g")
PLACES = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
CONSUMER: Any = SimpleNamespace(incremental_assign=lambda _places: None)


class Stage:
    """A member of a group without a thread: the test is the broker, and the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(GroupMember, "join", lambda _member: None)
        monkeypatch.setattr(GroupMember, "has_ended", lambda _member: False)
        times = ElectionTimes(hand_over=0.0)
        self.leases = KafkaLeases({}, group="g", owner="us", shards=2, times=times, clock=lambda: self.now)
        self.lease: KafkaLease = self.leases.lease(0)
        self.lease.acquire()
        assert self.leases._member is not None
        self.member = self.leases._member

    def lead(self) -> None:
        self.member._on_assign(CONSUMER, PLACES)
        for place in PLACES:
            value = json.dumps({"name": "us", "sent": self.now}).encode()
            found: Any = SimpleNamespace(value=lambda value=value: value, partition=lambda place=place: place.partition)
            self.member._read(found)
        assert self.lease.acquire()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_it_is_not_held_before_it_is_won_and_held_while_it_leads(stage: Stage) -> None:
    assert not stage.lease.holds()
    stage.member._on_assign(CONSUMER, PLACES)
    assert not stage.lease.holds(), "no heartbeat came back yet"
    stage.lead()
    assert stage.lease.holds()


def test_it_is_not_held_once_the_partition_was_lost(stage: Stage) -> None:
    """The session has timed out: another instance may have begun, and without a fence nothing else would stop us."""
    stage.lead()
    stage.member._on_lost(CONSUMER, PLACES[:1])
    assert stage.lease.state is State.STANDBY
    assert not stage.lease.holds()
    assert stage.leases.lease(1).holds(), "the other shard is not concerned"


def test_it_is_not_held_without_heartbeats(stage: Stage) -> None:
    stage.lead()
    stage.now += 6
    assert not stage.lease.holds()
    stage.member._on_revoke(CONSUMER, PLACES)
    assert not stage.lease.holds()


def test_it_is_held_while_its_loop_is_waited_for_and_not_afterwards(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    during: list[bool] = []

    def wait(_hand_over: object, _seconds: float) -> bool:
        during.append(stage.lease.holds())
        assert not stage.lease.acquire(), "it begins nothing new"
        return False

    monkeypatch.setattr("inorder.relay.leadership.share.HandOver.wait", wait)
    stage.member._on_revoke(CONSUMER, PLACES[:1])
    assert during == [True]
    assert not stage.lease.holds()
    stage.lead()
    assert stage.lease.holds()


def test_it_is_not_held_after_its_release(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupMember, "leave", lambda _member: None)
    stage.lead()
    stage.lease.release()
    assert not stage.lease.holds()
