"""Whoever joins, leaves or dies: every shard finds one holder, all hold about as many, and none works twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from inorder.relay.leadership.share import Share, SharedLease
from tests.fakes.outbox import MemoryGroup, MemoryMembership

SECONDS = 3.0


@dataclass
class World:
    """A clock, who is known, and who holds which shard until when."""

    shards: int
    now: float = 0.0
    held: dict[int, tuple[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.group = MemoryGroup(self.clock)

    def clock(self) -> float:
        return self.now


@dataclass
class MemoryLease:
    world: World
    shard: int
    owner: str

    def acquire(self) -> bool:
        holder, until = self.world.held.get(self.shard, (self.owner, 0.0))
        if holder != self.owner and until > self.world.now:
            return False
        self.world.held[self.shard] = (self.owner, self.world.now + SECONDS)
        return True

    def release(self) -> None:
        if self.world.held.get(self.shard, ("", 0.0))[0] == self.owner:
            del self.world.held[self.shard]

    def holds(self) -> bool:
        return True

    def arbitrates(self) -> bool:
        return True


class Instance:
    """One loop a shard. A loop works from a yes until it asks again after a no."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        membership = MemoryMembership(world.group, instance=name, seconds=SECONDS)
        share = Share(world.shards, membership, clock=world.clock)
        self.leases = [SharedLease(MemoryLease(world, shard, name), share, shard) for shard in range(world.shards)]
        self.leads: set[int] = set()
        self.works: set[int] = set()
        self.refusals: list[int] = []

    def ask(self, shard: int) -> None:
        if shard not in self.leads:
            self.works.discard(shard)
        if self.leases[shard].acquire():
            self.leads.add(shard)
            self.works.add(shard)
        elif shard in self.leads:
            self.leads.remove(shard)
            self.refusals.append(shard)

    def release(self) -> None:
        for lease in self.leases:
            lease.release()


class AnyHistory(RuleBasedStateMachine):
    """Loops ask in any order, each about once a second; between changes there may be time to settle, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[Instance] = []
        self.count = 0

    @initialize(shards=st.integers(1, 9), seed=st.integers())
    def begin(self, shards: int, seed: int) -> None:
        self.world = World(shards)
        self.random = Random(seed)

    @precondition(lambda self: len(self.alive) < 6)
    @rule()
    def one_joins(self) -> None:
        self.count += 1
        self.alive.append(Instance(self.world, f"{self.random.randrange(1000)}.{self.count}"))

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 5), orderly=st.booleans())
    def one_ends(self, which: int, orderly: bool) -> None:
        gone = self.alive.pop(which % len(self.alive))
        if orderly:
            gone.release()

    @precondition(lambda self: self.alive)
    @rule()
    def a_second_passes(self) -> None:
        asking = [(one, shard) for one in self.alive for shard in range(self.world.shards)]
        self.random.shuffle(asking)
        for one, shard in asking:
            self.world.now += 1 / len(asking)
            one.ask(shard)
            self.no_loop_works_on_the_shard_of_another(shard)

    def no_loop_works_on_the_shard_of_another(self, shard: int) -> None:
        assert sum(shard in one.works for one in self.alive) <= 1

    @precondition(lambda self: self.alive)
    @rule()
    def all_settles(self) -> None:
        self.passes(seconds=12)
        held = [shard for one in self.alive for shard in one.leads]
        assert sorted(held) == list(range(self.world.shards))
        shares = [len(one.leads) for one in self.alive]
        assert max(shares) - min(shares) <= 1

    @precondition(lambda self: self.alive)
    @rule(change=st.sampled_from(["join", "leave", "die"]))
    def no_more_moves_than_must(self, change: str) -> None:
        self.all_settles()
        stay = list(self.alive)
        self._change(change)
        for one in stay:
            one.refusals.clear()
        if self.alive:
            self.all_settles()
        moved = [shard for one in stay for shard in one.refusals]
        newcomers = [one for one in self.alive if one not in stay]
        assert sorted(moved) == sorted(shard for one in newcomers for shard in one.leads)

    def _change(self, change: str) -> None:
        if change == "join":
            self.one_joins()
        else:
            self.one_ends(self.random.randrange(6), orderly=change == "leave")

    def passes(self, *, seconds: int) -> None:
        for _ in range(seconds):
            self.a_second_passes()


TestAnyHistory: Callable[..., object] = AnyHistory.TestCase
AnyHistory.TestCase.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
