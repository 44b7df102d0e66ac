"""Which resident task reads which partitions: decisions only, made from what the driver knows at one moment.

A task has a number and outlives the Spark task that runs it: when that ends, Spark or the driver starts another one
under the same number, perhaps elsewhere. Each partition has at most one owner among the numbers.

    launch     as many tasks as there are slots own equal shares
    loss       a task that is away keeps its partitions for a moment: a successor on the same executor is there within
               it, and no other task is disturbed. Then they go to those that own the fewest
    growth     a task that is there and owns too little gets partitions of those that own most, when the last newcomer
               has been there for a while: executors of a cluster that grows come one by one
    leaving    a task whose executor is decommissioned is asked to end; its partitions go elsewhere when it has

Only partitions that move change hands: a task that neither gives nor gets is sent nothing. One that gives stops
reading first, and the new owner begins when it has said so. That saves work and nothing else: two tasks on one
partition do no harm (`resident.py`). So it waits no longer than `RELEASE_SECONDS` for a task that hangs in a slice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from inorder.model.partitioning import Place

START_SECONDS: Final = 10.0
"""How long the partitions of a task wait for its first start."""
AWAY_SECONDS: Final = 2.0
"""How long the partitions of a task wait for its successor."""
GROWN_SECONDS: Final = 4.0
"""So long after the last newcomer, partitions are moved to it."""
RELEASE_SECONDS: Final = 5.0
"""How long a task may take to say that it has stopped reading."""
LOST_SECONDS: Final = 10.0
"""Slots that are missing for so long count as lost."""
WAITING_TASKS: Final = 32
"""Tasks that wait for a slot, if no number is set: dynamic allocation counts them, and each is a thread here."""

Shares: TypeAlias = Mapping[int, Sequence[Place]]
"""The partitions of each task, by its number."""


def share_out(places: Iterable[Place], tasks: int) -> list[tuple[Place, ...]]:
    """Shares partitions out among at most `tasks` tasks, as evenly as possible; each task has at least one.

    >>> share_out([("a", 0), ("a", 1), ("a", 2)], 2)
    [(('a', 0), ('a', 2)), (('a', 1),)]
    """
    ordered = sorted(places)
    shares = max(1, min(tasks, len(ordered)))
    return [tuple(ordered[first::shares]) for first in range(shares)] if ordered else []


def give(shares: Shares, free: Iterable[Place]) -> dict[int, tuple[Place, ...]]:
    """The shares with partitions that have no owner; each goes to the task that has the fewest.

    >>> give({0: [("a", 0)], 1: []}, [("a", 1), ("a", 2)])
    {0: (('a', 0), ('a', 2)), 1: (('a', 1),)}
    """
    given = {task: list(places) for task, places in shares.items()}
    for place in sorted(free):
        if given:
            given[min(given, key=lambda task: (len(given[task]), task))].append(place)
    return {task: tuple(places) for task, places in given.items()}


def take(shares: Shares) -> dict[int, tuple[Place, ...]]:
    """The shares without the partitions that must move so that no task has two more than another; the fewest possible.

    >>> take({0: [("a", 0), ("a", 1), ("a", 2)], 1: []})
    {0: (('a', 0), ('a', 1)), 1: ()}
    """
    if not shares:
        return {}
    least, more = divmod(sum(map(len, shares.values())), len(shares))
    # Those that have most may keep one more than the others.
    by_size = sorted(shares, key=lambda task: (-len(shares[task]), task))
    keep = {task: least + (rank < more) for rank, task in enumerate(by_size)}
    return {task: tuple(places[: keep[task]]) for task, places in shares.items()}


def count_tasks(partitions: int, tasks: int | None, slots: int, *, may_wait: bool) -> int:
    """How many tasks to run; `tasks` is the number that is set.

    Where tasks `may_wait` there are more than slots: Spark's dynamic allocation sees those that wait, and adds
    executors; and a slot that becomes free is used at once.

    >>> [count_tasks(8, None, 2, may_wait=False), count_tasks(8, None, 2, may_wait=True)]
    [2, 8]
    """
    wanted = (tasks or slots + WAITING_TASKS) if may_wait else min(tasks or slots, slots)
    return max(1, min(partitions, wanted))


class CountWatch:
    """Decides when another number of tasks is wanted for long enough: more for some seconds, or fewer for longer.

    A lost executor is usually replaced within seconds, and executors of a cluster that grows come one by one.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = count
        self._clock = clock
        self._change = 0
        """1 where more tasks are wanted, -1 where fewer are."""
        self._since = clock()

    def look(self, wanted: int) -> bool:
        """Whether the number has changed to the one that is wanted."""
        change = (wanted > self.count) - (wanted < self.count)
        if change != self._change:
            self._change, self._since = change, self._clock()
        if change == 0 or self._clock() - self._since < (GROWN_SECONDS if change > 0 else LOST_SECONDS):
            return False
        self.count, self._change = wanted, 0
        return True


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a task reads from now on."""

    number: int
    """Later ones have higher numbers."""
    places: tuple[Place, ...]


@dataclass(slots=True)
class _Owner:
    places: tuple[Place, ...] = ()
    number: int = 0
    may_read: frozenset[Place] = frozenset()
    """What its Spark task may still be reading."""
    told_at: float = 0.0
    is_here: bool = False
    is_leaving: bool = False
    waits_until: float = 0.0
    """Until then its partitions wait for it while it is away."""


class TaskPlacement:
    """The owners of partitions while tasks come and go; used under a lock."""

    def __init__(self, shares: Sequence[Sequence[Place]], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places = {place for places in shares for place in places}
        until = clock() + START_SECONDS
        self._owners = {task: _Owner(tuple(places), waits_until=until) for task, places in enumerate(shares)}
        self._number = 0
        self._newest = clock()

    @property
    def places(self) -> Collection[Place]:
        """The partitions that are still to be read."""
        return self._places

    @property
    def here(self) -> set[int]:
        """The tasks that run."""
        return {task for task, owner in self._owners.items() if owner.is_here}

    def places_of(self, task: int) -> tuple[Place, ...]:
        return self._owner(task).places

    def join(self, task: int) -> Assignment:
        """A Spark task runs under this number from now on; any before it is asked to end."""
        owner = self._owner(task)
        owner.is_here, owner.is_leaving = True, False
        self._newest = self._clock()
        return self._assign(owner, owner.places)

    def leave(self, task: int) -> None:
        """The Spark task under this number has ended."""
        owner = self._owner(task)
        owner.is_here, owner.may_read = False, frozenset()
        if owner.is_leaving:
            owner.places = ()
        self.wait_for(task)

    def wait_for(self, task: int, seconds: float = 0.0) -> None:
        """The successor of a task that is away is started in so many seconds."""
        self._owner(task).waits_until = self._clock() + seconds + AWAY_SECONDS

    def ask_to_leave(self, task: int) -> bool:
        """Whether the Spark task under this number is to be asked to end, for the first time; another one follows."""
        owner = self._owner(task)
        is_new, owner.is_leaving = owner.is_here and not owner.is_leaving, True
        return is_new

    def is_leaving(self, task: int) -> bool:
        """Whether the Spark task under this number was asked to end, and no other has come yet."""
        return self._owner(task).is_leaving

    def retire(self, task: int) -> None:
        """There is no successor under this number."""
        owner = self._owner(task)
        owner.is_leaving = True
        if not owner.is_here:
            owner.places = ()

    def follows(self, task: int, number: int) -> None:
        """A task reads only what its assignment of this number says."""
        owner = self._owner(task)
        if owner.is_here and number == owner.number:
            owner.may_read = frozenset(owner.places)

    def drop(self, gone: Collection[Place]) -> None:
        """Partitions that are stopped, or read to their end; their tasks know."""
        self._places -= set(gone)
        for owner in self._owners.values():
            owner.places = tuple(place for place in owner.places if place in self._places)

    def decide(self) -> dict[int, Assignment]:
        """Moves partitions, if some must move now; returns the assignments that have changed."""
        here = {task: owner for task, owner in self._owners.items() if owner.is_here and not owner.is_leaving}
        if not here:
            return {}
        now = self._clock()
        for owner in self._owners.values():
            if not owner.is_here and now >= owner.waits_until:
                owner.places = ()
        shares = {task: owner.places for task, owner in here.items()}
        owned = {place for owner in self._owners.values() for place in owner.places}
        awaited = [owner for owner in self._owners.values() if now - owner.told_at < RELEASE_SECONDS]
        read = {place for owner in awaited for place in owner.may_read}
        if len(owned) == len(self._places):
            all_here = sum(map(len, shares.values())) == len(owned)
            new = take(shares) if all_here and now - self._newest >= GROWN_SECONDS else shares
        else:
            new = give(shares, self._places - owned - read)
        return {task: self._assign(here[task], places) for task, places in new.items() if places != shares[task]}

    def _owner(self, task: int) -> _Owner:
        return self._owners.setdefault(task, _Owner())

    def _assign(self, owner: _Owner, places: tuple[Place, ...]) -> Assignment:
        self._number += 1
        owner.may_read |= frozenset(places)
        owner.places, owner.number, owner.told_at = places, self._number, self._clock()
        return Assignment(owner.number, places)
