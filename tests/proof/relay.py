"""The relay, simulated: the real loop, term, shard log and fenced producer, over a database and a broker that fail.

Each effect (a statement, a request to the broker) may fail before or after it took place, its answer may be lost or
late, and its process may die on either side of it. A request that ends a transaction may be repeated by the client
while its first copy is still on its way, and arrives at any later moment. The database may lose its last commits. All
of it follows from a seed: `python -m tests.proof.simulate relay --seed N` shows one run again.

What is simulated is what the ports promise: the outbox (`tests/fakes/outbox.py` passes the contract suite of the real
ones) and the calls of the Kafka client that `FencedProducer` makes. The decisions are the real code's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException

from inorder.model.errors import UnreachableError
from inorder.model.message import OutboxRow
from inorder.relay.drain import DrainStrategy
from inorder.relay.leadership.lease import NoLease
from inorder.relay.loop import RelayLoop
from inorder.relay.options import LoopOptions, Pace
from inorder.relay.stores.kafka_log import KafkaShardLog, MarkerRecord
from inorder.relay.stores.ports import LAST_ID, Origin, Page, Scan
from inorder.testing.checker import Verdict, check_delivery
from tests.fakes.outbox import MemoryExceeded, MemoryOutbox
from tests.proof.scheduler import Killed, Node, Outcome, Scheduler, Stop, patched

PACE = Pace(poll=0.5, brief_poll=0.1, lease=0.1, parked=1, back_off=0.2)
TOPIC = "t"
TRANSACTION_SECONDS = 60.0


@dataclass(frozen=True)
class Faults:
    """What may happen, and how often; all stop after `most`, so that a run ends."""

    most: int = 16
    rate: float = 0.06
    """That an effect fails."""
    kills: float = 0.03
    """That its process dies on one side of it."""
    freezes: float = 0.04
    """That its process is paused on one side of it, for longer than any other one waits."""
    repeats: float = 0.2
    """That the client repeats a request that ends a transaction."""
    goes_back: float = 0.0
    """That the database loses its last commits, at a statement."""
    dies_at: frozenset[int] = frozenset()
    """The effects at which a process dies, in order of all effects; even numbers are before one, odd ones after."""


@dataclass
class Transaction:
    began: float
    records: list[OutboxRow] = field(default_factory=list)
    marker: MarkerRecord | None = None


class World:
    """The database, the broker, and what may go wrong."""

    def __init__(self, seed: int, faults: Faults, batch_size: int) -> None:
        self.chance = random.Random(seed)
        self.faults = faults
        self.batch_size = batch_size
        self.scheduler = Scheduler(self.chance)
        self.outbox = MemoryOutbox()
        self.exceeded = MemoryExceeded(self.outbox)
        self.effects = 0
        self.injected = 0
        self.is_calm = False
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.topic: list[OutboxRow] = []
        self.marker = MarkerRecord()
        self.replica: tuple[dict[int, OutboxRow], int] = ({}, 0)
        self.server = 1
        self.lost: set[bytes] = set()
        self.returned: set[bytes] = set()
        self.nodes: list[Node] = []

    def effect(self, act: Callable[[], Any], refuse: Callable[[], NoReturn]) -> Any:
        """One effect: others run before and after it; it, or its answer, may fail, and its process may die."""
        self._happen(refuse)
        found = act()
        self._happen(refuse)
        return found

    def happens(self, rate: float) -> bool:
        if self.is_calm or self.injected >= self.faults.most or self.chance.random() >= rate:
            return False
        self.injected += 1
        return True

    def _happen(self, refuse: Callable[[], NoReturn]) -> None:
        self.scheduler.pause()
        number, self.effects = self.effects, self.effects + 1
        if number in self.faults.dies_at or self.happens(self.faults.kills):
            self.scheduler.node().is_dead = True
            raise Killed
        if self.happens(self.faults.freezes):
            self.scheduler.node().frozen_until = self.scheduler.now + self.chance.choice([0.3, 1.0, 3.0])
            self.scheduler.pause()
        if self.happens(self.faults.rate):
            refuse()

    # The broker.

    def init(self, id: str) -> int:
        """A new epoch; what was open is aborted."""
        self.open.pop(id, None)
        self.epochs[id] = self.epochs.get(id, 0) + 1
        return self.epochs[id]

    def append(self, id: str, epoch: int, record: OutboxRow | MarkerRecord) -> None:
        self.require_epoch(id, epoch)
        transaction = self.open.setdefault(id, Transaction(self.scheduler.now))
        if isinstance(record, MarkerRecord):
            transaction.marker = record
        else:
            transaction.records.append(record)

    def end(self, id: str, epoch: int, *, commits: bool) -> None:
        """Ends the transaction that is open, whichever that is: a request does not name it."""
        self.require_epoch(id, epoch)
        transaction = self.open.pop(id, None)
        if commits and transaction is not None:
            self.topic += transaction.records
            self.marker = transaction.marker or self.marker

    def time_out(self) -> None:
        """Aborts transactions that are open for too long, with a new epoch: their producers may be gone."""
        for id, transaction in list(self.open.items()):
            if self.scheduler.now - transaction.began > TRANSACTION_SECONDS:
                self.init(id)

    def require_epoch(self, id: str, epoch: int) -> None:
        if self.epochs[id] != epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "a newer producer has the id", fatal=True))

    def end_later(self, id: str, epoch: int, *, commits: bool) -> None:
        """A copy of a request stays on its way for any time."""

        def arrive() -> None:
            arrives_at = self.scheduler.steps + self.chance.randint(1, 300)
            self.scheduler.wait(lambda: self.scheduler.steps >= arrives_at)
            if self.epochs[id] == epoch:
                self.end(id, epoch, commits=commits)

        self.scheduler.spawn(Node("network"), arrive)

    # The database.

    def replicate(self) -> None:
        self.replica = dict(self.outbox._table.rows), self.outbox._table.last_id

    def go_back(self) -> None:
        """The replica becomes the primary: what it lacks is lost, and what was purged since is back."""
        table, (rows, last_id) = self.outbox._table, self.replica
        before = {_event(row) for row in table.rows.values()}
        kept = {_event(row) for row in rows.values()}
        sent = {_event(row) for row in self.topic}
        self.lost |= before - kept
        self.returned |= (kept - before) & sent
        table.rows, table.last_id, table.open = dict(rows), last_id, {}
        self.server += 1
        table.server = f"server {self.server}"


def _event(row: OutboxRow) -> bytes:
    return row.value or b""


class Connection:
    """One of a process's connections: a session, until it breaks or the server is another one."""

    def __init__(self, world: World, *, follows: Connection | None = None) -> None:
        self._world = world
        self._follows = follows
        self._followed = 0
        self._server: int | None = None
        self._is_pinned = False
        self.session = 0

    def pin(self) -> None:
        """From now on a session that is gone is not replaced unnoticed (`database/primary.py`)."""
        self._is_pinned = False
        self.open()
        self._is_pinned = True

    def open(self) -> None:
        if self._follows is not None and self._follows.session != self._followed:
            self._server = None
        if self._server is None:
            if self._is_pinned:
                raise UnreachableError("The connection was replaced in the meantime.")
            if self._follows is not None:
                self._follows.open()
                self._followed = self._follows.session
            self._server, self.session = self._world.server, self.session + 1

    def call(self, act: Callable[[], Any]) -> Any:
        self.open()
        return self._world.effect(lambda: self._act(act), self._break)

    def _act(self, act: Callable[[], Any]) -> Any:
        world = self._world
        if world.happens(world.faults.goes_back):
            world.go_back()
        elif world.faults.goes_back and world.chance.random() < 0.3:
            world.replicate()
        if self._server != world.server:
            self._break()
        return act()

    def close(self) -> None:
        self._server = None

    def _break(self) -> NoReturn:
        self._server = None
        raise UnreachableError("The connection broke.")


class SimulatedStore:
    """The outbox of one process: a connection that reads, and one that purges."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._outbox = world.outbox
        self._purging = Connection(world)
        self._reading = Connection(world, follows=self._purging)

    def read(self, scan: Scan, limit: int) -> Page:
        return self._reading.call(lambda: self._outbox.read(scan, limit))  # type: ignore[no-any-return] # any effect

    def holders(self) -> frozenset[str]:
        return self._reading.call(self._outbox.holders)  # type: ignore[no-any-return] # any effect

    def purge(self, ids: Sequence[int], session: int | None = None) -> int:
        def purge() -> int:
            if session not in (None, self._purging.session):
                raise UnreachableError("The connection was replaced in the meantime.")
            return self._outbox.purge(ids)

        return self._purging.call(purge)  # type: ignore[no-any-return] # any effect

    def session(self) -> int | None:
        return self._purging.call(lambda: self._purging.session)  # type: ignore[no-any-return] # any effect

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        return self._purging.call(lambda: self._outbox.rows_to_purge(ids, max_bytes))  # type: ignore[no-any-return] # any effect

    def origin(self) -> Origin:
        return self._purging.call(self._outbox.origin)  # type: ignore[no-any-return] # any effect

    def begin_reads(self) -> Origin:
        self._reading.pin()
        return self._reading.call(self._outbox.origin)  # type: ignore[no-any-return] # any effect

    def begin_sleep(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        return self._world.scheduler.wait(lambda: False, seconds)

    def end_sleep(self) -> None: ...

    def close(self) -> None:
        self._reading.close()
        self._purging.close()


class SimulatedClient:
    """The calls of the Kafka client that a `FencedProducer` makes."""

    def __init__(self, world: World, properties: dict[str, Any]) -> None:
        self._world = world
        self._id: str = properties["transactional.id"]
        self._backoff: float = properties["retry.backoff.ms"] / 1000
        self._epoch = 0
        self._queue: list[OutboxRow | MarkerRecord] = []

    def init_transactions(self, _timeout: float) -> None:
        self._epoch = self._world.effect(lambda: self._world.init(self._id), lambda: _fail(retriable=True))

    def begin_transaction(self) -> None:
        self._queue = []

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int:  # noqa: ARG002
        self._queue += [
            OutboxRow(0, topic, each["key"], each["value"], (), None, None) for each in messages
        ]  # the broker knows no ids of rows
        return len(messages)

    def produce(self, _topic: str, value: bytes, _key: str, *, partition: int, headers: Any) -> None:  # noqa: ARG002
        self._queue.append(MarkerRecord(value, headers[0][1]))

    def flush(self, _seconds: float) -> int:
        """Records arrive one by one; where one fails the transaction must be aborted."""
        while self._queue:
            arrive = partial(self._world.append, self._id, self._epoch, self._queue[0])
            self._world.effect(arrive, lambda: _fail(aborts=True))
            self._queue.pop(0)
        return 0

    def commit_transaction(self, _timeout: float) -> None:
        self._end(commits=True)

    def abort_transaction(self, _timeout: float) -> None:
        self._queue = []
        self._end(commits=False)

    def purge(self, **_: object) -> None: ...

    def _end(self, *, commits: bool) -> None:
        """Sends the request; without an answer the client repeats it, and the first copy may arrive at any time."""
        world = self._world
        if world.happens(world.faults.repeats):
            world.end_later(self._id, self._epoch, commits=commits)
            world.scheduler.wait(lambda: False, self._backoff * world.chance.uniform(0.8, 1.2))
        world.effect(lambda: world.end(self._id, self._epoch, commits=commits), lambda: _fail(retriable=False))


def _fail(*, retriable: bool = False, aborts: bool = False) -> NoReturn:
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=retriable, txn_requires_abort=aborts))


class KnownNothing:
    """All topics are there, and accept all records."""

    batch_size = 1_000_000

    def require(self, *_: object) -> None: ...

    def blame(self, *_: object) -> None: ...

    def doubt(self) -> None: ...


class Patient(NoLease):
    """Lets everybody try at any time: the fence alone decides."""

    def holds(self) -> bool:
        return True

    def arbitrates(self) -> bool:
        return True


def simulate(
    seed: int,
    faults: Faults = Faults(),  # noqa: B008 - immutable
    *,
    owners: int = 2,
    transactions: int = 6,
    batch_size: int = 3,
) -> Outcome:
    """One run: publishers commit, owners publish, everything fails; then calm, until the outbox is empty."""
    world = World(seed, faults, batch_size)
    replaced: dict[str, Any] = {
        "inorder.kafka.fenced_producer.Producer": lambda properties, **_: SimulatedClient(world, properties),
        "inorder.relay.stores.kafka_log.ensure_compacted_topic": lambda *_: None,
        "inorder.relay.stores.kafka_log.require_settled": lambda *_: None,
        "inorder.relay.stores.kafka_log.read_last_marker": lambda *_: _read_marker(world),
        "inorder.relay.stores.kafka_log.KnownTopics": lambda *_, **__: KnownNothing(),
        "inorder.relay.stores.kafka_log.TopicLimits": lambda *_: KnownNothing(),
    }
    with patched(world.scheduler, replaced):
        try:
            return _run(world, owners, transactions)
        finally:
            world.scheduler.end()


def _read_marker(world: World) -> MarkerRecord:
    def fail() -> NoReturn:
        raise UnreachableError("No answer.")

    return world.effect(lambda: world.marker, fail)  # type: ignore[no-any-return] # any effect


def _run(world: World, owners: int, transactions: int) -> Outcome:
    committed: list[tuple[bytes, int]] = []
    publisher = world.scheduler.spawn(Node("publisher"), lambda: _publish(world, committed, transactions))
    for _ in range(owners):
        _start(world)

    def is_over() -> bool:
        _restart(world, owners)
        world.time_out()
        if not publisher.is_done:
            return False
        world.is_calm = world.is_calm or world.scheduler.now > 30 or world.injected >= world.faults.most
        return not world.outbox.count() and not world.open and world.scheduler.steps > 50

    world.scheduler.run(is_over)
    return Outcome(_judge(world, committed), world.effects, world.injected)


def _restart(world: World, owners: int) -> None:
    """A process that died is started again; once all is calm one is enough, or they would fence each other for long."""
    alive = [node for node in world.nodes if not node.is_dead]
    if world.is_calm:
        for node in alive[1:]:
            node.is_dead = True
        owners = 1
    for _ in range(owners - len(alive)):
        _start(world)


def _start(world: World) -> None:
    node, stop = Node(f"relay {len(world.nodes)}"), Stop(world.scheduler)
    world.nodes.append(node)
    clock = lambda: world.scheduler.now  # noqa: E731
    options = LoopOptions(stop=stop, pace=PACE, clock=clock)  # type: ignore[arg-type] # an event of the scheduler's
    strategy = DrainStrategy(SimulatedStore(world), batch_size=world.batch_size, clock=clock)
    log = KafkaShardLog({}, group="g")
    loop = RelayLoop(strategy, world.exceeded, log, Patient(), options)
    world.scheduler.spawn(node, loop.run)


def _publish(world: World, committed: list[tuple[bytes, int]], transactions: int) -> None:
    """Transactions of one key each; some roll back, and some commit after later ones."""
    chance, places = world.chance, dict[bytes, int]()
    late: list[tuple[str, bytes, list[int]]] = []

    def end(name: str, key: bytes, numbers: list[int]) -> None:
        world.outbox.end(name)
        committed.extend((key, number) for number in numbers)

    for number in range(transactions):
        world.scheduler.wait(lambda: False, chance.choice([0.0, 0.01, 0.3, 1.0]))
        key, name = b"k%d" % chance.randrange(3), f"t{number}"
        if any(held == key for _, held, _ in late):
            continue
        commits, numbers = chance.random() < 0.85, list[int]()
        for _ in range(chance.randint(1, 3)):
            place = places.get(key, 0) + len(numbers) + 1
            world.outbox.insert(name, TOPIC, key, b"%s %d" % (key, place))
            numbers.append(place)
        if not commits:
            world.outbox.end(name, commit=False)
            continue
        places[key] = places.get(key, 0) + len(numbers)
        if chance.random() < 0.25 and not world.faults.goes_back:
            late.append((name, key, numbers))
        else:
            end(name, key, numbers)
    for one in late:
        world.scheduler.pause()
        end(*one)


def _judge(world: World, committed: list[tuple[bytes, int]]) -> Verdict:
    """What a database has lost needs not arrive, and what it has brought back may arrive once more."""
    delivered = [_parse(row) for row in world.topic]
    excused = {_parse_event(event) for event in world.returned}
    lost = {_parse_event(event) for event in world.lost}
    arrived = set(delivered)
    wanted = [event for event in committed if event not in excused and (event in arrived or event not in lost)]
    found = [event for event in delivered if event not in excused]
    missing = [event for event in committed if event in excused and event not in arrived]
    return check_delivery(wanted + missing, found)


def _parse(row: OutboxRow) -> tuple[bytes, int]:
    return _parse_event(_event(row))


def _parse_event(event: bytes) -> tuple[bytes, int]:
    key, place = event.split()
    return key, int(place)
