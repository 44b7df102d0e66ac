"""Operators die after any effect, two of them work at once, relays sleep: nothing is lost or reordered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import ConfigurationError, TransientError, UnreachableError
from inorder.testing.checker import check_delivery
from inorder.topics.failover import GRACE_SECONDS, RETRY_SECONDS, TRIES, Failover
from inorder.topics.gate import may_apply
from inorder.topics.generations import Phase, TopicState
from inorder.topics.routes import TRUSTED_SECONDS, RouteTable, build_routes
from inorder.topics.switch import EndWriters, Step, Wanted
from tests.fakes.log import MemoryGenerations, MemoryMirror, MemoryTopics
from tests.selection import examples

TOPIC = "orders"
SHARDS = 2


class DiedError(Exception):
    """As `kill -9`: no line of the operator runs any more."""


@dataclass
class Relay:
    """An instance with a term on a shard; it looks at the routes when it takes over, and when the schedule says so."""

    shard: int
    term: int = 0
    table: RouteTable = field(default_factory=RouteTable)


@dataclass
class World:
    """Everything, with writers that move whenever an operator does something."""

    draw: st.DataObject
    authority: MemoryGenerations = field(default_factory=MemoryGenerations)
    mirror: MemoryMirror = field(default_factory=MemoryMirror)
    cluster: MemoryTopics = field(default_factory=lambda: MemoryTopics({TOPIC: [[] for _ in range(4)]}))
    fences: list[int] = field(default_factory=lambda: [0] * SHARDS)
    relays: list[Relay] = field(default_factory=lambda: [Relay(shard) for shard in range(SHARDS) for _ in range(2)])
    direct: list[RouteTable] = field(default_factory=lambda: [RouteTable(), RouteTable()])
    written: Counter[str] = field(default_factory=Counter)

    def move(self) -> None:
        """Some writers do something, in the order that the schedule gives."""
        for number in self.draw.draw(st.lists(st.integers(0, 7), max_size=6)):
            if number < len(self.relays):
                self._relay(self.relays[number])
            else:
                self._publish(number % len(self.direct))

    def _relay(self, relay: Relay) -> None:
        if relay.term != self.fences[relay.shard]:  # fenced: it takes over, and then looks
            self.fences[relay.shard] += 1
            relay.term = self.fences[relay.shard]
            relay.table = build_routes(self.authority.read_all())
        elif self.draw.draw(st.booleans()):
            self._send(f"relay-{relay.shard}", relay.table)
        else:
            relay.table = build_routes(self.authority.read_all())

    def _publish(self, number: int) -> None:
        if self.draw.draw(st.booleans()):
            self._send(f"direct-{number}", self.direct[number])
        else:
            self.direct[number] = build_routes(self.mirror.read_all())

    def _send(self, key: str, table: RouteTable) -> None:
        target = table.of(TOPIC)
        if target is not None:
            self.written[key] += 1
            self.cluster.send(target, key, self.written[key])

    def fence(self) -> None:
        """Ends every term."""
        self.move()
        for shard in range(SHARDS):
            self.fences[shard] += 1
            self.move()

    def wait(self, seconds: float) -> None:
        """Time passes: whoever follows the rules has looked again in it."""
        self.move()
        if seconds >= GRACE_SECONDS > TRUSTED_SECONDS:
            self.direct = [build_routes(self.mirror.read_all()) for _ in self.direct]
        self.move()

    def operator(self, lives: int, second: Failover | None = None) -> Failover:
        """One that dies before its next step when it has taken `lives`; another may run in between."""
        taken = Counter[str]()

        def on_step(_step: Step) -> None:
            self.move()
            taken["steps"] += 1
            if taken["steps"] > lives:
                raise DiedError
            if second is not None and self.draw.draw(st.booleans()):
                attempt(second, Wanted())

        return Failover(self.authority, self.mirror, self.cluster, self.fence, wait=self.wait, on_step=on_step)

    def state(self) -> TopicState:
        found = self.authority.read(TOPIC)
        assert found is not None
        return found

    def read(self) -> list[tuple[str, int]]:
        """What a reader applies: through the gate, from partitions in an order that the schedule gives."""
        pointers: dict[str, dict[int, int]] = {}
        applied: list[tuple[str, int]] = []
        while True:
            generation = may_apply(self.state(), lambda topic: pointers.get(topic, {}))
            mine = pointers.setdefault(generation.topic, {})
            left = [
                number
                for number, records in enumerate(self.cluster.topics[generation.topic])
                if mine.get(number, 0) < len(records)
            ]
            if not left:
                return applied
            number = self.draw.draw(st.sampled_from(left))
            applied.append(self.cluster.topics[generation.topic][number][mine.get(number, 0)])
            mine[number] = mine.get(number, 0) + 1


def attempt(operator: Failover, wanted: Wanted) -> bool:
    """Runs it; False if it died."""
    try:
        operator.run(TOPIC, wanted)
    except DiedError:
        return False
    return True


@examples(60)
@given(st.data())
def test_any_crash_and_any_schedule_keeps_every_record_in_order(data: st.DataObject) -> None:
    world = World(data)
    world.cluster.looks_in_transaction = data.draw(st.integers(0, 2))
    world.move()
    for partitions in data.draw(st.lists(st.sampled_from([2, 8, 16]), min_size=1, max_size=3, unique=True)):
        for lives in data.draw(st.lists(st.integers(0, 9), max_size=5)):
            second = world.operator(data.draw(st.integers(0, 9))) if data.draw(st.booleans()) else None
            attempt(world.operator(lives, second), Wanted(partitions))
        assert attempt(world.operator(1000), Wanted(partitions))
        assert world.state().current.partitions == partitions
        world.move()
    for generation in world.state().generations[:-1]:
        lengths = tuple(len(records) for records in world.cluster.topics[generation.topic])
        assert generation.ends == lengths, "nothing was written behind the ends"
    committed = [(key, place) for key, count in world.written.items() for place in range(1, count + 1)]
    verdict = check_delivery(committed, world.read())
    assert verdict.holds, verdict


@pytest.mark.parametrize("lives", range(12))
def test_an_operator_that_dies_after_any_effect_is_replaced_by_the_same_command(lives: int) -> None:
    world = _quiet_world()
    finished = attempt(world.operator(lives), Wanted(8))
    assert attempt(world.operator(1000), Wanted(8))
    assert [generation.topic for generation in world.state().generations] == [TOPIC, "orders.g1"]
    assert world.mirror.epoch(TOPIC) == world.state().epoch
    assert finished == (lives >= 9)


@pytest.mark.parametrize("lives", range(12))
def test_without_a_number_of_partitions_the_same_command_still_makes_one_switch_only(lives: int) -> None:
    world = _quiet_world()
    if not attempt(world.operator(lives), Wanted()):
        assert attempt(world.operator(1000), Wanted())
    assert [generation.topic for generation in world.state().generations] == [TOPIC, "orders.g1"]


@pytest.mark.parametrize("lives", range(9))
def test_a_switch_that_was_broken_off_may_be_given_up_and_the_topic_opens_again(lives: int) -> None:
    world = _quiet_world()
    attempt(world.operator(lives), Wanted(8))
    before = world.state()
    state = world.operator(1000).cancel(TOPIC)
    assert state is not None
    assert state.takes_records
    assert len(state.generations) == len(before.generations)
    assert build_routes(world.mirror.read_all()).of(TOPIC) == state.current.topic


def test_an_operator_that_measured_and_slept_cannot_commit_after_the_switch_was_given_up() -> None:
    world = _quiet_world()
    attempt(world.operator(7), Wanted(8))
    assert world.state().phase is Phase.MEASURING

    def cancel_first(_step: Step) -> None:
        if world.state().phase is Phase.MEASURING:
            world.operator(1000).cancel(TOPIC)
            world.cluster.send(TOPIC, "late", 1)

    asleep = Failover(world.authority, world.mirror, world.cluster, world.fence, wait=world.wait, on_step=cancel_first)
    state = asleep.run(TOPIC, Wanted(8))
    assert (state.current.topic, state.phase) == (TOPIC, Phase.STEADY)


def test_a_transaction_that_never_ends_is_told_and_the_switch_stays_resumable() -> None:
    world = _quiet_world()
    world.cluster.looks_in_transaction = 10**6
    with pytest.raises(TransientError, match="A transaction has been open in 'orders'"):
        world.operator(10**6).run(TOPIC, Wanted(8))
    world.cluster.looks_in_transaction = 0
    assert attempt(world.operator(1000), Wanted(8))


def test_a_server_that_is_away_for_a_while_is_waited_for_and_told_in_the_end() -> None:
    world, waits = _quiet_world(), list[float]()

    class Away(MemoryTopics):
        times = TRIES - 1

        def is_empty(self, topic: str) -> bool:
            if self.times:
                self.times -= 1
                raise UnreachableError("Not leader for partition.")
            return super().is_empty(topic)

    cluster = world.cluster = Away(world.cluster.topics)
    operator = Failover(world.authority, world.mirror, cluster, world.fence, wait=waits.append)
    assert operator.run(TOPIC, Wanted(8)).current.partitions == 8
    assert waits.count(RETRY_SECONDS) == TRIES - 1
    cluster.times = TRIES
    with pytest.raises(UnreachableError):
        operator.run(TOPIC, Wanted(16))


def test_a_topic_that_is_not_there_or_is_as_wanted_is_refused_by_name() -> None:
    world = _quiet_world()
    with pytest.raises(ConfigurationError, match="There is no topic 'order'"):
        world.operator(1000).run("order", Wanted(8))
    with pytest.raises(ConfigurationError, match="it has 4 partitions"):
        world.operator(1000).run(TOPIC, Wanted(4))
    assert world.operator(1000).cancel(TOPIC) is None


def test_relays_are_fenced_only_after_everybody_could_notice() -> None:
    world = _quiet_world()
    acts: list[str] = []
    operator = Failover(
        world.authority,
        world.mirror,
        world.cluster,
        lambda: acts.append(f"fence in {world.state().phase}"),
        wait=lambda seconds: acts.append(f"wait {seconds}, mirrored {world.mirror.epoch(TOPIC)}"),
        on_step=lambda step: acts.append("end writers") if isinstance(step, EndWriters) else None,
    )
    operator.run(TOPIC, Wanted(8))
    assert acts == ["end writers", f"wait {GRACE_SECONDS}, mirrored 2", "fence in closing"]


def _quiet_world() -> World:
    class Nothing:
        def draw(self, _strategy: object) -> list[int]:
            return []

    return World(Nothing())  # type: ignore[arg-type]  # a schedule in which nobody moves
