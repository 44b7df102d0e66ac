"""The slice, simulated: the real `apply_slice` and gate, two drivers, and a database whose every step may fail.

Drivers read slices of any length from any place at or below the pointer, keep them for any time, and apply them. Each
step of the transaction may fail, the answer to COMMIT may be lost, and a driver may die anywhere. Meanwhile the topic
is switched to its next generation, a writer appends behind the end of the closed one, or the topic is deleted and
created again. All of it follows from a seed: `python -m tests.proof.simulate slice --seed N` shows one run again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import orjson

from inorder.engines.slice_work import Pointer, Slice
from inorder.model.errors import OtherTopicError, TransientError, UnknownOutcomeError, UnreachableError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.stores.ports import FoldedRow, SliceCounters, SliceTransaction, WriteCounts
from inorder.testing.checker import Verdict
from inorder.topics.gate import is_drained, may_apply, version_generation
from inorder.topics.generations import Generation, Pointers, TopicState
from tests.fakes.table_store import Contents, MemoryTableStore, _Transaction
from tests.proof.scheduler import Killed, Node, Outcome, Scheduler

MAPPING = TableMapping("demo", "orders", "messages")
FIRST, NEXT = "orders", "orders.g1"


@dataclass(frozen=True)
class Hazards:
    """What may happen; all stop after `most`."""

    most: int = 10
    rate: float = 0.04
    kills: float = 0.03
    lost_answers: float = 0.1
    switches: bool = True
    """The topic gets its second generation; else it is deleted and created again."""
    dies_at: frozenset[int] = frozenset()


@dataclass
class Topic:
    id: str
    partitions: list[list[tuple[int, str]]] = field(default_factory=list)


class World:
    """The topics, the database, and what may go wrong."""

    def __init__(self, seed: int, hazards: Hazards) -> None:
        self.chance = random.Random(seed)
        self.hazards = hazards
        self.scheduler = Scheduler(self.chance)
        self.topics = {FIRST: Topic("id 1", [[], []]), NEXT: Topic("id 2", [[]])}
        self.state = TopicState(FIRST, (Generation(0, FIRST, 2),))
        self.store = SimulatedTable(self)
        self.effects = self.injected = 0
        self.is_calm = False
        self.faults: list[str] = []
        self.nodes: list[Node] = []

    def happens(self, rate: float) -> bool:
        if self.is_calm or self.injected >= self.hazards.most or self.chance.random() >= rate:
            return False
        self.injected += 1
        return True

    def happen(self) -> None:
        """Between two steps: others run; the process may die, or the connection break."""
        self.scheduler.pause()
        number, self.effects = self.effects, self.effects + 1
        if number in self.hazards.dies_at or self.happens(self.hazards.kills):
            self.scheduler.node().is_dead = True
            raise Killed
        if self.happens(self.hazards.rate):
            raise UnreachableError("The connection broke.")

    def pointers(self, topic: str) -> Pointers:
        return {number: one.next_offset for number, one in self.store.pointers(topic).items()}


class SimulatedTable(MemoryTableStore):
    """One lock for all pointer rows, which the server takes from a session that has ended."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._holder: Node | None = None

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        world = self._world
        world.happen()
        world.scheduler.wait(lambda: self._holder is None or self._holder.is_dead)
        node = self._holder = world.scheduler.node()
        try:
            transaction = _Steps(world, self.contents.copy(), (topic, partition))
            yield transaction
            world.happen()
            is_lost, is_done = world.happens(world.hazards.lost_answers), world.chance.random() < 0.5
            if not is_lost or is_done:
                self._watch(transaction.contents)
                self.contents = transaction.contents
            if is_lost:
                raise UnknownOutcomeError("The answer to COMMIT was lost.")
        finally:
            if self._holder is node:
                self._holder = None
        world.happen()

    def _watch(self, after: Contents) -> None:
        """What no commit may do, whatever is in it."""
        before = self.contents
        for place, pointer in before.pointers.items():
            if after.pointers[place].next_offset < pointer.next_offset:
                self._world.faults.append(f"the pointer of {place} moved back")
        for key, row in before.rows.items():
            if key not in after.rows or after.rows[key].version < row.version:
                self._world.faults.append(f"row {key} went back")


class _Steps(_Transaction):
    """A transaction between whose steps others run."""

    def __init__(self, world: World, contents: Contents, place: tuple[str, int]) -> None:
        super().__init__(contents, place, "upsert", lambda _: False)
        self._world = world

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        self._world.happen()
        return super().upsert(rows, generation)

    def move_pointer(self, next_offset: int, counters: SliceCounters, leader_epoch: int | None = None) -> None:
        self._world.happen()
        super().move_pointer(next_offset, counters, leader_epoch)


def simulate(seed: int, hazards: Hazards = Hazards(), *, drivers: int = 2, records: int = 12) -> Outcome:  # noqa: B008
    """One run, from the first record until everything is applied that may be."""
    world = World(seed, hazards)
    try:
        return _run(world, drivers, records)
    finally:
        world.scheduler.end()


def _run(world: World, drivers: int, records: int) -> Outcome:
    expected: dict[int, str] = {}
    publisher = world.scheduler.spawn(Node("publisher"), lambda: _publish(world, expected, records))

    def is_over() -> bool:
        alive = [node for node in world.nodes if not node.is_dead]
        for _ in range(drivers - len(alive)):
            world.nodes.append(node := Node("driver"))
            world.scheduler.spawn(node, lambda: _drive(world))
        if not publisher.is_done:
            return False
        world.is_calm = world.is_calm or world.scheduler.now > 20 or world.injected >= world.hazards.most
        return world.scheduler.now > 30 or (world.hazards.switches and _is_applied(world))

    world.scheduler.run(is_over)
    return Outcome(_judge(world, expected), world.effects, world.injected)


def _is_applied(world: World) -> bool:
    *closed, last = world.state.generations
    ends = tuple(len(partition) for partition in world.topics[last.topic].partitions)
    done = replace(last, ends=ends)
    return bool(closed) and all(is_drained(one, world.pointers(one.topic)) for one in (*closed, done))


def _publish(world: World, expected: dict[int, str], records: int) -> None:
    """Records of a few keys; half-way the topic is switched, or deleted and created again."""
    chance = world.chance
    for number in range(records):
        world.scheduler.wait(lambda: False, chance.choice([0.0, 0.01, 0.1]))
        if number == records // 2:
            _switch(world) if world.hazards.switches else _recreate(world)
        key, value = chance.randrange(3), f"v{number}"
        current = world.state.current
        partitions = world.topics[current.topic].partitions
        partitions[key % len(partitions)].append((key, value))
        if world.topics[FIRST].id == "id 1":
            expected[key] = value
        if current.number and chance.random() < 0.4:  # behind the end of the closed generation
            world.topics[FIRST].partitions[key % 2].append((key, "late"))


def _switch(world: World) -> None:
    first = world.state.generations[0]
    ends = tuple(len(partition) for partition in world.topics[FIRST].partitions)
    pointers = world.store.contents.pointers
    for partition, end in enumerate(ends):
        one = pointers.get((FIRST, partition), Pointer(topic_id=world.topics[FIRST].id))
        pointers[FIRST, partition] = replace(one, end=end)
    world.state = replace(world.state, generations=(replace(first, ends=ends), Generation(1, NEXT, 1)))


def _recreate(world: World) -> None:
    for partition in range(2):  # a topic that no driver has seen yet would be the first one
        pointers = world.store.contents.pointers
        pointers.setdefault((FIRST, partition), Pointer(topic_id=world.topics[FIRST].id))
    world.topics[FIRST] = Topic("id 3", [[], []])


def _drive(world: World) -> None:
    """One driver: reads somewhere at or below the pointer, keeps the slice for a while, applies it, perhaps twice."""
    chance, seen = world.chance, dict[tuple[str, int], int]()
    while True:
        world.scheduler.wait(lambda: False, chance.choice([0.0, 0.05, 0.2]))
        generation = may_apply(world.state, world.pointers)
        _begin(world, generation)
        topic = world.topics[generation.topic]
        partition = chance.randrange(generation.partitions)
        place, log = (generation.topic, partition), topic.partitions[partition]
        pointer = world.store.pointers(generation.topic)[partition].next_offset
        first = chance.choice([pointer, pointer, chance.randint(0, pointer)])
        batch = _slice(generation.topic, partition, topic.id, log, first, chance.randint(1, 5))
        if not len(batch):
            continue
        world.scheduler.wait(lambda: False, chance.choice([0.0, 0.0, 0.5, 2.0]))
        try:
            outcome = apply_slice(world.store, MAPPING, batch, seen.get(place, 0))
            seen[place] = max(seen.get(place, 0), outcome.next_offset)
        except TransientError:
            continue
        except OtherTopicError:
            if world.hazards.switches:
                raise
            world.scheduler.wait(lambda: False, 2.0)  # the partition waits for an operator


def _begin(world: World, generation: Generation) -> None:
    """The pointer rows of a generation, with its number, as a start makes them."""
    contents = world.store.contents
    found = {
        one.topic: [each.generation for each in world.store.pointers(one.topic).values()]
        for one in world.state.generations
    }
    number = version_generation(world.state, generation, found)
    for partition in range(generation.partitions):
        new = Pointer(0, number, world.topics[generation.topic].id)
        contents.pointers.setdefault((generation.topic, partition), new)


def _slice(topic: str, partition: int, id: str, log: list[tuple[int, str]], first: int, most: int) -> Slice:
    records = list(enumerate(log))[first : first + most]
    keys = [str(key).encode() for _, (key, _) in records]
    values = [orjson.dumps({"id": key, "data": value}) for _, (key, value) in records]
    return Slice(topic, partition, [at for at, _ in records], keys, values, [0] * len(records), topic_id=id)


def _judge(world: World, expected: dict[int, str]) -> Verdict:
    """Rows as the last records say, and each record counted once in the counters that moved with the pointers."""
    contents, faults = world.store.contents, list(world.faults)
    shown = {int(str(orjson.loads(_key(key)))): row.values for key, row in contents.rows.items()}
    wrong = [key for key, value in expected.items() if world.hazards.switches and value not in shown.get(key, ())]
    stray = [key for key, row in shown.items() if "late" in row or (set(row) & _others(world, expected))]
    twice = 0
    for place, tallies in contents.tallies.items():
        counted = sum(
            each.written.applied + each.written.identical + each.written.stale + each.ignored + each.rejected
            for each in tallies
        )
        twice += abs(counted - contents.pointers[place].next_offset)
    examples = (*faults, *(f"key {key} shows {shown.get(key)}, not {expected.get(key)}" for key in (*wrong, *stray)))
    return Verdict(len(wrong), twice, len(faults), len(stray), examples)


def _others(world: World, expected: dict[int, str]) -> set[str]:
    """Values that only the topic has which was created again."""
    if world.hazards.switches:
        return set()
    return {value for partition in world.topics[FIRST].partitions for _, value in partition} - set(expected.values())


def _key(key: object) -> bytes:
    return orjson.dumps(key[0] if isinstance(key, tuple) else key)
