"""Journals whose day is over are purged, whichever day it was; those that live on are left alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date, timedelta

import pytest

from inorder.journal.jobs import Expired, expire
from inorder.model.journal import Event, Key
from tests.unit.journal.world import KEY, NOON, World

DAY = timedelta(days=1)
TODAY = NOON.date()


class Index:
    """Lists journals, as a store does by its heads."""

    def __init__(self, world: World, *also: str) -> None:
        self._world = world
        self._also = also

    def expired(self, topic: str, before: date) -> Iterator[str]:
        for id in {*self._world.store.ids(topic), *self._also}:
            head = self._world.store.pointer(Key(id, topic))
            if id in self._also or (head is not None and head.expiry is not None and head.expiry.on < before):
                yield id


def expired(world: World, today: date, *also: str, dry_run: bool = False) -> list[Expired]:
    index, stop = Index(world, *also), threading.Event()
    return list(expire(world.journals, index, [KEY.topic], today, stop, per_second=10_000, dry_run=dry_run))


@pytest.fixture
def world() -> World:
    """A journal that lives for a day after noon, in log and store."""
    world = World()
    world.journal.append([Event(1)], expire_after=DAY)
    replicate(world)
    return world


def replicate(world: World) -> None:
    world.replicator.replicate(KEY.topic, 0, world.log.end(KEY.topic, 0))


@pytest.mark.parametrize("days", [2, 3, 400])
def test_any_day_that_was_missed_is_made_up_for(world: World, days: int) -> None:
    assert expired(world, TODAY + days * DAY) == [Expired(KEY, is_purged=True)]
    assert world.journal.pointer() is None


@pytest.mark.parametrize("days", [0, 1])
def test_no_journal_goes_before_its_day_is_over(world: World, days: int) -> None:
    assert expired(world, TODAY + days * DAY) == []
    assert world.journal.pointer() == 1


def test_a_dry_run_only_tells(world: World) -> None:
    assert expired(world, TODAY + 9 * DAY, dry_run=True) == [Expired(KEY, is_purged=False)]
    assert world.journal.pointer() == 1
    assert str(Expired(KEY, is_purged=False)) == "journal:account-1 is left."


@pytest.mark.parametrize("after", [None, 30 * DAY])
def test_an_append_that_is_not_replicated_yet_saves_its_journal(world: World, after: timedelta | None) -> None:
    world.journal.append([Event(2)], expire_after=after)
    assert expired(world, TODAY + 9 * DAY) == [Expired(KEY, is_purged=False)]
    assert world.journal.pointer() == 2


def test_one_that_lives_on_by_now_is_left_though_it_was_called_expired(world: World) -> None:
    world.journal.append([Event(2)], expire_after=30 * DAY)
    replicate(world)
    assert expired(world, TODAY + 9 * DAY, KEY.id) == [Expired(KEY, is_purged=False)]


def test_one_that_is_gone_is_not_purged_again(world: World) -> None:
    world.journal.purge()
    replicate(world)
    end = world.log.end(KEY.topic, 0)
    assert expired(world, TODAY + 9 * DAY, KEY.id) == [Expired(KEY, is_purged=False)]
    assert world.log.end(KEY.topic, 0) == end + 1  # the mark


def test_a_stop_ends_it_before_the_next_journal(world: World) -> None:
    stop = threading.Event()
    stop.set()
    assert list(expire(world.journals, Index(world), [KEY.topic], TODAY + 9 * DAY, stop, per_second=1)) == []
    assert world.journal.pointer() == 1
