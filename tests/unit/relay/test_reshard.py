"""The number of shards changes without a row lost, doubled or reordered, wherever the change or an instance dies."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from inorder.model.errors import ConfigurationError, FencedError, UnreachableError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Shard
from inorder.relay.drain import DrainStrategy
from inorder.relay.loop import RelayLoop
from inorder.relay.marker import Marker, MarkerCodec, PublishedBatch, name_rows
from inorder.relay.options import LoopOptions
from inorder.relay.purge_queue import TakeOver, purge_marker
from inorder.relay.reshard import Resharding, confirm
from inorder.relay.stores.ports import Exceeding, Scan, Setup
from inorder.testing.checker import check_delivery
from tests.conftest import Eventually
from tests.fakes.log import MemoryBroker, MemoryShardLog
from tests.fakes.outbox import MemoryExceeded, MemoryOutbox, MemoryRegistry
from tests.selection import few
from tests.unit.relay.test_simulation import HASTE, Patient, write

ONE, THREE = Setup("g", "drain", 1), Setup("g", "drain", 3)


def unsigned(_setup: Setup) -> MarkerCodec:
    """Markers without the name of an outbox, as those of the worlds in memory are."""
    return MarkerCodec()


@dataclass
class World:
    """One table, one registration, and a fence for each shard whatever the set-up."""

    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    records: list[OutboxRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.exceeded = MemoryExceeded(self.outbox)
        self.brokers = [MemoryBroker(self.records) for _ in range(4)]

    def log_of(self, _setup: Setup, shard: int) -> MemoryShardLog:
        return MemoryShardLog(self.brokers[shard])

    def resharding(self) -> Resharding:
        return Resharding(self.registry, self.exceeded, self.log_of, self.purge, unsigned)

    def purge(self, marker: Marker) -> TakeOver:
        return purge_marker(self.outbox, marker)

    def instance(self, setup: Setup, stop: threading.Event) -> Instance:
        return Instance(self, setup, stop)


class Instance:
    """All shards of one set-up, each on a thread."""

    def __init__(self, world: World, setup: Setup, stop: threading.Event) -> None:
        self.failures: list[Exception] = []
        self.loops = [
            RelayLoop(
                DrainStrategy(MemoryOutbox(Shard(index, setup.shards), beside=world.outbox), 7, setup.shards),
                world.exceeded,
                world.log_of(setup, index),
                Patient(),
                LoopOptions(stop=stop, confirm=partial(confirm, world.registry, setup), pace=HASTE),
            )
            for index in range(setup.shards)
        ]
        self.threads = [threading.Thread(target=self._run, args=(loop,)) for loop in self.loops]
        for thread in self.threads:
            thread.start()

    def _run(self, loop: RelayLoop) -> None:
        try:
            loop.run()
        except ConfigurationError as error:
            self.failures.append(error)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(30)


def published(world: World) -> list[tuple[bytes | None, int]]:
    return [(row.key, int(row.value or b"0")) for row in world.records]


@pytest.mark.parametrize("seed", few(range(6), 0, 1))
@pytest.mark.parametrize("setups", [(ONE, THREE), (THREE, ONE), (THREE, ONE, THREE)])
def test_under_load_nothing_is_lost_doubled_or_reordered(
    setups: Sequence[Setup], seed: int, eventually: Eventually
) -> None:
    world, stop = World(), threading.Event()
    written: list[list[tuple[bytes, int]]] = []
    writer = threading.Thread(target=lambda: written.append(write(world.outbox, seed, 200)))
    instances = [world.instance(setups[0], stop)]
    eventually(lambda: all(loop.progress.is_owner for loop in instances[0].loops))
    writer.start()
    for setup in setups[1:]:
        world.resharding().run(setup)
        instances.append(world.instance(setup, stop))
    writer.join()
    eventually(lambda: world.outbox.count() == 0)
    stop.set()
    for instance in instances:
        instance.join()
    verdict = check_delivery(written[0], published(world))
    assert verdict.holds, verdict


@pytest.mark.parametrize(("instances", "succeeds"), [(9, True), (10, False)])
def test_old_instances_that_win_a_shard_back_meanwhile_only_delay_the_change(instances: int, succeeds: bool) -> None:
    world = World()
    world.registry.register(ONE)
    thieves = [world.log_of(ONE, 0) for _ in range(instances)]

    def purge(marker: Marker) -> TakeOver:
        if thieves:
            thieves.pop().take_over()
        return purge_marker(world.outbox, marker)

    change = Resharding(world.registry, world.exceeded, world.log_of, purge, unsigned)
    if succeeds:
        assert change.run(THREE).setup == THREE
    else:
        with pytest.raises(FencedError):
            change.run(THREE)
        assert change.run(THREE).setup == THREE, "it may be run again"


def test_an_old_instance_that_wins_its_shard_back_ends_before_it_publishes(eventually: Eventually) -> None:
    """It fences the shard after the change settled it, and only then asks for the registration."""
    world, stop = World(), threading.Event()
    world.registry.register(ONE)
    world.resharding().run(THREE)
    world.outbox.insert("t", "t", b"k", b"1")
    world.outbox.end("t")
    late = world.instance(ONE, stop)
    late.join()
    assert isinstance(late.failures[0], ConfigurationError)
    assert world.records == []


def dies_at(step: int) -> Callable[[], None]:
    """A call that fails at its nth time, as a process that is killed there."""
    count = iter(range(1000))

    def maybe() -> None:
        if next(count) == step:
            raise UnreachableError("killed")

    return maybe


@pytest.mark.parametrize("step", range(9))
def test_a_change_that_died_is_resumed_and_nobody_works_meanwhile(step: int) -> None:
    world, stop = World(), threading.Event()
    world.registry.register(THREE)
    ids = [world.outbox.insert("t", "t", b"k%d" % number, b"1") for number in range(9)]
    world.outbox.end("t")
    for shard, broker in enumerate(world.brokers[:3]):
        broker.marker = Marker(((ids[shard], ids[shard]),), 0).encode()
    maybe = dies_at(step)

    def log_of(setup: Setup, shard: int) -> MemoryShardLog:
        maybe()
        return world.log_of(setup, shard)

    def purge(marker: Marker) -> TakeOver:
        maybe()
        found = purge_marker(world.outbox, marker)
        maybe()
        return found

    change = Resharding(world.registry, world.exceeded, log_of, purge, unsigned)
    with pytest.raises(UnreachableError):
        change.run(ONE)
    for setup in (ONE, THREE):
        refused = world.instance(setup, stop)
        refused.join()
        assert "being changed" in str(refused.failures[0])
    assert change.run(ONE).setup == ONE
    assert world.outbox.count() == 6, "what the markers named is purged, once"
    assert all(not Marker.decode(broker.marker).published for broker in world.brokers[:3])


def test_a_decision_in_an_old_marker_is_carried_out() -> None:
    world = World()
    world.registry.register(ONE)
    id = world.outbox.insert("t", "t", b"k", b"1")
    world.outbox.end("t")
    world.brokers[0].marker = Marker((), 0, Exceeding(id, 5, "RECORD-001", "too large", parks=True)).encode()
    world.resharding().run(THREE)
    assert list(world.exceeded.rows) == [id]


def test_after_a_restore_the_markers_purge_nothing() -> None:
    world = World()
    world.registry.register(ONE)
    id = world.outbox.insert("t", "t", b"k", b"1")
    world.outbox.end("t")
    world.brokers[0].marker = Marker(((id, id),), 0).encode()
    world.resharding().run(ONE, restored=True)
    assert world.outbox.count() == 1
    assert Marker.decode(world.brokers[0].marker) == Marker()


def test_rows_that_the_database_lost_are_named_by_a_change_too(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.registry.register(ONE)
    world.outbox.go_back(0, server="a/1")
    for number in range(6):
        world.outbox.insert("t", "t", b"k", b"%d" % number)
    world.outbox.end("t")
    sent = PublishedBatch.of(world.outbox.read(Scan(above=0), 10).rows)
    world.brokers[0].marker = name_rows([sent], Marker(server="a/1")).encode()
    world.outbox.go_back(2, server="a/2")
    world.outbox.insert("t", "t", b"k", b"new")
    world.outbox.end("t")
    for setup in (THREE, ONE):
        world.resharding().run(setup)
        assert Marker.decode(world.brokers[0].marker).phantoms == ((3, 3), (4, 6)), "the next change keeps them"
    found = [each.__dict__["phantoms"] for each in caplog.records if each.message == "relay.database_went_back"]
    assert found == ["3,4-6"]
    assert [row.value for row in world.outbox.read(Scan(above=0), 10).rows] == [b"new"]
    world.resharding().run(ONE, restored=True)
    assert Marker.decode(world.brokers[0].marker).phantoms == (), "an operator has started over"


def test_what_is_registered_already_is_left_as_it_is() -> None:
    world = World()
    world.registry.register(ONE)
    assert world.resharding().run(ONE).epoch == 1
    assert not any(world.brokers[0].epochs.values()), "no owner was fenced"


def test_instances_that_nobody_fences_get_time_to_notice() -> None:
    world, seen = World(), list[str]()
    world.registry.register(ONE)
    world.resharding().run(THREE, wait=lambda: seen.append(str(world.registry.read())))
    assert "target=Setup(group='g', strategy='drain', shards=3)" in seen[0]


@pytest.mark.parametrize("name", ["group", "strategy", "shards"])
def test_an_instance_that_disagrees_is_refused_by_name_with_both_values(name: str) -> None:
    registry = MemoryRegistry()
    registry.register(ONE)
    other = {"group": Setup("h", "drain", 1), "strategy": Setup("g", "mark-purge", 1), "shards": THREE}[name]
    with pytest.raises(ConfigurationError) as refused:
        confirm(registry, other)
    assert f"relay.{name} = {getattr(other, name)!r}, but {getattr(ONE, name)!r} is registered" in str(refused.value)
    assert "inorder relay reshard" in refused.value.hint
    confirm(registry, ONE)


def test_keys_keep_their_shard_and_spread_over_all() -> None:
    from inorder.model.partitioning import shard_of

    chance = random.Random(1)
    keys = [b"%d" % chance.randrange(10**6) for _ in range(400)]
    found = {shard_of("t", key, 1, 4) for key in keys}
    assert found == {0, 1, 2, 3}
    assert all(shard_of("t", key, 1, 4) == shard_of("t", key, 99, 4) for key in keys)
