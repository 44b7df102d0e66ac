"""A relay whose every effect may fail, on either side of taking place, still publishes each row once and in order.

Real loops run against an outbox and a broker in memory. Faults come from a seed: a commit whose answer is lost, done or
not; a read or purge that fails before or after it took effect; an owner that dies and leaves its successor to find out.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from inorder.leadership.unguarded import NoLease
from inorder.model.errors import FencedError, RejectedError, TransientError, UnknownOutcomeError, UnreachableError
from inorder.ports.exceeded_store import Exceeding
from inorder.ports.outbox_store import OutboxRow, Scan
from inorder.relay.loop import Pace, RelayLoop
from inorder.relay.marker import Marker
from inorder.relay.parking import Policy
from inorder.testing.checker import check_delivery
from inorder.testing.memory_exceeded import MemoryExceeded
from inorder.testing.memory_log import MemoryBroker, MemoryShardLog
from inorder.testing.memory_outbox import MemoryOutbox
from tests.conftest import Eventually

HASTE = Pace(poll=0.002, brief_poll=0.002, lease=0.002, parked=0.002, back_off=0.001)
FAULT_RATE = 0.15


class FaultyOutbox:
    """An outbox whose connection breaks now and then, before or after the statement took effect."""

    def __init__(self, outbox: MemoryOutbox, chance: random.Random) -> None:
        self._outbox = outbox
        self._chance = chance

    def read(self, scan: Scan, limit: int) -> list[OutboxRow]:
        self._maybe_break()
        rows = self._outbox.read(scan, limit)
        self._maybe_break()
        return rows

    def holders(self) -> frozenset[str]:
        self._maybe_break()
        return self._outbox.holders()

    def purge(self, ids: Sequence[int]) -> int:
        self._maybe_break()
        count = self._outbox.purge(ids)
        self._maybe_break()
        return count

    def begin_sleep(self) -> bool:
        return self._chance.random() < 0.5

    def wait(self, seconds: float) -> None:
        self._outbox.wait(seconds)

    def end_sleep(self) -> None:
        self._maybe_break()

    def close(self) -> None:
        self._outbox.close()

    def _maybe_break(self) -> None:
        if self._chance.random() < FAULT_RATE:
            raise UnreachableError("The connection broke.")


class FaultyLog:
    """A shard log whose commits are aborted, or whose answers are lost with the commit done or not."""

    def __init__(self, broker: MemoryBroker, chance: random.Random) -> None:
        self._log = MemoryShardLog(broker)
        self._chance = chance

    def take_over(self) -> bytes | None:
        if self._chance.random() < FAULT_RATE:
            raise UnreachableError("The broker is away.")
        return self._log.take_over()

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        fate = self._chance.random()
        if fate < FAULT_RATE:
            raise TransientError("The transaction was aborted.")
        if fate < 1.5 * FAULT_RATE:
            raise UnknownOutcomeError("No answer, and not committed.")
        self._log.publish(rows, marker)
        if fate < 2 * FAULT_RATE:
            raise UnknownOutcomeError("No answer, but committed.")

    def close(self) -> None:
        self._log.close()


class Patient(NoLease):
    """Lets a fenced loop try again, as a lease would after its turn came."""

    def arbitrates(self) -> bool:
        return True


def run_loop(outbox: MemoryOutbox, broker: MemoryBroker, seed: int, stop: threading.Event) -> None:
    chance = random.Random(seed)
    store, log = FaultyOutbox(outbox, chance), FaultyLog(broker, chance)
    exceeded = MemoryExceeded(outbox)
    RelayLoop(store, exceeded, log, Patient(), batch_size=7, stop=stop, pace=HASTE).run()


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


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("loops", [1, 3])
def test_each_row_is_published_once_and_in_order_whatever_fails(seed: int, loops: int, eventually: Eventually) -> None:
    outbox, broker, stop = MemoryOutbox(), MemoryBroker(), threading.Event()
    threads = [
        threading.Thread(target=run_loop, args=(outbox, broker, 100 * seed + number, stop)) for number in range(loops)
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
    delivered = [(row.key, int(row.value or b"0")) for row in broker.records]
    verdict = check_delivery(committed, delivered)
    assert verdict.holds, verdict


def test_a_loop_nobody_arbitrates_ends_when_it_is_fenced(eventually: Eventually) -> None:
    outbox, broker, stop = MemoryOutbox(), MemoryBroker(), threading.Event()
    loop = RelayLoop(
        outbox, MemoryExceeded(outbox), MemoryShardLog(broker), NoLease(), batch_size=5, stop=stop, pace=HASTE
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
    broker.fence()
    outbox.insert("t", "t", b"k", b"1")
    outbox.end("t")
    thread.join(30)
    assert len(failures) == 1
    assert broker.records == []
    assert outbox.count() == 1, "what a fenced loop had in hand stays in the table"


class Strict(MemoryShardLog):
    """A broker that refuses one value until it is told to relent; it may or may not say which row it was."""

    def __init__(self, broker: MemoryBroker, *, tells: bool = True) -> None:
        super().__init__(broker)
        self.relents = threading.Event()
        self.refusals = 0
        self._tells = tells

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        bad = next((row for row in rows if row.value == b"bad"), None)
        if bad is not None and not self.relents.is_set():
            self.refusals += 1
            raise RejectedError("The value is refused.", row_id=bad.id if self._tells else None)
        super().publish(rows, marker)


@dataclass
class Scene:
    """One loop against a strict broker, on a thread that ends with the test."""

    outbox: MemoryOutbox
    exceeded: MemoryExceeded
    broker: MemoryBroker
    strict: Strict
    loop: RelayLoop

    def values(self, key: bytes | None = None) -> list[bytes | None]:
        return [row.value for row in self.broker.records if key is None or row.key == key]


@contextmanager
def scene(policy: Policy, *, tells: bool = True, batch_size: int = 50) -> Iterator[Scene]:
    outbox, broker, stop = MemoryOutbox(), MemoryBroker(), threading.Event()
    exceeded, strict = MemoryExceeded(outbox), Strict(broker, tells=tells)
    for number in range(20):
        outbox.insert("t", "t", b"other%d" % number, b"fine")
    for value in (b"good", b"bad", b"behind", b"last"):
        outbox.insert("t", "t", b"k", value)
    outbox.end("t")
    pace = replace(HASTE, blocked=0.002)
    loop = RelayLoop(
        outbox,
        exceeded,
        strict,
        NoLease(),
        batch_size=batch_size,
        stop=stop,
        max_attempts=3,
        policy=lambda _topic: policy,
        pace=pace,
    )
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield Scene(outbox, exceeded, broker, strict, loop)
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_a_bad_record_parks_its_key_and_nothing_else(tells: bool, batch_size: int, eventually: Eventually) -> None:
    with scene("park", tells=tells, batch_size=batch_size) as found:
        eventually(lambda: found.exceeded.rows)
        eventually(lambda: found.values().count(b"fine") == 20)
        assert found.values(b"k") == [b"good"]
        assert found.exceeded.rows[22][1].attempts == 3
        found.outbox.insert("more", "t", b"k", b"later")
        found.outbox.insert("more", "t", b"new", b"fine too")
        found.outbox.end("more")
        eventually(lambda: b"fine too" in found.values())
        assert found.values(b"k") == [b"good"], "what comes later waits as well"


@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_a_retried_record_goes_before_all_that_waited_for_it(batch_size: int, eventually: Eventually) -> None:
    with scene("park", batch_size=batch_size) as found:
        eventually(lambda: found.exceeded.rows)
        found.strict.relents.set()
        found.exceeded.retry(22)
        eventually(lambda: found.outbox.count() == 0)
    assert found.values(b"k") == [b"good", b"bad", b"behind", b"last"]
    assert found.loop.progress.exceeded == 1


def test_a_discarded_record_lets_its_key_go_on_without_it(eventually: Eventually) -> None:
    with scene("park") as found:
        eventually(lambda: found.exceeded.rows)
        found.exceeded.discard(22)
        eventually(lambda: found.outbox.count() == 0)
    assert found.values(b"k") == [b"good", b"behind", b"last"]


def test_the_policy_skip_sets_the_record_aside_and_goes_on(eventually: Eventually) -> None:
    with scene("skip") as found:
        eventually(lambda: found.outbox.count() == 0)
    assert found.values(b"k") == [b"good", b"behind", b"last"]
    assert list(found.exceeded.rows) == [22]


def test_the_policy_block_keeps_everything_waiting_loudly_until_the_record_is_taken(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    with scene("block", batch_size=1) as found:
        eventually(lambda: found.strict.refusals > 4)
        assert found.values(b"k") == [b"good"]
        assert not found.exceeded.rows
        found.strict.relents.set()
        eventually(lambda: found.outbox.count() == 0)
    assert found.values(b"k") == [b"good", b"bad", b"behind", b"last"]
    assert any("relay.blocked" in record.getMessage() for record in caplog.records)


def test_an_owner_that_dies_after_deciding_leaves_the_move_to_its_successor(eventually: Eventually) -> None:
    """The marker is committed and the row not yet moved: the next owner reads the decision and carries it out."""
    outbox, broker = MemoryOutbox(), MemoryBroker()
    exceeded = MemoryExceeded(outbox)
    id = outbox.insert("t", "t", b"k", b"bad")
    outbox.insert("t", "t", b"k", b"behind")
    outbox.end("t")
    dead = MemoryShardLog(broker)
    dead.take_over()
    dead.publish((), Marker((), 0, Exceeding(id, 5, "RECORD-001", "too large", parks=True)).encode())
    stop = threading.Event()
    loop = RelayLoop(outbox, exceeded, MemoryShardLog(broker), NoLease(), batch_size=5, stop=stop, pace=HASTE)
    thread = threading.Thread(target=loop.run)
    thread.start()
    eventually(lambda: exceeded.rows)
    outbox.insert("u", "t", b"other", b"fine")
    outbox.end("u")
    eventually(lambda: len(broker.records) == 1)
    stop.set()
    thread.join()
    assert [row.value for row in broker.records] == [b"fine"]
    assert outbox.count() == 1
