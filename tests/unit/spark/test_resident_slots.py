"""When Spark's slots are distributed again: once there are more for some seconds, or fewer for longer."""

from __future__ import annotations

from dataclasses import dataclass

from inorder.engines.resident import GROWN_SECONDS, LOST_SECONDS, SlotWatch
from inorder.engines.session import EXECUTORS_MISSING_SECONDS, ExecutorWatch


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_same_room_and_more_than_can_be_used_change_nothing() -> None:
    slots = SlotWatch(4, 4)
    assert not slots.has_changed(4)
    assert not slots.has_changed(16)


def test_more_room_that_is_of_use_is_used_when_it_has_lasted() -> None:
    clock = Clock()
    slots = SlotWatch(2, 4, clock)
    assert not slots.has_changed(3)
    clock.now = GROWN_SECONDS - 1
    assert not slots.has_changed(4), "executors of a cluster that grows come one by one"
    clock.now = GROWN_SECONDS
    assert slots.has_changed(4)


def test_room_that_comes_and_goes_restarts_no_task() -> None:
    clock = Clock()
    slots = SlotWatch(2, 4, clock)
    for _ in range(10):
        assert not slots.has_changed(3)
        clock.now += GROWN_SECONDS / 2
        assert not slots.has_changed(2)
        clock.now += GROWN_SECONDS / 2
        assert not slots.has_changed(1)
        clock.now += GROWN_SECONDS / 2


def test_less_room_is_believed_when_it_has_lasted() -> None:
    clock = Clock()
    slots = SlotWatch(2, 4, clock)
    assert not slots.has_changed(1)
    clock.now = LOST_SECONDS - 1
    assert not slots.has_changed(1)
    clock.now = LOST_SECONDS
    assert slots.has_changed(1)


def test_an_executor_that_was_replaced_is_not_held_against_the_next() -> None:
    clock = Clock()
    slots = SlotWatch(2, 4, clock)
    assert not slots.has_changed(1)
    clock.now = LOST_SECONDS - 1
    assert not slots.has_changed(2)
    clock.now = LOST_SECONDS + 1
    assert not slots.has_changed(1), "another one, lost just now"
    clock.now = 2 * LOST_SECONDS + 1
    assert slots.has_changed(1)


def test_missing_executors_are_reported_once_and_so_is_their_return() -> None:
    clock = Clock()
    watch = ExecutorWatch(clock)
    assert [watch.look(0), watch.look(2)] == [None, None], "a cluster takes a moment"
    assert watch.look(0) is None
    clock.now = EXECUTORS_MISSING_SECONDS
    assert [watch.look(0), watch.look(0)] == ["missing", None]
    assert [watch.look(1), watch.look(1)] == ["found", None]
