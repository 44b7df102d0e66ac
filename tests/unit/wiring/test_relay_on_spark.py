"""Relays as tasks: how many are of use, what they have published together, and when an outbox is done with."""

from __future__ import annotations

from itertools import count

import pytest

import inorder
from inorder.model.errors import UnreachableError
from inorder.relay.on_spark import STANDSTILL_SECONDS, DrainCheck, PublishedTotal, tasks_for


@pytest.mark.parametrize(
    ("relay", "tasks"),
    [
        ({"shards": 1}, 1),
        ({"shards": 3}, 3),
        ({"shards": 8}, 4),
        ({"shards": 8, "leadership": "none"}, 1),
        ({"strategy": "mark-purge", "shards": 2}, 2),
        ({"strategy": "topic-lock", "layout": "deimos", "delivery": "at-least-once"}, 4),
        ({"strategy": "polling", "layout": "trendyol", "leadership": "database"}, 1),
    ],
)
def test_there_are_as_many_tasks_as_can_share_the_work(relay: dict[str, object], tasks: int) -> None:
    settings = inorder.Settings.load(None, relay={"group": "g", **relay})
    assert tasks_for(settings, slots=4) == tasks


def test_what_a_task_published_before_it_was_begun_again_counts() -> None:
    published = PublishedTotal()
    for index, total in ((0, 5), (1, 3), (0, 9), (0, 2), (0, 4)):
        published.add(index, {"published": total})
    assert published.total == 9 + 4 + 3


class Looks:
    """An outbox that holds so many rows, look after look; -1 is a database that does not answer."""

    def __init__(self, *waiting: int) -> None:
        self.waiting = iter(waiting)

    def __call__(self) -> int:
        if (found := next(self.waiting)) < 0:
            raise UnreachableError("Nobody there.")
        return found


@pytest.mark.parametrize(
    ("waiting", "done"),
    [
        ((9, 4, 0), [False, False, True]),
        ((0,), [True]),
        ((-1, 0), [False, True]),
        ((9, 3, 3, 3), [False, False, False, True]),
        ((9, 3, 3, 2, 2, 2), [False, False, False, False, False, True]),
    ],
)
def test_an_outbox_is_done_with_when_it_is_empty_or_stands_still(waiting: tuple[int, ...], done: list[bool]) -> None:
    seconds = count(step=int(STANDSTILL_SECONDS / 2) + 1)
    reading: list[float] = []

    def clock() -> float:
        # Once when a number is new, and once a look; a look comes every eleven seconds.
        return reading[-1] if reading else 0.0

    outbox = DrainCheck(Looks(*waiting), clock)
    found = []
    for _ in waiting:
        reading.append(float(next(seconds)))
        found.append(outbox.is_done())
    assert found == done
