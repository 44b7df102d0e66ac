"""A relay whose every effect may fail, on either side of taking place, still publishes each row once and in order.

Real loops run against an outbox and a broker in memory. Faults come from a seed: a commit whose answer is lost, done or
not; a read or purge that fails before or after it took effect; an owner that dies and leaves its successor to find out.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from inorder.kafka.shard_log import Delivery, Incomplete, ShardLog
from inorder.model.errors import FencedError, RejectedError, TransientError, UnknownOutcomeError, UnreachableError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Shard
from inorder.relay.drain import DrainStrategy
from inorder.relay.leadership.lease import NoLease
from inorder.relay.loop import RelayLoop
from inorder.relay.mark_purge import MarkPurgeStrategy
from inorder.relay.options import LoopOptions, Pace
from inorder.relay.scan import BATCH_BYTES
from inorder.relay.stores.ports import LAST_ID, Origin, Page, Scan
from inorder.testing.checker import Verdict, check_delivery
from tests.conftest import Eventually
from tests.fakes.log import IDS, MemoryBroker, MemoryShardLog, MemoryUnfencedLog
from tests.fakes.outbox import MemoryExceeded, MemoryOutbox
from tests.selection import few

HASTE = Pace(poll=0.002, brief_poll=0.002, lease=0.002, parked=0.002, back_off=0.001)
FAULT_RATE = 0.15


class FaultyOutbox:
    """An outbox whose connection breaks now and then, before or after the statement took effect."""

    def __init__(self, outbox: MemoryOutbox, chance: random.Random) -> None:
        self._outbox = outbox
        self._chance = chance

    def read(self, scan: Scan, limit: int) -> Page:
        self._maybe_break()
        page = self._outbox.read(scan, limit)
        self._maybe_break()
        return page

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0, max_bytes: int = LAST_ID) -> Page:
        self._maybe_break()
        page = self._outbox.mark(leader_id, limit, above=above, max_bytes=max_bytes)
        self._maybe_break()
        return page

    def mark_again(self, leader_id: UUID, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        self._maybe_break()
        page = self._outbox.mark_again(leader_id, ids, max_bytes)
        self._maybe_break()
        return page

    def reset(self, leader_id: UUID) -> int:
        self._maybe_break()
        return self._outbox.reset(leader_id)

    def holders(self) -> frozenset[str]:
        self._maybe_break()
        return self._outbox.holders()

    def purge(self, ids: Sequence[int], session: int | None = None) -> int:
        self._maybe_break()
        count = self._outbox.purge(ids, session)
        self._maybe_break()
        return count

    def session(self) -> int | None:
        self._maybe_break()
        return self._outbox.session()

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        self._maybe_break()
        return self._outbox.rows_to_purge(ids, max_bytes)

    def origin(self) -> Origin:
        self._maybe_break()
        return self._outbox.origin()

    def begin_reads(self) -> Origin:
        self._maybe_break()
        return self._outbox.begin_reads()

    def begin_sleep(self) -> bool:
        return self._chance.random() < 0.5

    def wait(self, seconds: float) -> bool:
        return self._outbox.wait(seconds)

    def end_sleep(self) -> None:
        self._maybe_break()

    def close(self) -> None:
        self._outbox.close()

    def _maybe_break(self) -> None:
        if self._chance.random() < FAULT_RATE:
            raise UnreachableError("The connection broke.")


class Shaky:
    """A shard log whose broker is away now and then; how its `publish` fails is for others to say."""

    def __init__(self, log: ShardLog, chance: random.Random) -> None:
        self._log = log
        self._chance = chance

    def take_over(self) -> bytes | None:
        if self._chance.random() < FAULT_RATE:
            raise UnreachableError("The broker is away.")
        return self._log.take_over()

    def close(self) -> None:
        self._log.close()


class FaultyLog(Shaky):
    """A shard log whose commits are aborted, or whose answers are lost with the commit done or not."""

    def __init__(self, broker: MemoryBroker, chance: random.Random) -> None:
        super().__init__(MemoryShardLog(broker), chance)
        self._broker = broker

    def take_over(self) -> bytes | None:
        """May die between its two ids: the earlier owner then keeps one of them."""
        if self._chance.random() < FAULT_RATE:
            self._broker.fence(IDS[0])
            raise UnreachableError("The broker is away after the first id.")
        return super().take_over()

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        fate = self._chance.random()
        if fate < FAULT_RATE:
            return Incomplete(TransientError("The transaction was aborted."))
        if fate < 1.5 * FAULT_RATE:
            raise UnknownOutcomeError("No answer, and not committed.")
        delivery = self._log.publish(rows, marker)
        if fate < 2 * FAULT_RATE:
            raise UnknownOutcomeError("No answer, but committed.")
        return delivery


class Partial(Shaky):
    """A log without transactions: part of a batch arrives, and the relay learns which part, or nothing."""

    def __init__(self, broker: MemoryBroker, chance: random.Random) -> None:
        super().__init__(MemoryUnfencedLog(broker), chance)

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        fate = self._chance.random()
        arrived = list(self._part(rows)) if fate < 2 * FAULT_RATE else list(rows)
        delivery = self._log.publish(arrived, marker)
        if fate < FAULT_RATE:
            return Incomplete(TransientError("Not all arrived."), frozenset(row.id for row in arrived))
        if fate < 1.5 * FAULT_RATE:
            return Incomplete(TransientError("Nobody knows what arrived."))
        if fate < 2 * FAULT_RATE:
            raise UnknownOutcomeError("No answer.")
        return delivery

    def _part(self, rows: Sequence[OutboxRow]) -> Iterator[OutboxRow]:
        """The rows of each key up to some point."""
        stuck: set[bytes | None] = set()
        for row in rows:
            if self._chance.random() < 0.3:
                stuck.add(row.key)
            if row.key not in stuck:
                yield row


class Patient(NoLease):
    """Lets a fenced loop try again, as a lease would after its turn came."""

    def holds(self) -> bool:
        return True

    def arbitrates(self) -> bool:
        return True


Faulty = type[FaultyLog] | type[Partial]


@dataclass(frozen=True)
class Setting:
    """Who carries the rows, how, and how their log fails."""

    kind: Faulty
    strategy: str = "drain"
    loops: int = 1
    shards: int = 1
    batch_bytes: int = BATCH_BYTES

    def strategy_on(self, store: FaultyOutbox) -> DrainStrategy | MarkPurgeStrategy:
        if self.strategy == "drain":
            return DrainStrategy(store, batch_size=7, shards=self.shards, batch_bytes=self.batch_bytes)
        return MarkPurgeStrategy(store, batch_size=7, batch_bytes=self.batch_bytes)

    def run(self, outbox: MemoryOutbox, broker: MemoryBroker, index: int, seed: int, stop: threading.Event) -> None:
        chance = random.Random(seed)
        store = FaultyOutbox(MemoryOutbox(Shard(index, self.shards), beside=outbox), chance)
        exceeded, log = MemoryExceeded(outbox), self.kind(broker, chance)
        RelayLoop(self.strategy_on(store), exceeded, log, Patient(), LoopOptions(stop=stop, pace=HASTE)).run()


def write(outbox: MemoryOutbox, seed: int, transactions: int) -> list[tuple[bytes, int]]:
    """Transactions of a few rows; each key counts its events, and a key belongs to one open transaction at a time."""
    chance = random.Random(seed)
    places: dict[bytes, int] = {}
    committed: list[tuple[bytes, int]] = []
    late: list[tuple[str, bytes]] = []
    for number in range(transactions):
        name, key = f"t{number}", f"k{chance.randrange(10)}".encode()
        if any(key == held for _, held in late):
            continue
        place = places.get(key, 0)
        commits = chance.random() < 0.8
        for step in range(1, chance.randint(1, 4) + 1):
            outbox.insert(name, "t", key, str(place + step).encode())
            if commits:
                places[key] = place + step
                committed.append((key, place + step))
        if commits and chance.random() < 0.2:
            late.append((name, key))
        else:
            outbox.end(name, commit=commits)
        if len(late) > 3:
            outbox.end(late.pop(0)[0])
    for name, _ in late:
        outbox.end(name)
    return committed


def simulate(setting: Setting, seed: int, eventually: Eventually) -> Verdict:
    """What became of the rows of 150 transactions; each shard has so many loops at once, and a fence of its own."""
    outbox, stop, records = MemoryOutbox(), threading.Event(), list[OutboxRow]()
    brokers = [MemoryBroker(records) for _ in range(setting.shards)]
    threads = [
        threading.Thread(target=setting.run, args=(outbox, broker, index, 100 * seed + 10 * index + number, stop))
        for index, broker in enumerate(brokers)
        for number in range(setting.loops)
    ]
    for thread in threads:
        thread.start()
    committed = write(outbox, seed, 150)
    try:
        eventually(lambda: outbox.count() == 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return check_delivery(committed, [(row.key, int(row.value or b"0")) for row in records])


@pytest.mark.parametrize("seed", few(range(6), 0, 1))
@pytest.mark.parametrize("loops", [1, 3])
@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_each_row_is_published_once_and_in_order_whatever_fails(
    strategy: str, seed: int, loops: int, eventually: Eventually
) -> None:
    verdict = simulate(Setting(FaultyLog, strategy, loops), seed, eventually)
    assert verdict.holds, verdict


@pytest.mark.parametrize("seed", few(range(4), 0))
@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_shards_divide_the_rows_without_losing_or_sharing_one(strategy: str, seed: int, eventually: Eventually) -> None:
    verdict = simulate(Setting(FaultyLog, strategy, loops=1, shards=3), seed, eventually)
    assert verdict.holds, verdict


@pytest.mark.parametrize("seed", few(range(6), 0, 1))
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_rows_too_large_for_one_batch_are_published_once_and_in_order(
    strategy: str, seed: int, shards: int, eventually: Eventually
) -> None:
    """Keys and values have three to five bytes, so that every page ends after one to three rows."""
    verdict = simulate(Setting(FaultyLog, strategy, shards=shards, batch_bytes=9), seed, eventually)
    assert verdict.holds, verdict


@pytest.mark.parametrize("seed", few(range(6), 0, 1))
@pytest.mark.parametrize("loops", [1, 3])
@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_without_transactions_rows_may_repeat_and_none_is_lost_or_overtaken(
    strategy: str, seed: int, loops: int, eventually: Eventually
) -> None:
    """Also where the lease failed and three work at once: the first copy of each row comes in order."""
    verdict = simulate(Setting(Partial, strategy, loops), seed, eventually)
    assert replace(verdict, duplicated=0).holds, verdict


def test_a_loop_nobody_arbitrates_ends_when_it_is_fenced(eventually: Eventually) -> None:
    outbox, broker, stop = MemoryOutbox(), MemoryBroker(), threading.Event()
    loop = RelayLoop(
        DrainStrategy(outbox, batch_size=5),
        MemoryExceeded(outbox),
        MemoryShardLog(broker),
        NoLease(),
        LoopOptions(stop=stop, pace=HASTE),
    )
    failures: list[BaseException] = []

    def run() -> None:
        try:
            loop.run()
        except FencedError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: loop.progress.is_owner)
    MemoryShardLog(broker).take_over()
    outbox.insert("t", "t", b"k", b"1")
    outbox.end("t")
    thread.join(30)
    assert len(failures) == 1
    assert broker.records == []
    assert outbox.count() == 1, "what a fenced loop had in hand stays in the table"


def test_what_arrived_of_a_refused_batch_is_settled_and_not_sent_again(eventually: Eventually) -> None:
    """Rows 1 and 3 arrived when row 2 was refused: only its own key waits, and nothing is repeated."""
    outbox, broker, stop = MemoryOutbox(), MemoryBroker(), threading.Event()

    class Refusing(MemoryUnfencedLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
            good = [row for row in rows if row.key != b"k"]
            delivery = super().publish(good if len(good) < len(rows) else rows, marker)
            if len(good) < len(rows):
                bad = next(row for row in rows if row.key == b"k")
                return Incomplete(RejectedError("No.", row_id=bad.id), frozenset(row.id for row in good))
            return delivery

    for key in (b"a", b"k", b"b", b"k"):
        outbox.insert("t", "t", key, b"v")
    outbox.end("t")
    exceeded = MemoryExceeded(outbox)
    loop = RelayLoop(
        DrainStrategy(outbox, batch_size=50),
        exceeded,
        Refusing(broker),
        NoLease(),
        LoopOptions(stop=stop, max_attempts=3, pace=HASTE),
    )
    thread = threading.Thread(target=loop.run)
    thread.start()
    eventually(lambda: exceeded.rows)
    eventually(lambda: outbox.count() == 1)
    stop.set()
    thread.join()
    assert [row.key for row in broker.records] == [b"a", b"b"]
    assert (loop.progress.published, list(exceeded.rows)) == (2, [2])


def test_an_owner_whose_batch_is_stuck_gives_it_up_when_its_lease_is_gone(eventually: Eventually) -> None:
    """Nothing fences it, so it must look for itself; its log is closed and sends nothing more."""
    outbox, stop = MemoryOutbox(), threading.Event()
    lost, closed = threading.Event(), threading.Event()

    class Losing(Patient):
        def acquire(self) -> bool:
            return not lost.is_set()

    class Stuck(MemoryUnfencedLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:  # noqa: ARG002 - the port's signature
            lost.set()
            return Incomplete(TransientError("Still under way."))

        def close(self) -> None:
            if lost.is_set():
                closed.set()

    outbox.insert("t", "t", b"k", b"v")
    outbox.end("t")
    log = Stuck(MemoryBroker())
    loop = RelayLoop(
        DrainStrategy(outbox, batch_size=5), MemoryExceeded(outbox), log, Losing(), LoopOptions(stop=stop, pace=HASTE)
    )
    thread = threading.Thread(target=loop.run)
    thread.start()
    eventually(closed.is_set)
    assert not loop.progress.is_owner
    stop.set()
    thread.join()
    assert outbox.count() == 1
