"""A relay whose every effect may fail, on either side of taking place, still publishes each row once and in order.

Real loops run against an outbox and a broker in memory. Faults come from a seed: a commit whose answer is lost, done or
not; a read or purge that fails before or after it took effect; an owner that dies and leaves its successor to find out.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from inorder.model.errors import FencedError, RejectedError, TransientError, UnknownOutcomeError, UnreachableError
from inorder.ports.outbox_store import OutboxRow, Scan
from inorder.relay.leadership import NoLease
from inorder.relay.loop import Pace, RelayLoop
from inorder.testing.checker import check_delivery
from inorder.testing.memory_log import MemoryBroker, MemoryShardLog
from inorder.testing.memory_outbox import MemoryOutbox
from tests.conftest import Eventually

HASTE = Pace(poll=0.002, brief_poll=0.002, lease=0.002, back_off=0.001)
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
    RelayLoop(store, log, Patient(), batch_size=7, stop=stop, pace=HASTE).run()


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
    loop = RelayLoop(outbox, MemoryShardLog(broker), NoLease(), batch_size=5, stop=stop, pace=HASTE)
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
    """A broker that refuses one value until it is told to relent."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.relents = threading.Event()
        self.refusals = 0

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        if not self.relents.is_set() and any(row.value == b"bad" for row in rows):
            self.refusals += 1
            raise RejectedError("The value is refused.")
        super().publish(rows, marker)


def test_a_refused_record_keeps_its_place_and_blocks_loudly_until_it_is_taken(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    outbox, broker, stop = MemoryOutbox(), MemoryBroker(), threading.Event()
    strict = Strict(broker)
    for value in (b"good", b"bad", b"behind"):
        outbox.insert("t", "t", b"k", value)
    outbox.end("t")
    pace = replace(HASTE, blocked=0.002)
    loop = RelayLoop(outbox, strict, NoLease(), batch_size=1, stop=stop, max_attempts=3, pace=pace)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        eventually(lambda: strict.refusals > 3)
        assert [row.value for row in broker.records] == [b"good"]
        assert "The value is refused." in loop.progress.last_error
        strict.relents.set()
        eventually(lambda: outbox.count() == 0)
    finally:
        stop.set()
        thread.join()
    assert [row.value for row in broker.records] == [b"good", b"bad", b"behind"]
    levels = [record.levelname for record in caplog.records if "refused." in record.getMessage()]
    assert levels[:3] == ["WARNING", "WARNING", "ERROR"]
