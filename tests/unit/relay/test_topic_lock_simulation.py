"""Workers whose every effect may fail, whose locks are stolen and who die still lose nothing and let nothing overtake.

Real workers run against tables and a broker in memory. Faults come from a seed: an answer of the database that is lost,
with the statement done or not; a batch of which a part arrives; a worker that dies on the spot and leaves its lock; and
a thread that makes locks old, so that two workers believe that they have one topic.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import pytest

from inorder.model.errors import UnreachableError
from inorder.relay.stores.ports import LAST_ID, Page, TopicBacklog
from inorder.relay.topic_lock import IdlePause, TopicWorker
from inorder.relay.topic_lock_batch import TopicLockOptions
from inorder.testing.checker import Verdict, check_delivery
from tests.conftest import Eventually
from tests.fakes.log import MemoryBroker
from tests.fakes.topics import MemoryTopicStore, MemoryTopicTables
from tests.selection import few
from tests.unit.relay.test_simulation import Partial
from tests.unit.relay.topics import HASTE

T = TypeVar("T")

FAULT_RATE = 0.05
DEATH_RATE = 0.01
STALE_SECONDS = 0.05
TOPICS = ("a", "b", "c")
OPTIONS = TopicLockOptions(batch_size=5, delete_group_size=2, lock_seconds=STALE_SECONDS, pace=HASTE)


class Died(BaseException):
    """A worker ends without a last word."""


class FaultyTopicStore:
    """A store whose connection breaks before or after a statement took effect, and in which workers die."""

    def __init__(self, tables: MemoryTopicTables, chance: random.Random) -> None:
        self._store = MemoryTopicStore(tables, stale_seconds=STALE_SECONDS)
        self._chance = chance

    def check(self) -> None: ...

    def topics(self) -> list[str]:
        return self._broken(self._store.topics)

    def lock(self, topic: str, worker: UUID) -> bool:
        return self._broken(lambda: self._store.lock(topic, worker))

    def read(self, topic: str, limit: int, max_bytes: int = LAST_ID) -> Page:
        return self._broken(lambda: self._store.read(topic, limit, max_bytes))

    def stamp(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
        return self._broken(lambda: self._store.stamp(topic, worker, session, ids))

    def delete(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int], group_size: int) -> int:
        return self._broken(lambda: self._store.delete(topic, worker, session, ids, group_size))

    def heartbeat(self, topic: str, worker: UUID) -> bool:
        if self._chance.random() < FAULT_RATE:
            raise UnreachableError("The connection broke.")
        return self._store.heartbeat(topic, worker)

    def unlock(self, topic: str, worker: UUID) -> None:
        self._broken(lambda: self._store.unlock(topic, worker))

    def fail(self, topic: str, worker: UUID) -> None:
        self._broken(lambda: self._store.fail(topic, worker))

    def touch_empty(self, except_topics: Collection[str]) -> None:
        self._broken(lambda: self._store.touch_empty(except_topics))

    def pending(self) -> list[TopicBacklog]:
        return self._store.pending()

    def close(self) -> None: ...

    def _broken(self, call: Callable[[], T]) -> T:
        self._maybe_break()
        result = call()
        self._maybe_break()
        return result

    def _maybe_break(self) -> None:
        fate = self._chance.random()
        if fate < DEATH_RATE:
            raise Died
        if fate < FAULT_RATE:
            raise UnreachableError("The connection broke.")


def keep_working(tables: MemoryTopicTables, broker: MemoryBroker, seed: int, stop: threading.Event) -> None:
    """One worker after the other, each with a new id."""
    chance = random.Random(seed)
    rest = IdlePause(tables, stop=stop, idle_seconds=0.002)
    while not stop.is_set():
        store, log_of = FaultyTopicStore(tables, chance), dict.fromkeys(TOPICS, Partial(broker, chance)).__getitem__
        worker = TopicWorker(store, tables, log_of, rest, replace(OPTIONS, stop=stop))
        try:
            worker.run()
        except Died:
            continue
        finally:
            worker.close()


def age_locks(tables: MemoryTopicTables, seed: int, stop: threading.Event) -> None:
    """Makes a lock stale now and then, whichever worker has it."""
    chance = random.Random(seed)
    while not stop.wait(0.003):
        with tables.changed:
            row = tables.locks.get(chance.choice(TOPICS))
            if row is not None and row.locked_at is not None:
                long_ago = row.locked_at.replace(year=2000)
                tables.locks[row.topic] = replace(row, locked_at=long_ago)


def simulate(seed: int, workers: int, *, steals: bool, eventually: Eventually) -> Verdict:
    tables, broker, stop = MemoryTopicTables(), MemoryBroker(), threading.Event()
    threads = [
        threading.Thread(target=keep_working, args=(tables, broker, 100 * seed + number, stop))
        for number in range(workers)
    ]
    if steals:
        threads.append(threading.Thread(target=age_locks, args=(tables, seed, stop)))
    for thread in threads:
        thread.start()
    committed: list[tuple[tuple[str, bytes], int]] = []
    chance = random.Random(seed)
    for place in range(1, 41):
        for topic in TOPICS:
            for key in (b"x", b"y"):
                tables.insert(topic, key, b"%d" % place)
                committed.append(((topic, key), place))
        stop.wait(chance.uniform(0, 0.004))
    try:
        eventually(lambda: not tables.rows)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    sent = [((row.topic, row.key or b""), int(row.value or b"0")) for row in broker.records]
    return check_delivery(committed, sent)


@pytest.mark.parametrize("seed", few(range(5), 0))
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("steals", [False, True])
def test_nothing_is_lost_or_overtaken_whatever_fails(
    seed: int, workers: int, steals: bool, eventually: Eventually
) -> None:
    verdict = simulate(seed, workers, steals=steals, eventually=eventually)
    assert replace(verdict, duplicated=0).holds, verdict
