"""The thread of the head cache: it follows the log and the store, and never blocks a reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from inorder.journal.action import Action
from inorder.journal.reading import head_cache
from inorder.journal.reading.head import EMPTY, HeadInfo, keep
from inorder.journal.reading.head_cache import Ahead, HeadCache, HeadCacheLimits, Known
from inorder.journal.stores.ports import LogRecord
from inorder.model.deadline import Deadline
from inorder.model.errors import ConfigurationError, TransientError, UnreachableError
from inorder.model.journal import Key
from inorder.testing.memory_journal import MemoryJournalLog, MemoryJournalStore, MemoryTail
from tests.conftest import Eventually
from tests.unit.journal.hearing import Heard
from tests.unit.journal.world import KEY, World

QUICK = HeadCacheLimits(wait=5.0, remove_interval=0.005)


class BreakingLog(MemoryJournalLog):
    """A log whose tail fails the given number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks = 0
        self.error: BaseException = UnreachableError("The broker is gone.")
        self.is_stuck = False
        self.starts: list[Mapping[int, int]] = []

    def tail(self, topic: str) -> MemoryTail:
        return BreakingTail(self, topic)


class BreakingTail(MemoryTail):
    def __init__(self, log: BreakingLog, topic: str) -> None:
        super().__init__(log, topic, 1, log._changed)
        self._breaking = log

    def start(self, offsets: Mapping[int, int]) -> None:
        self._breaking.starts.append(offsets)
        super().start(offsets)

    def poll(self, timeout_seconds: float) -> Mapping[int, Sequence[LogRecord]]:
        if self._breaking.breaks:
            self._breaking.breaks -= 1
            raise self._breaking.error
        return {} if self._breaking.is_stuck else super().poll(timeout_seconds)


class Place:
    """A world whose reader has a real head cache."""

    def __init__(self, limits: HeadCacheLimits = QUICK) -> None:
        self.log = BreakingLog()
        self.store = MemoryJournalStore()
        self.heard = Heard()
        self.heads = HeadCache(self.log, self.store, time.monotonic, limits, self.heard)
        self.world = World(heads=self.heads, store=self.store, log=self.log)

    def find(self, offset: int, key: Key = KEY) -> Ahead | Known | None:
        return self.heads.find(key, 0, offset, Deadline(time.monotonic, 10, "test"))


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.heads.close()


def test_appends_are_known(place: Place) -> None:
    for seq_nr in range(1, 12):
        place.world.append(seq_nr)
    answer = place.find(10)
    assert isinstance(answer, Known)
    assert [each.offset for each in answer.info.actions] == list(range(11))
    assert place.world.read() == list(range(1, 12))
    # One look at the log for the events; none for the head.
    assert len(place.log.windows) == 1


def test_what_is_replicated_needs_no_log(place: Place, eventually: Eventually) -> None:
    place.world.append(1)
    place.world.replicate()
    assert place.find(0) == Ahead()
    place.world.append(2)
    assert isinstance(place.find(1), Known)
    place.world.replicate()
    eventually(lambda: place.find(1) == Ahead())


def test_a_question_waits_for_its_record(place: Place) -> None:
    place.world.append(1)
    assert isinstance(place.find(0), Known)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(place.find, 2, Key("another", KEY.topic))
        place.world.append(2)
        place.world.journal.mark()
        assert answer.result(10) == Known(EMPTY, 2, None)


def test_one_that_is_far_behind_is_not_waited_for(eventually: Eventually) -> None:
    place = Place(HeadCacheLimits(wait=600, far=10, remove_interval=0.005))
    place.log.is_stuck = True
    for seq_nr in range(1, 31):
        place.world.append(seq_nr)
    assert place.find(29) is None
    assert place.world.read() == list(range(1, 31))
    place.log.is_stuck = False
    assert isinstance(eventually(lambda: place.find(29)), Known)
    place.heads.close()


def test_a_broken_consumer_is_replaced_and_goes_on_where_it_was(place: Place, eventually: Eventually) -> None:
    place.world.append(1)
    assert isinstance(place.find(0), Known)
    place.log.breaks = 3
    place.world.append(2)
    eventually(lambda: len(place.log.starts) >= 4)
    answer = eventually(lambda: place.find(1))
    assert isinstance(answer, Known)
    assert [each.offset for each in answer.info.actions] == list(range(2))
    assert place.log.starts[-1] in ({0: 1}, {0: 2})


def restarts(place: Place, cause: str) -> int:
    return place.heard.numbers["head_cache_restarts", KEY.topic, cause]


@pytest.mark.parametrize(
    "error", [RuntimeError("a fault"), ConfigurationError("No rights."), RecursionError()], ids=repr
)
def test_any_other_error_starts_the_thread_again_and_is_counted(
    place: Place, error: Exception, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    place.world.append(1)
    assert isinstance(place.find(0), Known)
    place.log.error, place.log.breaks = error, 3
    place.world.append(2)
    eventually(lambda: len(place.log.starts) >= 4)
    answer = eventually(lambda: place.find(1))
    assert isinstance(answer, Known)
    assert [each.offset for each in answer.info.actions] == list(range(2))
    assert (restarts(place, "unexpected"), restarts(place, "expected")) == (3, 0)
    logged = [record for record in caplog.records if record.message == "journal.head_cache_restarts"]
    assert [record.exc_info is not None for record in logged] == [True], "the same error is logged once"


def test_a_broken_consumer_is_counted_as_expected(place: Place, eventually: Eventually) -> None:
    place.world.append(1)
    assert isinstance(place.find(0), Known)
    place.log.breaks = 2
    eventually(lambda: restarts(place, "expected") == 2)
    assert restarts(place, "unexpected") == 0


def test_readers_that_wait_when_it_fails_are_sent_to_the_log(eventually: Eventually) -> None:
    place = Place(HeadCacheLimits(wait=600.0, remove_interval=0.005))
    place.world.append(1)
    assert isinstance(place.find(0), Known)
    with ThreadPoolExecutor(1) as pool, closing(place.heads):
        waiting = pool.submit(place.heads.find, KEY, 0, 100, Deadline(time.monotonic, 600, "test"))
        eventually(lambda: place.heads._topics[KEY.topic]._pending)
        place.log.error, place.log.breaks = RuntimeError("a fault"), 1
        assert waiting.result(60) is None


def test_a_step_that_fails_midway_leaves_no_half_of_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """The record at which it failed must not count as seen: a journal that is known without it would lack an event."""
    failing = [True]

    def fail_once(head: HeadInfo, action: Action, offset: int, replicated: int = -1) -> HeadInfo:
        if offset == 1 and failing:
            failing.clear()
            raise RuntimeError("a fault")
        return keep(head, action, offset, replicated)

    place.world.append(1)
    assert isinstance(place.find(0), Known)
    monkeypatch.setattr(head_cache, "keep", fail_once)
    place.world.append(2)
    eventually(lambda: restarts(place, "unexpected") == 1)
    answer = eventually(lambda: place.find(1))
    assert isinstance(answer, Known)
    assert [each.offset for each in answer.info.actions] == list(range(2))


def test_a_thread_that_ends_all_the_same_is_replaced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: ended.set())
    place.world.append(1)
    assert isinstance(place.find(0), Known)
    place.log.error, place.log.breaks = SystemExit(), 1
    assert ended.wait(60)
    assert place.heads._topics[KEY.topic].is_over
    assert isinstance(place.find(0), Known)


def test_a_late_record_is_a_miss_and_the_log_is_read(place: Place) -> None:
    slow = Place(HeadCacheLimits(wait=0.01))
    slow.world.append(1)
    assert slow.find(5) is None
    assert slow.world.read() == [1]
    slow.heads.close()


def test_records_lost_to_retention_are_a_miss() -> None:
    lost = Place(HeadCacheLimits(wait=0.05))
    lost.world.append(1)
    lost.log.forget(KEY.topic, 0, 1)
    assert lost.find(0) is None
    lost.heads.close()


def test_a_damaged_record_does_no_harm_to_other_journals(place: Place) -> None:
    place.world.append(1)
    record = place.log.records_between(KEY.topic, 0, 0, 1)[0]
    place.log._records[KEY.topic, 0].append(record._replace(offset=1, headers=(("journal.action", b"{"),)))
    place.world.journal.mark()
    answer = place.find(2)
    assert isinstance(answer, Known)
    assert answer.info.lacks == 1
    assert place.find(2, Key("another", KEY.topic)) == Known(EMPTY, 2, None)


def test_a_topic_that_nobody_asks_for_is_left(eventually: Eventually) -> None:
    place = Place(HeadCacheLimits(wait=5.0, remove_interval=0.005, expiry=0.05))
    place.world.append(1)
    assert isinstance(place.find(0), Known)
    eventually(lambda: place.heads._topics[KEY.topic].is_over)
    assert isinstance(place.find(0), Known)
    place.heads.close()


def test_a_reader_that_waits_when_the_topic_is_left_is_sent_to_the_log(eventually: Eventually) -> None:
    place = Place(HeadCacheLimits(wait=30.0, remove_interval=0.005, expiry=0.05))
    place.world.append(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(place.find, 100)
        assert waiting.result(20) is None
    place.heads.close()


def test_a_closed_cache_answers_nobody_and_leaves_nobody_waiting(eventually: Eventually) -> None:
    place = Place(HeadCacheLimits(wait=30.0, remove_interval=0.005))
    place.world.append(1)
    assert isinstance(place.find(0), Known)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(place.find, 100)
        eventually(lambda: place.heads._topics[KEY.topic]._pending)
        place.heads.close()
        with pytest.raises(TransientError, match="closed"):
            waiting.result(10)
    with pytest.raises(TransientError, match="closed"):
        place.find(0)
