"""Which task reads which partitions while tasks come and go; no more moves than needed, and none is left alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.placement import (
    AWAY_SECONDS,
    GROWN_SECONDS,
    LOST_SECONDS,
    RELEASE_SECONDS,
    START_SECONDS,
    WAITING_TASKS,
    Assignment,
    CountWatch,
    TaskPlacement,
    count_tasks,
    give,
    share_out,
    take,
)
from inorder.engines.session import EXECUTORS_MISSING_SECONDS, ExecutorWatch
from inorder.model.partitioning import Place
from tests.selection import examples


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def places(*numbers: int) -> tuple[Place, ...]:
    return tuple(("orders", number) for number in numbers)


class Tasks:
    """Tasks that do what they are told, at once."""

    def __init__(self, shares: int, partitions: int) -> None:
        self.clock = Clock()
        self.placement = TaskPlacement(share_out(places(*range(partitions)), shares), self.clock)
        self.read: dict[int, tuple[Place, ...]] = {}
        self.told: list[int] = []

    def join(self, *tasks: int) -> None:
        for task in tasks:
            self._take(task, self.placement.join(task))

    def leave(self, *tasks: int) -> None:
        for task in tasks:
            del self.read[task]
            self.placement.leave(task)

    def settle(self, seconds: float = 0.0) -> None:
        """Lets some seconds pass, and partitions move until nothing does any more."""
        self.clock.now += seconds
        self.told = []
        while moved := self.placement.decide():
            for task, assignment in moved.items():
                self.told.append(task)
                self._take(task, assignment)

    def _take(self, task: int, assignment: Assignment) -> None:
        self.read[task] = assignment.places
        self.placement.follows(task, assignment.number)


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 20)), st.integers(1, 12))
def test_every_partition_has_one_task_no_task_is_idle_and_shares_are_even(topics: dict[str, int], tasks: int) -> None:
    found = [(topic, number) for topic, count in topics.items() for number in range(count)]
    shares = share_out(found, tasks)
    assert sorted(place for share in shares for place in share) == sorted(found)
    assert len(shares) == min(tasks, len(found))
    sizes = [len(share) for share in shares]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert all(sizes)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
@examples(200)
def test_shares_become_even_with_the_fewest_moves(sizes: list[int]) -> None:
    numbers = iter(range(100))
    shares = {task: places(*(next(numbers) for _ in range(size))) for task, size in enumerate(sizes)}
    kept = take(shares)
    moved = [place for task in shares for place in shares[task] if place not in kept[task]]
    even = give(kept, moved)
    assert sorted(place for share in even.values() for place in share) == sorted(sum(shares.values(), ()))
    assert max(map(len, even.values())) - min(map(len, even.values())) <= 1
    least, more = divmod(sum(sizes), len(sizes))
    bounds = [least + 1] * more + [least] * (len(sizes) - more)
    assert len(moved) == sum(max(0, size - bound) for size, bound in zip(sorted(sizes)[::-1], bounds, strict=True))


def test_a_task_that_is_replaced_soon_keeps_its_partitions_and_disturbs_no_other() -> None:
    tasks = Tasks(2, 4)
    tasks.join(0, 1)
    tasks.leave(1)
    tasks.settle(AWAY_SECONDS - 0.1)
    tasks.join(1)
    tasks.settle(3_600)
    assert (tasks.read, tasks.told) == ({0: places(0, 2), 1: places(1, 3)}, [])


def test_partitions_of_a_lost_task_are_with_the_others_within_three_seconds() -> None:
    assert AWAY_SECONDS < 3
    tasks = Tasks(3, 6)
    tasks.join(0, 1, 2)
    tasks.leave(1)
    tasks.settle(AWAY_SECONDS)
    assert tasks.read == {0: places(0, 3, 1), 2: places(2, 5, 4)}


def test_a_pause_before_a_restart_keeps_the_partitions_of_a_task_with_it() -> None:
    tasks = Tasks(2, 2)
    tasks.join(0, 1)
    tasks.leave(1)
    tasks.placement.wait_for(1, 5.0)
    tasks.settle(5 + AWAY_SECONDS - 0.1)
    assert tasks.read == {0: places(0)}
    tasks.settle(0.1)
    assert tasks.read == {0: places(0, 1)}


def test_while_no_task_runs_nothing_is_decided() -> None:
    tasks = Tasks(2, 2)
    tasks.settle(3_600)
    tasks.join(0, 1)
    assert tasks.read == {0: places(0), 1: places(1)}


def test_a_task_that_does_not_start_is_not_waited_for_longer_than_a_start_takes() -> None:
    tasks = Tasks(2, 2)
    tasks.join(0)
    tasks.settle(START_SECONDS - 0.1)
    assert tasks.read == {0: places(0)}
    tasks.settle(0.1)
    assert tasks.read == {0: places(0, 1)}


def test_newcomers_get_partitions_when_the_last_of_them_is_there_for_a_while() -> None:
    tasks = Tasks(1, 6)
    tasks.join(0)
    tasks.settle(100)
    tasks.join(1)
    tasks.settle(GROWN_SECONDS - 1)
    tasks.join(2)
    tasks.settle(GROWN_SECONDS - 1)
    assert tasks.told == [], "executors of a cluster that grows come one by one"
    tasks.settle(1)
    assert tasks.read == {0: places(0, 1), 1: places(2, 4), 2: places(3, 5)}


def test_only_tasks_that_give_or_get_are_told() -> None:
    tasks = Tasks(2, 5)
    tasks.join(0, 1)
    tasks.join(2)
    tasks.settle(GROWN_SECONDS)
    assert set(tasks.told) == {0, 2}
    assert tasks.read[1] == places(1, 3)


def test_a_partition_begins_elsewhere_only_when_its_reader_has_said_that_it_stopped() -> None:
    clock = Clock()
    placement = TaskPlacement(share_out(places(0, 1), 1), clock)
    first = placement.join(0)
    placement.follows(0, first.number)
    placement.join(1)
    clock.now = GROWN_SECONDS
    [(task, less)] = placement.decide().items()
    assert (task, less.places) == (0, places(0))
    assert placement.decide() == {}, "it may still read"
    placement.follows(0, first.number)
    assert placement.decide() == {}, "that was the assignment before"
    placement.follows(0, less.number)
    assert {task: found.places for task, found in placement.decide().items()} == {1: places(1)}


def test_a_reader_that_hangs_in_a_slice_keeps_a_partition_for_some_seconds_only() -> None:
    clock = Clock()
    placement = TaskPlacement(share_out(places(0, 1), 1), clock)
    placement.join(0)
    placement.join(1)
    clock.now = GROWN_SECONDS
    assert list(placement.decide()) == [0]
    clock.now += RELEASE_SECONDS - 0.1
    assert placement.decide() == {}
    clock.now += 0.1
    assert {task: found.places for task, found in placement.decide().items()} == {1: places(1)}


def test_a_task_of_a_decommissioned_executor_is_asked_once_and_its_partitions_move_when_it_has_ended() -> None:
    tasks = Tasks(2, 4)
    tasks.join(0, 1)
    assert [tasks.placement.ask_to_leave(1), tasks.placement.ask_to_leave(1)] == [True, False]
    tasks.settle(1)
    assert tasks.read == {0: places(0, 2), 1: places(1, 3)}, "it ends its slice"
    tasks.leave(1)
    assert tasks.placement.is_leaving(1)
    tasks.settle()
    assert tasks.read == {0: places(0, 2, 1, 3)}
    tasks.join(1)
    assert not tasks.placement.is_leaving(1)
    tasks.settle(GROWN_SECONDS)
    assert tasks.read == {0: places(0, 2), 1: places(1, 3)}


def test_a_task_that_is_not_wanted_any_more_gives_its_partitions_away() -> None:
    tasks = Tasks(2, 2)
    tasks.join(0, 1)
    tasks.placement.retire(1)
    tasks.leave(1)
    tasks.settle()
    assert tasks.read == {0: places(0, 1)}


def test_partitions_that_are_stopped_or_done_are_given_to_nobody() -> None:
    tasks = Tasks(2, 4)
    tasks.join(0, 1)
    tasks.placement.drop(places(1, 0))
    tasks.leave(1)
    tasks.settle(AWAY_SECONDS)
    assert tasks.read == {0: places(2, 3)}
    tasks.placement.drop(places(2, 3))
    assert not tasks.placement.places


@given(st.integers(1, 30), st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.floats(0, 6)), max_size=30))
@examples(200)
def test_however_tasks_come_and_go_each_partition_has_one_reader_and_shares_become_even(
    partitions: int, events: list[tuple[bool, int, float]]
) -> None:
    tasks = Tasks(3, partitions)
    for comes, task, seconds in events:
        if comes:
            tasks.join(task)
        elif task in tasks.read:
            tasks.leave(task)
        tasks.settle(seconds)
        read = [place for share in tasks.read.values() for place in share]
        assert len(read) == len(set(read))
    tasks.join(0)
    tasks.settle(START_SECONDS)
    assert sorted(place for share in tasks.read.values() for place in share) == sorted(places(*range(partitions)))
    tasks.settle(GROWN_SECONDS)
    sizes = [len(share) for share in tasks.read.values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("partitions", "tasks", "slots", "may_wait", "expected"),
    [
        (8, None, 2, False, 2),
        (8, None, 2, True, 8),
        (1_000, None, 2, True, 2 + WAITING_TASKS),
        (1_000, None, 400, True, 400 + WAITING_TASKS),
        (8, 4, 2, True, 4),
        (8, 4, 2, False, 2),
        (8, 1, 2, False, 1),
        (2, 4, 8, True, 2),
        (3, None, 0, False, 1),
    ],
)
def test_how_many_tasks_run(partitions: int, tasks: int | None, slots: int, may_wait: bool, expected: int) -> None:
    assert count_tasks(partitions, tasks, slots, may_wait=may_wait) == expected


def test_more_tasks_are_wanted_when_that_has_lasted_and_fewer_when_it_has_lasted_longer() -> None:
    clock = Clock()
    watch = CountWatch(2, clock)
    assert not watch.look(2)
    assert not watch.look(3)
    clock.now = GROWN_SECONDS - 1
    assert not watch.look(4)
    clock.now = GROWN_SECONDS
    assert watch.look(4)
    assert watch.count == 4
    assert not watch.look(4)
    assert not watch.look(3)
    clock.now += LOST_SECONDS - 1
    assert not watch.look(3)
    clock.now += 1
    assert watch.look(3)


def test_slots_that_come_and_go_change_nothing() -> None:
    clock = Clock()
    watch = CountWatch(2, clock)
    for _ in range(10):
        for wanted in (3, 2, 1):
            assert not watch.look(wanted)
            clock.now += GROWN_SECONDS / 2


def test_missing_executors_are_reported_once_and_so_is_their_return() -> None:
    clock = Clock()
    watch = ExecutorWatch(clock)
    assert [watch.look(0), watch.look(2)] == [None, None], "a cluster takes a moment"
    assert watch.look(0) is None
    clock.now = EXECUTORS_MISSING_SECONDS
    assert [watch.look(0), watch.look(0)] == ["missing", None]
    assert [watch.look(1), watch.look(1)] == ["found", None]
