"""A polling relay whose every effect may fail, on either side of taking place, publishes each row once and in order.

Real loops run against tables and a broker in memory. Faults come from a seed: a commit whose answer is lost, done or
not; a read that fails; a settlement that is refused, or done without an answer; an owner that dies and leaves its
successor to find out. After every settlement the offset must not have passed an id that is neither delivered nor
recorded.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from inorder.model.breaker import BreakerOptions
from inorder.model.errors import UnreachableError
from inorder.model.message import OutboxRow
from inorder.relay.polling import PollingLoop, PollingOptions, PollingTables
from inorder.relay.stores.ports import Key, MissingEvent, PollingState, Settlement
from inorder.testing.checker import Verdict, check_delivery
from tests.conftest import Eventually
from tests.fakes.log import MemoryBroker
from tests.fakes.outbox import MemoryOutbox
from tests.fakes.polling import MemoryPollingStore, MemoryPollingTables
from tests.selection import few
from tests.unit.relay.test_simulation import FAULT_RATE, HASTE, Faulty, FaultyLog, FaultyOutbox, Partial, Patient, write

BRISK = replace(HASTE, check=0.002)
OPTIONS = PollingOptions(
    batch_size=7,
    missing_batch_size=3,
    queue_wait=0.001,
    missing_wait=0.01,
    redelivery_delay=0.001,
    breaker=BreakerOptions(threshold=3, open_seconds=0.003, half_open_attempts=2),
)


class FaultyStore:
    """A store whose connection breaks now and then, before or after the statement took effect."""

    def __init__(self, tables: MemoryPollingTables, broker: MemoryBroker, chance: random.Random) -> None:
        self._store = MemoryPollingStore(tables)
        self._tables = tables
        self._broker = broker
        self._chance = chance

    def check(self) -> None:
        self._store.check()

    def offset(self) -> int:
        self._maybe_break()
        return self._store.offset()

    def missing(self, above: int, limit: int) -> list[MissingEvent]:
        self._maybe_break()
        return self._store.missing(above, limit)

    def parked(self) -> Mapping[Key, tuple[int, ...]]:
        self._maybe_break()
        return self._store.parked()

    def settle(self, settlement: Settlement) -> None:
        self._maybe_break()
        with self._tables.lock:
            self._store.settle(settlement)
            assert_nothing_is_forgotten(self._tables, self._broker)
        self._maybe_break()

    def state(self) -> PollingState:
        return self._store.state()

    def close(self) -> None:
        self._store.close()

    def _maybe_break(self) -> None:
        if self._chance.random() < FAULT_RATE:
            raise UnreachableError("The connection broke.")


def assert_nothing_is_forgotten(tables: MemoryPollingTables, broker: MemoryBroker) -> None:
    """Every visible row that the offset has passed is delivered or recorded; one that may still come is recorded."""
    delivered = {row.id for row in list(broker.records)}
    recorded = tables.missing.keys() | tables.exceeded.keys()
    passed = {row.id for row in tables.rows() if row.id <= tables.offset}
    assert not (forgotten := passed - delivered - recorded), forgotten
    assert not (open_ids := {id for id in tables.outbox.open_ids() if id <= tables.offset} - recorded), open_ids


class Paced(MemoryOutbox):
    """Writers that give the relays time to read between their transactions."""

    def end(self, transaction: str, *, commit: bool = True) -> None:
        super().end(transaction, commit=commit)
        threading.Event().wait(0.001)


@dataclass(frozen=True)
class Setting:
    """How many loops work at once, with which log."""

    kind: Faulty
    loops: int = 1
    options: PollingOptions = OPTIONS

    def run(self, tables: MemoryPollingTables, broker: MemoryBroker, seed: int, stop: threading.Event) -> None:
        chance = random.Random(seed)
        outbox = FaultyOutbox(tables.outbox, chance)
        mine = PollingTables(outbox, outbox, FaultyStore(tables, broker, chance))
        options = replace(self.options, stop=stop, pace=BRISK)
        PollingLoop(mine, self.kind(broker, chance), Patient(), options).run()


def simulate(setting: Setting, seed: int, eventually: Eventually) -> Verdict:
    """What became of the rows of 150 transactions."""
    broker, stop = MemoryBroker(list[OutboxRow]()), threading.Event()
    tables = MemoryPollingTables(MemoryOutbox())
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            setting.run(tables, broker, 100 * seed + number, stop)
        except BaseException as error:  # noqa: BLE001 - the test's thread reports it
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(setting.loops)]
    for thread in threads:
        thread.start()
    committed = write(Paced(beside=tables.outbox), seed, 150)
    try:
        eventually(lambda: failures or (is_done(tables) and len(broker.records) >= len(committed)))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    return check_delivery(committed, [(row.key, int(row.value or b"0")) for row in broker.records])


def is_done(tables: MemoryPollingTables) -> bool:
    with tables.lock:
        rows: Sequence[OutboxRow] = tables.rows()
        return not tables.missing and bool(rows) and tables.offset >= rows[-1].id


@pytest.mark.parametrize("seed", few(range(8), 0, 1))
@pytest.mark.parametrize("loops", [1, 3])
def test_each_row_is_published_once_and_in_order_whatever_fails(seed: int, loops: int, eventually: Eventually) -> None:
    verdict = simulate(Setting(FaultyLog, loops), seed, eventually)
    assert verdict.holds, verdict


@pytest.mark.parametrize("seed", few(range(6), 0, 1))
@pytest.mark.parametrize("loops", [1, 2])
def test_rows_too_large_for_one_batch_are_delivered_once_and_in_order(
    loops: int, seed: int, eventually: Eventually
) -> None:
    """Keys and values have three to five bytes, so that every page ends after one to three rows."""
    verdict = simulate(Setting(FaultyLog, loops, replace(OPTIONS, batch_bytes=9)), seed, eventually)
    assert verdict.holds, verdict


@pytest.mark.parametrize("seed", few(range(8), 0, 1))
@pytest.mark.parametrize("loops", [1, 3])
def test_without_transactions_rows_may_repeat_and_none_is_lost_or_overtaken(
    seed: int, loops: int, eventually: Eventually
) -> None:
    """Also where the lease failed and three work at once: the first copy of each row comes in order."""
    verdict = simulate(Setting(Partial, loops), seed, eventually)
    assert replace(verdict, duplicated=0).holds, verdict


@pytest.mark.parametrize("seed", few(range(4), 0))
def test_without_an_order_to_keep_nothing_is_lost_or_doubled_either(seed: int, eventually: Eventually) -> None:
    verdict = simulate(Setting(FaultyLog, 2, replace(OPTIONS, keep_order=False)), seed, eventually)
    assert replace(verdict, out_of_order=0).holds, verdict
