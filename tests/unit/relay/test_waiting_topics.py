"""A topic that is deleted or closed to us waits alone: other topics go on, and nothing of it is exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from inorder.kafka.shard_log import Delivery, Incomplete
from inorder.model.errors import TopicSwitchingError, TopicUnavailableError
from inorder.model.message import OutboxRow
from tests.conftest import Eventually
from tests.fakes.log import MemoryBroker, MemoryShardLog
from tests.unit.relay.running import World, running
from tests.unit.relay.test_simulation import HASTE


class Closed(MemoryShardLog):
    """A log whose topics may be closed."""

    def __init__(self, broker: MemoryBroker, *topics: str, error: type[TopicUnavailableError] = TopicUnavailableError):
        super().__init__(broker)
        self.closed = set(topics)
        self._error = error
        self.tries: list[int] = []

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        for row in rows:
            if row.topic in self.closed:
                self.tries.append(len(rows))
                return Incomplete(self._error(row.topic, f"The topic {row.topic!r} cannot be written to."))
        return super().publish(rows, marker)


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_only_the_topic_that_is_gone_waits_and_it_follows_in_order(
    strategy: str, batch_size: int, eventually: Eventually
) -> None:
    world = World()
    log = Closed(world.broker, "gone")
    world.commit(*(("gone" if number % 2 else "t", b"k", b"%d" % number) for number in range(20)))
    with running(world, strategy=strategy, log=log, batch_size=batch_size) as loop:
        eventually(lambda: len(world.sent()) == 10)
        world.commit(("t", b"k", b"20"), ("gone", b"k", b"21"))
        eventually(lambda: len(world.sent()) == 11)
        assert world.sent("gone") == []
        eventually(lambda: len(log.tries) > 5)
        assert "gone" in loop.progress.last_error
        log.closed.clear()
        eventually(lambda: world.outbox.count() == 0)
    assert world.sent("gone") == [b"%d" % number for number in range(1, 22, 2)]
    assert not world.exceeded.rows


def test_a_topic_that_is_still_gone_is_tried_with_one_row(eventually: Eventually) -> None:
    world = World()
    log = Closed(world.broker, "gone")
    world.commit(*(("gone", b"k", b"%d" % number) for number in range(30)))
    with running(world, log=log):
        eventually(lambda: len(log.tries) > 4)
    assert set(log.tries[1:]) == {1}


def test_two_topics_that_are_gone_wait_each_for_itself(eventually: Eventually) -> None:
    world = World()
    log = Closed(world.broker, "a", "b")
    world.commit(("a", b"k", b"1"), ("b", b"k", b"2"), ("t", b"k", b"3"))
    with running(world, log=log):
        eventually(lambda: world.sent() == [b"3"])
        log.closed.discard("b")
        eventually(lambda: world.sent("b") == [b"2"])
        assert world.sent("a") == []


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_topic_that_is_being_switched_is_tried_soon_however_long_one_that_is_gone_waits(
    strategy: str, eventually: Eventually
) -> None:
    world = World()
    log = Closed(world.broker, "moving", error=TopicSwitchingError)
    world.commit(("moving", b"k", b"1"), ("t", b"k", b"2"))
    # Not even the look at the clock would come in time: what is due ends the sleep.
    with running(world, strategy=strategy, log=log, pace=replace(HASTE, topic=3600, poll=60, switch=0.002)):
        eventually(lambda: world.sent() == [b"2"] and len(log.tries) > 5)
        log.closed.clear()
        eventually(lambda: world.sent("moving") == [b"1"])
        world.stop.set()
        world.commit(("t", b"k", b"3"))  # wakes the sleeper, so that it sees the stop
