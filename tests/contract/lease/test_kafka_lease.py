"""The election on a real broker: one leader at a time, who knows when it can no longer know."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from inorder.embedded import Kafka
from inorder.embedded.ports import free_port
from inorder.kafka.leadership import KafkaLease, leader_topic
from inorder.kafka.read_back import read_back
from inorder.leadership.election import State
from inorder.model.errors import ConfigurationError, TransientError, UnreachableError
from tests.conftest import Eventually
from tests.contract.lease.making import QUICK_SESSION

Join = Callable[..., KafkaLease]


@dataclass
class Clock:
    """Runs as time does, and skips what a paused process does not live to see."""

    skipped: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.skipped


@pytest.fixture
def join(unique: str, request: pytest.FixtureRequest) -> Iterator[Join]:
    """Instances of one group, which leave at the end of the test; on the session's broker unless told otherwise."""
    joined: list[KafkaLease] = []

    def join_one(
        owner: str = "a", *, bootstrap: str | None = None, session: int = QUICK_SESSION, clock: Clock | None = None
    ) -> KafkaLease:
        servers = bootstrap or request.getfixturevalue("kafka_bootstrap")
        properties = {"bootstrap.servers": servers, "session.timeout.ms": session}
        joined.append(KafkaLease(properties, group=unique, owner=owner, clock=clock or Clock()))
        return joined[-1]

    yield join_one
    for lease in joined:
        lease.release()


def leads(lease: KafkaLease) -> bool:
    """What the relay makes of it: trouble is not leadership."""
    try:
        return lease.acquire()
    except TransientError:
        return False


def only_leader(members: list[KafkaLease]) -> KafkaLease | None:
    """Who leads; fails where two do. Asked in two rounds, so that a change between two questions is no overlap."""
    asked_once = [member for member in members if leads(member)]
    asked_twice = [member for member in asked_once if leads(member)]
    assert len(asked_twice) <= 1, "two lead at the same time"
    return asked_twice[0] if asked_twice else None


def members_of(bootstrap: str, group: str) -> int:
    """How many members a settled consumer group has; 0 while it is settling."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_consumer_groups([leader_topic(group)])[leader_topic(group)].result(10)
    return len(found.members) if found.state.name == "STABLE" else 0


def test_a_single_instance_is_elected_by_its_own_heartbeat(join: Join, eventually: Eventually) -> None:
    alone = join()
    assert not alone.acquire(), "the first call only joins"
    eventually(alone.acquire)
    alone.release()
    assert not alone.acquire()


def test_of_four_instances_never_two_lead_and_each_gets_its_turn(join: Join, eventually: Eventually) -> None:
    members = [join(f"member {number}") for number in range(4)]
    led: list[KafkaLease] = []
    while members:
        leader = eventually(lambda: only_leader(members))
        assert leader is not None
        led.append(leader)
        leader.release()
        assert leader.state is State.STANDBY, "who left does not lead"
        members.remove(leader)
    assert len(set(led)) == 4


def test_a_newcomer_does_not_take_the_partition_from_the_leader(
    join: Join, unique: str, kafka_bootstrap: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    leader, newcomer = join("leader"), join("newcomer")
    eventually(leader.acquire)
    with caplog.at_level("INFO", "inorder.leadership"):
        newcomer.acquire()
        eventually(lambda: members_of(kafka_bootstrap, unique) == 2)
    changes = [record.message for record in caplog.records if record.name == "inorder.leadership"]
    assert changes == [], "the leader led on all the time"
    assert leader.acquire()
    assert not newcomer.acquire()


def test_a_deleted_leader_topic_is_made_again(
    join: Join, unique: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    lease = join()
    eventually(lease.acquire)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.delete_topics([leader_topic(unique)])[leader_topic(unique)].result(10)
    eventually(lambda: list(read_back({"bootstrap.servers": kafka_bootstrap}, leader_topic(unique))))
    eventually(lambda: leads(lease))


def test_a_leader_whose_heartbeats_stop_fences_itself_and_leads_again_when_they_come_back(
    join: Join, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    with Kafka(tmp_path) as broker:
        lease = join(bootstrap=broker.bootstrap)
        eventually(lease.acquire)
        os.kill(broker.pids[0], signal.SIGSTOP)
        try:
            eventually(lambda: not leads(lease))
            assert "leadership.fenced" in caplog.messages, "it was not told, it saw for itself"
        finally:
            os.kill(broker.pids[0], signal.SIGCONT)
        eventually(lambda: leads(lease))
        lease.release()


def test_a_leader_that_was_paused_does_not_lead_when_it_wakes_up(join: Join, eventually: Eventually) -> None:
    """The thread that hears of revocations may wake up last, so whoever asks looks at the clock himself."""
    clock = Clock()
    lease = join(clock=clock)
    eventually(lease.acquire)
    clock.skipped += 3600
    assert not leads(lease)
    eventually(lambda: leads(lease))


def test_a_broker_that_is_away_is_told_and_does_not_hold_the_caller_up(join: Join, eventually: Eventually) -> None:
    lease = join(bootstrap=f"127.0.0.1:{free_port()}")
    assert not lease.acquire()
    with pytest.raises(UnreachableError, match=r"bootstrap\.servers"):
        eventually(lease.acquire)
    assert not lease.acquire(), "it is told once"


def test_a_session_shorter_than_the_broker_allows_is_for_a_person_to_mend(join: Join, eventually: Eventually) -> None:
    lease = join(session=500)
    with pytest.raises(ConfigurationError, match=r"session\.timeout\.ms"):
        eventually(lease.acquire)
