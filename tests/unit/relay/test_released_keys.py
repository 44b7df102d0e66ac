"""A key that is released goes once and in order, whatever its topic, the other shards and the read ahead do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from inorder.kafka.shard_log import Delivery, Incomplete
from inorder.model.errors import RejectedError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Shard, shard_of
from inorder.relay.drain import DrainStrategy
from inorder.relay.leadership.lease import NoLease
from inorder.relay.loop import RelayLoop
from inorder.relay.mark_purge import MarkPurgeStrategy
from inorder.relay.options import LoopOptions
from inorder.relay.purge_queue import TakeOver
from inorder.relay.stores.ports import Exceeding, Page
from inorder.relay.term import Batch, Term
from tests.conftest import Eventually
from tests.fakes.log import MemoryBroker, MemoryShardLog
from tests.fakes.outbox import MemoryExceeded, MemoryOutbox
from tests.unit.relay.running import World, running
from tests.unit.relay.test_simulation import HASTE

SHARDS = 4
KEYS = [b"key%d" % number for number in range(6)]


def parked(id: int) -> Exceeding:
    return Exceeding(id, 5, "RECORD-001", "too large", parks=True)


class Choosy(MemoryShardLog):
    """Refuses the value `bad` until it relents."""

    def __init__(self, broker: MemoryBroker, relents: threading.Event) -> None:
        super().__init__(broker)
        self._relents = relents

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        bad = next((row for row in rows if row.value == b"bad"), None)
        if bad is not None and not self._relents.is_set():
            return Incomplete(RejectedError("The value is refused.", row_id=bad.id))
        return super().publish(rows, marker)


@dataclass
class Table:
    """One outbox with a loop for each shard; each loop reads the exceeded rows through a store of its own."""

    strategy: str
    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    records: list[OutboxRow] = field(default_factory=list)
    relents: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.exceeded = MemoryExceeded(self.outbox)

    def commit(self, *values: bytes) -> None:
        for value in values:
            for key in KEYS:
                self.outbox.insert("t", "t", key, value)
        self.outbox.end("t")

    def run(self, stack: ExitStack) -> None:
        for index in range(SHARDS):
            shard = Shard(index, SHARDS)
            store = MemoryOutbox(shard, beside=self.outbox)
            strategy = (
                DrainStrategy(store, 7, SHARDS) if self.strategy == "drain" else MarkPurgeStrategy(store, batch_size=7)
            )
            loop = RelayLoop(
                strategy,
                MemoryExceeded(self.outbox, shard, beside=self.exceeded),
                Choosy(MemoryBroker(self.records), self.relents),
                NoLease(),
                LoopOptions(stop=self.stop, max_attempts=2, pace=HASTE),
            )
            thread = threading.Thread(target=loop.run)
            thread.start()
            stack.callback(thread.join)
        stack.callback(self.stop.set)


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_retried_row_comes_once_and_in_order_with_several_shards(strategy: str, eventually: Eventually) -> None:
    assert len({shard_of("t", key, 0, SHARDS) for key in KEYS}) > 1
    table = Table(strategy)
    table.commit(b"bad", b"2", b"3")
    with ExitStack() as first:
        table.run(first)
        eventually(lambda: len(table.exceeded.rows) == len(KEYS))
    table.stop.clear()
    with ExitStack() as stack:
        table.run(stack)  # every loop finds all keys parked in the store
        table.commit(b"4")
        table.relents.set()
        for id in list(table.exceeded.rows):
            table.exceeded.retry(id)
        eventually(lambda: table.outbox.count() == 0)
    for key in KEYS:
        assert [row.value for row in table.records if row.key == key] == [b"bad", b"2", b"3", b"4"]


def test_each_shard_knows_its_own_parked_keys() -> None:
    table = Table("mark-purge")
    table.commit(b"bad")
    for id in range(1, len(KEYS) + 1):
        table.exceeded.exceed(parked(id))
    shards = [MemoryExceeded(table.outbox, Shard(index, SHARDS), beside=table.exceeded) for index in range(SHARDS)]
    known = [key for shard in shards for key in shard.parked()]
    assert sorted(known) == sorted(table.exceeded.parked()) == sorted(("t", key) for key in KEYS)


def tick(now: list[float]) -> bool:
    """Lets the time between two attempts pass."""
    now[0] += HASTE.back_off
    return True


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_key_released_while_its_topic_is_due_goes_in_order(strategy: str, eventually: Eventually) -> None:
    """Row 1 is parked, 2 waits for it and 3 for the topic; both waits end in the same step of the loop."""
    world, relents, now = World(), threading.Event(), [0.0]
    log = Choosy(world.broker, relents)
    pace = replace(HASTE, topic=10.0, parked=10.0)
    world.commit(("t", b"k", b"bad"), ("t", b"k", b"2"))
    with running(world, strategy=strategy, log=log, batch_size=1, pace=pace, clock=lambda: now[0]) as loop:
        eventually(lambda: tick(now) and world.exceeded.rows)
        world.broker.unavailable.add("t")
        world.commit(("t", b"other", b"0"), ("t", b"k", b"3"))
        eventually(lambda: "cannot be written to" in loop.progress.last_error)
        world.broker.unavailable.clear()
        relents.set()
        world.exceeded.retry(1)
        now[0] += 20.0
        eventually(lambda: world.outbox.count() == 0)
    assert [row.value for row in world.broker.records if row.key == b"k"] == [b"bad", b"2", b"3"]


@dataclass
class Scripted:
    """Claims that return what the test says."""

    ahead: list[OutboxRow]
    rows: dict[int, OutboxRow]
    purged: list[int] = field(default_factory=list)
    handed: Iterator[list[OutboxRow]] = field(init=False)

    def __post_init__(self) -> None:
        self.handed = iter([self.ahead])

    def begin(self, _marker: object) -> TakeOver:
        return TakeOver()

    def claim(self, _in_hand: object) -> Batch:
        return Batch(next(self.handed, []))

    def read_again(self, ids: Sequence[int]) -> Page:
        return Page([self.rows[id] for id in ids if id in self.rows])

    def purge(self, ids: Sequence[int], _proofs: Callable[[], Mapping[int, int]], /) -> None:
        self.purged += ids

    def end(self) -> None:
        """Nothing to give up."""


def test_a_row_that_was_read_ahead_and_then_read_again_is_published_once() -> None:
    """A row that was put back is found by its id, and may be in the batch that was read ahead too."""
    rows = {id: OutboxRow(id, "t", b"k", b"%d" % id, (), None, None) for id in (1, 2, 3)}
    outbox, broker = MemoryOutbox(), MemoryBroker()
    exceeded = MemoryExceeded(outbox)
    exceeded.rows[1] = (rows[1], parked(1))
    claims = Scripted([rows[1], rows[3]], rows)
    term = Term(UUID(int=1), claims, exceeded, MemoryShardLog(broker), batch_size=10, options=LoopOptions(pace=HASTE))
    term.take_over()
    assert term.sift([rows[2]]) == []
    other = OutboxRow(9, "t", b"other", b"9", (), None, None)
    term.publish(Batch([other], is_full=True))  # reads ahead
    del exceeded.rows[1]
    for batch in term.due():
        term.publish(batch)
    term.publish(Batch(term.sift(term.claim().rows)))
    term.close()
    assert [row.id for row in broker.records] == [9, 1, 2, 3]
