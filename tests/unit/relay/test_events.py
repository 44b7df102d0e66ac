"""Changes of leadership are reported in order, with the leader id of the term; a failing handler is harmless."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from inorder.kafka.shard_log import Delivery
from inorder.model.errors import FencedError, UnknownOutcomeError
from inorder.model.message import OutboxRow
from inorder.relay.events import (
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    MeterRead,
    RateMeter,
    RelayEvent,
)
from inorder.relay.leadership.lease import NoLease
from tests.conftest import Eventually
from tests.fakes.log import MemoryShardLog, failed
from tests.unit.relay.running import World, running


class Turns(NoLease):
    """A lease that a test gives and takes."""

    def __init__(self) -> None:
        self.ours = threading.Event()

    def acquire(self) -> bool:
        return self.ours.is_set()

    def holds(self) -> bool:
        return True

    def arbitrates(self) -> bool:
        return True


class Troubled(MemoryShardLog):
    """Raises what a test puts into `trouble`, once."""

    trouble: Exception | None = None

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            return failed(trouble)
        return super().publish(rows, marker)


def changes(world: World) -> list[type[RelayEvent]]:
    return [type(event) for event in world.events if not isinstance(event, MeterRead)]


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_elected_revoked_and_elected_again_is_told_with_a_new_id_each_time(
    strategy: str, eventually: Eventually
) -> None:
    world, lease = World(), Turns()
    with running(world, strategy=strategy, lease=lease) as loop:
        assert loop.progress.leader_id is None
        lease.ours.set()
        eventually(lambda: loop.progress.is_owner)
        lease.ours.clear()
        eventually(lambda: changes(world) == [LeaderAcquired, LeaderRevoked])
        lease.ours.set()
        eventually(lambda: loop.progress.is_owner)
        assert loop.progress.leader_id == world.events_of(LeaderAcquired)[1].leader_id
    first, second = world.events_of(LeaderAcquired)
    assert first.leader_id != second.leader_id
    assert world.events_of(LeaderRevoked)[0].leader_id == first.leader_id
    assert changes(world) == [LeaderAcquired, LeaderRevoked] * 2, "stopping gives the shard up"


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_an_unknown_outcome_refreshes_the_leader_under_a_new_id(strategy: str, eventually: Eventually) -> None:
    world = World()
    log = Troubled(world.broker)
    log.trouble = UnknownOutcomeError("No answer.")
    world.commit(("t", b"k", b"1"))
    with running(world, strategy=strategy, log=log):
        eventually(lambda: world.sent() == [b"1"])
        eventually(lambda: world.outbox.count() == 0)
    assert changes(world) == [LeaderAcquired, LeaderRefreshed, LeaderRevoked]
    assert world.events_of(LeaderRefreshed)[0].leader_id != world.events_of(LeaderAcquired)[0].leader_id


def test_being_fenced_is_told_before_leadership_is_won_again(eventually: Eventually) -> None:
    world, lease = World(), Turns()
    log = Troubled(world.broker)
    lease.ours.set()
    log.trouble = FencedError("Another owner.")
    world.commit(("t", b"k", b"1"))
    with running(world, log=log, lease=lease):
        eventually(lambda: world.sent() == [b"1"])
    assert changes(world) == [LeaderAcquired, LeaderFenced, LeaderAcquired, LeaderRevoked]


def test_a_handler_that_raises_does_not_stop_the_relay(eventually: Eventually) -> None:
    world = World()
    world.commit(("t", b"k", b"1"))

    def broken(_event: RelayEvent) -> None:
        raise ValueError("no")

    with running(world, on_event=broken):
        eventually(lambda: world.outbox.count() == 0)


def test_the_meter_is_read_also_while_nothing_happens(eventually: Eventually) -> None:
    world = World()
    world.commit(*(("t", b"k", b"1") for _ in range(7)))
    with running(world):
        eventually(lambda: len(world.events_of(MeterRead)) > 3 and world.events_of(MeterRead)[-1].total == 7)
    assert sum(reading.interval for reading in world.events_of(MeterRead)) == 7


def test_a_reading_tells_rates_in_all_and_since_the_last() -> None:
    meter = RateMeter(3, seconds=5.0, now=100.0)
    assert meter.due(104.9, 10) is None
    assert meter.due(105.0, 50) == MeterRead(3, 50, 5.0, 50, 5.0)
    reading = meter.due(115.0, 150)
    assert reading == MeterRead(3, 150, 15.0, 100, 10.0)
    assert (reading.total_rate, reading.interval_rate) == (10.0, 10.0)
    assert MeterRead(0, 0, 0.0, 0, 0.0).interval_rate == 0.0
