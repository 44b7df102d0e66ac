"""Waiting for the store: a notice only says when to ask, and what the store answers decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.reading.reader import StoreWait, wait_seconds
from inorder.journal.stores.kafka_notices import Waiters
from inorder.model.deadline import Deadline
from inorder.model.partitioning import Place
from inorder.testing.memory_journal import MemoryJournalStore

PLACE: Place = ("journal", 0)


@dataclass
class Clock:
    """A clock that advances only while a caller waits."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Script:
    """Notices to come: after so many seconds of waiting something happens, and the waiter is woken."""

    clock: Clock
    steps: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    is_worth_it: bool = True
    vain: list[tuple[Place, int]] = field(default_factory=list)
    listening: int = 0

    @contextmanager
    def listen(self, place: Place, offset: int) -> Iterator[threading.Event | None]:
        assert (place, offset) == (PLACE, 9)
        self.listening += 1
        yield Scripted(self) if self.is_worth_it else None
        self.listening -= 1

    def timed_out(self, place: Place, offset: int) -> None:
        self.vain.append((place, offset))


class Scripted(threading.Event):
    """An event that is set at a step of the script."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout > 0
        if self.is_set():
            return True
        after, act = self._script.steps[0] if self._script.steps else (float("inf"), lambda: None)
        if after > timeout:
            self._script.clock.now += timeout
            return False
        self._script.steps.pop(0)
        self._script.clock.now += after
        act()
        self.set()
        return True


class World:
    """A store, a clock and the notices."""

    def __init__(self, replicated: int | None = None, *, seconds: float = 0.5) -> None:
        self.clock = Clock()
        self.script = Script(self.clock)
        self.store = MemoryJournalStore()
        self.wait = StoreWait(self.store, self.script, self.clock, seconds=seconds)
        if replicated is not None:
            self.replicate(replicated)

    def replicate(self, offset: int) -> None:
        self.store.move_offset(*PLACE, offset)

    def at(self, seconds: float, offset: int | None) -> None:
        """A notice after so many seconds more, with the store at an offset; None leaves the store where it is."""
        self.script.steps.append((seconds, lambda: None if offset is None else self.replicate(offset)))

    def has_passed(self, timeout: float = 30.0) -> tuple[bool, float]:
        """Whether it has, and after how long."""
        began = self.clock()
        passed = self.wait.has_passed(PLACE, 9, Deadline(self.clock, timeout, "Reading"))
        assert self.script.listening == 0
        return passed, round(self.clock() - began, 3)


class TestTheStoreDecides:
    """What ends a wait, and when."""

    @pytest.mark.parametrize("replicated", [9, 10, 1000])
    def test_a_store_that_has_passed_is_not_waited_for(self, replicated: int) -> None:
        assert World(replicated).has_passed() == (True, 0)

    @pytest.mark.parametrize("replicated", [None, 0, 8])
    def test_it_ends_with_the_notice_after_which_the_store_has_passed(self, replicated: int | None) -> None:
        world = World(replicated)
        world.at(0.02, 9)
        assert world.has_passed() == (True, 0.02)
        assert world.script.vain == []

    def test_a_notice_that_lies_does_not_end_it(self) -> None:
        world = World(3)
        world.at(0.01, None)
        world.at(0.01, 8)
        world.at(0.01, 9)
        assert world.has_passed() == (True, 0.03)

    def test_lies_alone_end_in_time_and_in_vain(self) -> None:
        world = World(3)
        for _ in range(100):
            world.at(0.1, None)
        assert world.has_passed() == (False, 0.5)
        assert world.script.vain == [(PLACE, 9)]

    def test_without_notices_the_time_is_waited_and_the_store_asked_once_more(self) -> None:
        world = World(3)
        world.clock.now = 0.0
        asked: list[float] = []
        real = world.store.offset

        def offset(topic: str, partition: int) -> int | None:
            asked.append(world.clock())
            return 9 if len(asked) > 1 else real(topic, partition)

        world.store.offset = offset  # type: ignore[method-assign]  # the store of one test
        assert world.has_passed() == (True, 0.5)
        assert asked == [0.0, 0.5]
        assert world.script.vain == [(PLACE, 9)]

    def test_where_it_is_not_worth_it_nothing_is_asked(self) -> None:
        world = World(1000)
        world.script.is_worth_it = False
        assert world.has_passed() == (False, 0)
        assert world.script.vain == []

    def test_a_notice_between_question_and_sleep_is_not_missed(self) -> None:
        world = World(3)
        event = Scripted(world.script)
        event.set()  # a notice during the read of the store

        @contextmanager
        def listen(*_: object) -> Iterator[threading.Event]:
            yield event

        world.script.listen = listen  # type: ignore[assignment,method-assign]  # the script of one test
        replies = iter([3, 9])
        world.store.offset = lambda *_: next(replies)  # type: ignore[method-assign]  # the store of one test
        assert world.has_passed() == (True, 0)


class TestPatience:
    """Kafka must still be read within the time of the read."""

    @pytest.mark.parametrize(("timeout", "waited"), [(30.0, 0.5), (1.0, 0.5), (0.8, 0.4), (0.2, 0.1)])
    def test_it_is_half_of_what_is_left_at_most(self, timeout: float, waited: float) -> None:
        assert World(3).has_passed(timeout) == (False, waited)

    @given(st.floats(0, 100), st.floats(0.001, 100))
    def test_something_is_always_left(self, seconds: float, remaining: float) -> None:
        assert 0 <= wait_seconds(seconds, remaining) <= min(seconds, remaining / 2)


class TestWaiters:
    """Which waiters a notice wakes, and when a place has no waiter left."""

    def test_those_are_woken_whose_offset_is_reached_each_time(self) -> None:
        waiters, woken = Waiters(), list[str]()
        for name, place, offset in (("a", PLACE, 5), ("b", PLACE, 7), ("c", ("journal", 1), 5)):
            waiters.add(place, offset, lambda name=name: woken.append(name))  # type: ignore[misc]  # mypy cannot infer the default
        waiters.notify(PLACE, 4)
        assert woken == []
        waiters.notify(PLACE, 5)
        waiters.notify(PLACE, 7)
        assert woken == ["a", "a", "b"]

    def test_one_that_has_left_is_not_woken(self) -> None:
        waiters, woken = Waiters(), list[str]()
        leave = waiters.add(PLACE, 5, lambda: woken.append("a"))
        waiters.add(PLACE, 5, lambda: woken.append("b"))
        leave()
        waiters.notify(PLACE, 5)
        waiters.wake_all()
        assert woken == ["b", "b"]

    def test_all_are_woken_where_a_notice_may_have_been_missed(self) -> None:
        waiters, woken = Waiters(), list[int]()
        for partition in range(3):
            waiters.add(("journal", partition), 10**9, lambda partition=partition: woken.append(partition))  # type: ignore[misc]  # mypy cannot infer the default
        waiters.wake_all()
        assert woken == [0, 1, 2]

    def test_one_may_leave_while_it_is_woken(self) -> None:
        waiters = Waiters()
        leaves = list[Callable[[], None]]()
        for _ in range(3):
            leaves.append(waiters.add(PLACE, 5, lambda: leaves.pop()()))
        waiters.notify(PLACE, 5)
        assert leaves == []

    @pytest.mark.parametrize(
        ("vain", "notices", "offset", "is_worth_it"),
        [
            (None, [], 5, True),
            (5, [], 5, False),
            (5, [], 6, False),
            (5, [4, 3], 6, False),
            (5, [5], 6, True),
            (5, [9], 10, True),
            (5, [9, 1], 10, True),
            (5, [], 4, True),  # the topic was made anew, and its offsets begin again
        ],
    )
    def test_nobody_waits_after_a_wait_in_vain_until_a_notice_gets_there(
        self, vain: int | None, notices: list[int], offset: int, is_worth_it: bool
    ) -> None:
        waiters = Waiters()
        if vain is not None:
            waiters.timed_out(PLACE, vain)
        for told in notices:
            waiters.notify(PLACE, told)
        assert waiters.is_worth_it(PLACE, offset) is is_worth_it
        assert waiters.is_worth_it(("journal", 1), offset)


@given(st.lists(st.tuples(st.sampled_from(["told", "vain"]), st.integers(0, 1), st.integers(0, 20)), max_size=40))
def test_it_is_worth_it_unless_the_last_wait_in_vain_was_not_reached_since(steps: list[tuple[str, int, int]]) -> None:
    waiters, woken = Waiters(), list[int]()
    waiters.add(("journal", 0), 10, lambda: woken.append(10))
    for step, partition, offset in steps:
        (waiters.notify if step == "told" else waiters.timed_out)(("journal", partition), offset)
    for partition in (0, 1):
        own = [(step, offset) for step, number, offset in steps if number == partition]
        last = max((index for index, (step, _) in enumerate(own) if step == "vain"), default=None)
        for offset in range(22):
            expected = (
                last is None
                or offset < own[last][1]
                or any(told >= own[last][1] for step, told in own[last:] if step == "told")
            )
            assert waiters.is_worth_it(("journal", partition), offset) is expected
    assert len(woken) == sum(step == "told" and number == 0 and offset >= 10 for step, number, offset in steps)
