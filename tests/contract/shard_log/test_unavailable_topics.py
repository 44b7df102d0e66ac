"""A topic that does not exist, or is closed to us, waits alone: the same log carries all others meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # the stubs do not re-export it

from inorder.kafka.admin import Cluster, ensure_topic
from inorder.kafka.readers import read_back
from inorder.kafka.shard_log import Incomplete, ShardLog
from inorder.model.errors import ConfigurationError, FencedError, TopicUnavailableError
from inorder.model.message import OutboxRow
from tests.conftest import Eventually
from tests.contract.shard_log.making import open_log, publish, publish_patiently, row
from tests.contract.shard_log.strict_broker import StrictKafka
from tests.fakes.log import MemoryBroker, MemoryShardLog, MemoryUnfencedLog
from tests.selection import few


@pytest.fixture(autouse=True)
def patience() -> None:
    """That of the relay: what a log does without a topic, it does when its patience is at an end."""


@dataclass(frozen=True)
class Stage:
    """A log with two topics, one of which can be shut and opened again."""

    log: Callable[[], ShardLog]
    steady: str
    shaky: str
    shut: Callable[[], None]
    reopen: Callable[[], None]
    delivered: Callable[[str], list[bytes | None]]

    def opened(self) -> ShardLog:
        log = self.log()
        log.take_over()
        return log

    def batch(self, *ids: int) -> list[OutboxRow]:
        """Rows with odd ids go to the shaky topic."""
        return [row(self.shaky if id % 2 else self.steady, id) for id in ids]


def in_memory(unique: str, *, fenced: bool) -> Stage:
    broker, kind = MemoryBroker(), MemoryShardLog if fenced else MemoryUnfencedLog
    shaky = f"{unique}.shaky"
    return Stage(
        lambda: kind(broker),
        unique,
        shaky,
        lambda: broker.unavailable.add(shaky),
        lambda: broker.unavailable.discard(shaky),
        lambda topic: [each.value for each in broker.records if each.topic == topic],
    )


@dataclass(frozen=True)
class Shaky:
    """A topic of the strict broker, and how it becomes unavailable."""

    broker: StrictKafka
    name: str
    way: str
    eventually: Eventually

    def shut(self) -> None:
        match self.way:
            case "deleted":
                self.broker.delete(self.name)
            case "hidden":
                self.broker.allow_only(self.name)
            case "read-only":
                self.broker.allow_only(self.name, AclOperation.DESCRIBE, AclOperation.READ)
        self.eventually(lambda: not self._is_writable())

    def reopen(self) -> None:
        if self.way == "deleted":
            ensure_topic(self.broker.as_nobody, self.name, 1)
        else:
            self.broker.allow_all(self.name)
        self.eventually(self._is_writable)

    def _is_writable(self) -> bool:
        cluster = Cluster(self.broker.as_relay)
        try:
            return cluster.partitions(self.name) is not None and cluster.is_writable(self.name)
        except ConfigurationError:
            return False


@pytest.fixture
def stage(request: pytest.FixtureRequest, unique: str, eventually: Eventually) -> Stage:
    way, _, unfenced = str(request.param).partition(", ")
    if way == "memory":
        return in_memory(unique, fenced=not unfenced)
    broker: StrictKafka = request.getfixturevalue("strict_kafka")
    shaky = Shaky(broker, f"{unique}.shaky", way, eventually)
    ensure_topic(broker.as_nobody, unique, 1)
    ensure_topic(broker.as_nobody, shaky.name, 1)
    return Stage(
        lambda: open_log(broker.as_relay, unique, fenced=not unfenced),
        unique,
        shaky.name,
        shaky.shut,
        shaky.reopen,
        lambda topic: [record.value for record in read_back(broker.as_nobody, topic)],
    )


WAYS = ("memory", "deleted", "hidden", "read-only")
BOTH_WAYS = [*WAYS, *(f"{way}, unfenced" for way in WAYS)]
FEW_WAYS = ("memory", "deleted", "memory, unfenced", "hidden, unfenced")
every_log = pytest.mark.parametrize("stage", few(BOTH_WAYS, *FEW_WAYS), indirect=True)
every_fenced_log = pytest.mark.parametrize("stage", few(WAYS, *FEW_WAYS[:2]), indirect=True)


def publish_without(stage: Stage, log: ShardLog, rows: list[OutboxRow]) -> list[OutboxRow]:
    """Publishes what can be, as the relay does, and returns the rows of the shut topic."""
    delivery = publish_patiently(log, rows, b"all")
    assert isinstance(delivery, Incomplete)
    assert isinstance(delivery.error, TopicUnavailableError)
    assert delivery.error.topic == stage.shaky
    assert stage.shaky in delivery.error.message
    assert delivery.delivered <= {each.id for each in rows if each.topic == stage.steady}
    left = [each for each in rows if each.topic == stage.steady and each.id not in delivery.delivered]
    publish(log, left, b"without")
    return [each for each in rows if each.topic == stage.shaky]


def publish_twice(log: ShardLog, first: list[OutboxRow], second: list[OutboxRow]) -> None:
    """A fenced log has two producers that take turns: now both know the topics."""
    publish(log, first, b"one")
    publish(log, second, b"two")


@pytest.mark.full
@every_log
def test_rows_of_other_topics_go_while_one_topic_is_not_there_from_the_start(stage: Stage) -> None:
    stage.shut()
    log = stage.opened()
    for first in (0, 10, 20):
        publish_without(stage, log, stage.batch(*range(first, first + 10)))
    assert stage.delivered(stage.steady) == [b"%d" % id for id in range(0, 30, 2)]
    log.close()


@every_log
def test_a_topic_that_appears_later_works_without_a_restart(stage: Stage) -> None:
    stage.shut()
    log = stage.opened()
    waiting = publish_without(stage, log, stage.batch(1, 2, 3, 4))
    stage.reopen()
    publish(log, waiting, b"late")
    publish(log, stage.batch(5, 6), b"on")
    assert stage.delivered(stage.shaky) == [b"1", b"3", b"5"]
    assert stage.delivered(stage.steady) == [b"2", b"4", b"6"]
    log.close()


@every_log
def test_a_topic_lost_in_use_waits_alone_and_goes_on_in_order(stage: Stage) -> None:
    log = stage.opened()
    publish_twice(log, stage.batch(1, 2), stage.batch(3, 4))
    kept = stage.delivered(stage.shaky)
    stage.shut()
    waiting = publish_without(stage, log, stage.batch(5, 6, 7, 8))
    waiting += publish_without(stage, log, stage.batch(9, 10))
    stage.reopen()
    publish(log, [*waiting, *stage.batch(11, 12)], b"after")
    assert stage.delivered(stage.steady) == [b"2", b"4", b"6", b"8", b"10", b"12"]
    found = stage.delivered(stage.shaky)
    assert found[-4:] == [b"5", b"7", b"9", b"11"]
    assert found[:-4] in (kept, []), "a deleted topic begins anew"
    log.close()


@pytest.mark.full
@every_fenced_log
def test_a_lost_topic_costs_neither_fence_nor_marker(stage: Stage) -> None:
    log = stage.opened()
    publish_twice(log, stage.batch(1, 2), stage.batch(3, 4))
    stage.shut()
    publish_without(stage, log, stage.batch(5, 6))
    assert stage.log().take_over() == b"without"
    with pytest.raises(FencedError):
        publish(log, stage.batch(8), b"stale")
    assert stage.delivered(stage.steady) == [b"2", b"4", b"6"]


@every_fenced_log
def test_an_owner_overtaken_while_a_topic_is_lost_commits_nothing_more(stage: Stage) -> None:
    """On Kafka its producers have to be renewed by then, which must not bring it back."""
    log = stage.opened()
    publish_twice(log, stage.batch(1, 2), stage.batch(3, 4))
    stage.shut()
    with pytest.raises(TopicUnavailableError):
        publish(log, stage.batch(5, 6), b"all")
    successor = stage.opened()
    publish(successor, stage.batch(6), b"successor")
    with pytest.raises(FencedError):
        publish(log, stage.batch(6), b"stale")
    assert stage.delivered(stage.steady) == [b"2", b"4", b"6"]
    assert stage.log().take_over() == b"successor"
