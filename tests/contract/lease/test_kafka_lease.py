"""The election on a real broker: one leader at a time, who knows when it can no longer know."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from inorder.embedded import Kafka
from inorder.embedded.server import free_port
from inorder.kafka.admin import Cluster
from inorder.kafka.readers import read_back
from inorder.model.errors import ConfigurationError, TransientError, UnreachableError
from inorder.relay.leadership.election import State
from inorder.relay.stores.kafka_lease import KafkaLease, KafkaLeases, leader_topic
from tests.conftest import Eventually
from tests.contract.lease.making import QUICK_SESSION

Join = Callable[..., KafkaLease]
JoinAll = Callable[..., list[KafkaLease]]

# Milliseconds; where a leader is to lead on, so that a busy machine does not end its session.
LONG_SESSION = 30_000


@dataclass
class Clock:
    """Runs as time does, and skips what a paused process does not live to see."""

    skipped: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.skipped


@pytest.fixture
def join_all(unique: str, request: pytest.FixtureRequest) -> Iterator[JoinAll]:
    """Instances of one group, which leave at the end of the test; on the session's broker unless another is given."""
    joined: list[KafkaLease] = []

    def join_one(
        owner: str,
        *,
        shards: int,
        bootstrap: str | None = None,
        session: int = 6000,
        clock: Clock | None = None,
    ) -> list[KafkaLease]:
        servers = bootstrap or request.getfixturevalue("kafka_bootstrap")
        properties = {"bootstrap.servers": servers, "session.timeout.ms": session}
        instance = KafkaLeases(properties, group=unique, owner=owner, shards=shards, clock=clock or Clock())
        leases = [instance.lease(shard) for shard in range(shards)]
        joined.extend(leases)
        return leases

    yield join_one
    for lease in joined:
        lease.release()


@pytest.fixture
def join(join_all: JoinAll) -> Join:
    """Instances of one group with one shard."""
    return lambda owner="a", **options: join_all(owner, shards=1, **options)[0]


def leads(lease: KafkaLease) -> bool:
    """What the relay makes of it: trouble is not leadership."""
    try:
        return lease.acquire()
    except TransientError:
        return False


def all_lead(leases: list[KafkaLease]) -> bool:
    """Whether all lead; each is asked, as its loop would."""
    answers = [leads(lease) for lease in leases]
    return all(answers)


def leads_on(lease: KafkaLease) -> bool:
    """As far as the election goes; no loop gets an answer."""
    return lease.state is State.LEADING


def only_leader(members: list[KafkaLease]) -> KafkaLease | None:
    """Who leads; fails where two do. Asked in two rounds, so that a change between two questions is no overlap."""
    asked_once = [member for member in members if leads(member)]
    asked_twice = [member for member in asked_once if leads(member)]
    assert len(asked_twice) <= 1, "two lead at the same time"
    return asked_twice[0] if asked_twice else None


def members_of(bootstrap: str, group: str) -> int:
    """How many members a settled consumer group has; 0 while it is settling."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_consumer_groups([leader_topic(group)])[leader_topic(group)].result(60)
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
    leader, newcomer = join("leader", session=LONG_SESSION), join("newcomer", session=LONG_SESSION)
    eventually(leader.acquire)
    with caplog.at_level("INFO", "inorder.leadership"):
        newcomer.acquire()
        eventually(lambda: members_of(kafka_bootstrap, unique) == 2)
    changes = [record.message for record in caplog.records if record.name == "inorder.leadership"]
    assert changes == [], "the leader led on all the time"
    assert leader.acquire()
    assert not newcomer.acquire()


def test_the_election_of_a_shard_that_stays_goes_on_while_others_move(
    join_all: JoinAll, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Told by the states themselves, of which there may be more than anybody asks for."""
    first = join_all("first", shards=4, session=LONG_SESSION)
    eventually(lambda: all_lead(first))
    with caplog.at_level("INFO", "inorder.leadership"):
        second = join_all("second", shards=4, session=LONG_SESSION)
        eventually(lambda: sum([leads(lease) for lease in [*second, *first]]) == 4 and any(map(leads, second)))
    moved = {shard for shard, lease in enumerate(second) if leads(lease)}
    ours = [vars(record) for record in caplog.records if record.name == "inorder.leadership"]
    assert len(moved) == 2
    assert sorted((one["shard"], one["message"]) for one in ours if one["owner"] == "first") == [
        (shard, "leadership.revoked") for shard in sorted(moved)
    ]


@pytest.mark.full
def test_a_partition_goes_to_another_when_the_loop_of_its_shard_has_stopped(
    join_all: JoinAll, eventually: Eventually
) -> None:
    slow = join_all("slow", shards=2, session=6000)
    eventually(lambda: all_lead(slow))
    quick = join_all("quick", shards=2, session=6000)
    taken = eventually(lambda: [shard for shard in range(2) if not leads(quick[shard]) and not leads_on(slow[shard])])
    assert len(taken) == 1
    assert not quick[taken[0]].acquire(), "the other has notice, and is still stopping"
    assert not slow[taken[0]].acquire()
    eventually(quick[taken[0]].acquire)
    assert slow[1 - taken[0]].acquire()


def test_a_loop_that_does_not_stop_holds_nobody_up_for_long(
    join_all: JoinAll, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = join_all("stuck", shards=2, session=QUICK_SESSION)
    eventually(lambda: all_lead(stuck))
    quick = join_all("quick", shards=2, session=QUICK_SESSION)
    eventually(lambda: leads(quick[0]) or leads(quick[1]))
    assert "leadership.hand_over_late" in caplog.messages


def test_an_instance_leaves_the_group_with_its_last_shard(
    join_all: JoinAll, unique: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    first, second = join_all("first", shards=2)
    eventually(lambda: leads(first) and leads(second))
    first.release()
    assert second.acquire(), "the other shard goes on"
    assert members_of(kafka_bootstrap, unique) == 1
    second.release()
    assert members_of(kafka_bootstrap, unique) == 0
    eventually(lambda: leads(first))


def test_a_leader_topic_with_too_few_partitions_grows(
    join_all: JoinAll, unique: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    for shards in (1, 3):
        leases = join_all("first", shards=shards)
        eventually(partial(all_lead, leases))
        for lease in leases:
            lease.release()
    assert Cluster({"bootstrap.servers": kafka_bootstrap}).partitions(leader_topic(unique)) == 3


def test_partitions_beyond_the_shards_mean_nothing(join_all: JoinAll, eventually: Eventually) -> None:
    for shards in (3, 1):
        leases = join_all("first", shards=shards)
        eventually(partial(all_lead, leases))
        for lease in leases:
            lease.release()


def test_a_deleted_leader_topic_is_made_again(
    join: Join, unique: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    lease = join()
    eventually(lease.acquire)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.delete_topics([leader_topic(unique)])[leader_topic(unique)].result(60)
    eventually(lambda: list(read_back({"bootstrap.servers": kafka_bootstrap}, leader_topic(unique))))
    eventually(lambda: leads(lease))


@pytest.mark.full
def test_a_leader_whose_heartbeats_stop_fences_itself_and_leads_again_when_they_come_back(
    join: Join, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    with Kafka(tmp_path) as broker:
        lease = join(bootstrap=broker.bootstrap, session=QUICK_SESSION)
        eventually(lease.acquire)
        os.kill(broker.pids[0], signal.SIGSTOP)
        try:
            eventually(lambda: not leads(lease))
            assert "leadership.fenced" in caplog.messages, "it saw for itself, without a message"
        finally:
            os.kill(broker.pids[0], signal.SIGCONT)
        eventually(lambda: leads(lease))
        lease.release()


def test_a_leader_that_was_paused_does_not_lead_when_it_wakes_up(join: Join, eventually: Eventually) -> None:
    """The thread that hears of revocations may wake up last, so every caller checks the clock."""
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
    assert not lease.acquire(), "it is raised once"


def test_a_session_shorter_than_the_broker_allows_is_for_a_person_to_mend(join: Join, eventually: Eventually) -> None:
    lease = join(session=500)
    with pytest.raises(ConfigurationError, match=r"session\.timeout\.ms"):
        eventually(lease.acquire)
