"""Snapshots while the journal, its store and other savers change: the result is always of one life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from inorder.journal.asynchronous import AsyncJournalClient
from inorder.journal.client import JournalClient
from inorder.journal.snapshots import SnapshotRow
from inorder.model.errors import ConfigurationError, DeadlineError
from inorder.model.journal import MAX_SEQ_NR, Event, Key, Snapshot
from inorder.testing.memory_journal import REGIMES, MemorySnapshots, Regime
from tests.unit.journal.world import KEY, World


class Interrupted(MemorySnapshots):
    """Something happens before the rows are next read, or before the next one is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.before_rows: list[Callable[[], object]] = []
        self.before_loading: list[Callable[[], object]] = []

    def rows(self, key: Key) -> list[SnapshotRow]:
        if self.before_rows:
            self.before_rows.pop()()
        return super().rows(key)

    def load(self, key: Key, row: SnapshotRow) -> Snapshot | None:
        if self.before_loading:
            self.before_loading.pop()()
        return super().load(key, row)


@pytest.fixture(params=[False, True], ids=["no head cache", "head cache"])
def world(request: pytest.FixtureRequest) -> World:
    return World(cached=request.param, snapshots=Interrupted())


def interrupted(world: World) -> Interrupted:
    return cast("Interrupted", world.snapshots)


def save(world: World, *seq_nrs: int) -> None:
    for seq_nr in seq_nrs:
        assert world.journal.save_snapshot(seq_nr, f"up to {seq_nr}") is not None


def recovered(world: World) -> tuple[int | None, list[int]]:
    found = world.journal.recover()
    return None if found.snapshot is None else found.snapshot.seq_nr, [record.seq_nr for record in found.events]


@pytest.mark.parametrize("regime", REGIMES, ids=[regime.name for regime in REGIMES])
@pytest.mark.parametrize("cached", [False, True], ids=["no head cache", "head cache"])
def test_a_journal_is_recovered_the_same_however_far_replication_is(regime: Regime, cached: bool) -> None:
    world = World(cached=cached).follow(regime)
    world.append(1, 2)
    save(world, 2)
    world.append(3)
    assert recovered(world) == (2, [3])
    save(world, 3)
    world.journal.delete(3)
    world.append(4)
    assert recovered(world) == (3, [4])
    world.journal.purge()
    assert (recovered(world), world.journal.snapshots()) == ((None, []), [])
    world.append(1, 2, 3)
    assert (recovered(world), world.journal.snapshots()) == ((None, [1, 2, 3]), [])
    save(world, 1)
    world.append(4)
    assert recovered(world) == (1, [2, 3, 4])
    world.replicate()
    assert recovered(world) == (1, [2, 3, 4])


def test_a_snapshot_of_a_life_to_come_is_not_shown_with_events_of_this_one(world: World) -> None:
    world.append(1, 2)

    def begin_anew() -> None:
        world.journal.purge()
        world.append(1, 2, 3)
        save(world, 2)

    interrupted(world).before_rows.append(begin_anew)
    assert recovered(world) == (2, [3])


def test_a_purge_that_is_replicated_meanwhile_leaves_no_events_without_their_snapshot(world: World) -> None:
    world.append(1, 2)
    save(world, 2)
    world.journal.delete(2)
    world.replicate()
    world.append(3)

    def purge() -> None:
        world.journal.purge()
        world.replicate()

    interrupted(world).before_rows.append(purge)
    assert recovered(world) == (None, [])


def test_a_slot_that_is_overwritten_while_it_is_loaded_is_looked_for_again(world: World) -> None:
    world.append(1, 2, 3, 4)
    save(world, 2)
    world.replicate()

    def overwrite() -> None:
        save(world, 3, 4)
        world.journal.save_snapshot(2, "again")

    interrupted(world).before_loading.append(overwrite)
    found = world.journal.snapshot()
    assert (found and found.seq_nr) == 4
    interrupted(world).before_loading.append(lambda: world.journal.delete_snapshots())
    assert world.journal.snapshots() == []


def test_a_journal_without_snapshots_is_shown_from_where_it_begins(world: World) -> None:
    world.append(1, 2, 3)
    world.journal.delete(2)
    assert recovered(world) == (None, [3])
    world.replicate()
    assert recovered(world) == (None, [3])


def test_the_last_number_of_all_has_nothing_behind_it(world: World) -> None:
    world.append(1, MAX_SEQ_NR)
    save(world, MAX_SEQ_NR)
    assert recovered(world) == (MAX_SEQ_NR, [])


def test_who_finds_no_rest_gives_up_when_the_time_is_over() -> None:
    ticks = iter(range(1_000_000))
    world = World(snapshots=Interrupted(), timeout_seconds=200, clock=lambda: float(next(ticks)))
    world.append(1)

    def again() -> None:
        interrupted(world).before_rows.append(again)
        world.journal.purge()
        world.append(1)
        save(world, 1)

    interrupted(world).before_rows.append(again)
    with pytest.raises(DeadlineError, match="Looking for a snapshot of journal:account-1"):
        world.journal.snapshot()


def test_journals_without_a_store_of_snapshots_say_so() -> None:
    world = World()
    journals = JournalClient(world.log, world.store, world.journals.reader)
    with pytest.raises(ConfigurationError, match="have no snapshot store"):
        journals.journal(KEY).snapshot()


def test_async_journals_have_the_same() -> None:
    world = World()

    async def scene() -> Sequence[object]:
        async with AsyncJournalClient(
            world.journals, lambda *_, **__: pytest.fail("nothing is subscribed")
        ) as journals:
            journal = journals.journal(KEY)
            await journal.append([Event(1), Event(2), Event(3)])
            saved = await journal.save_snapshot(2, {"sum": 3}, metadata="mine")
            assert (await journal.snapshot(), await journal.snapshots()) == (saved, [saved])
            found = await journal.recover()
            events = [record.seq_nr async for record in found.events]
            return found.snapshot == saved, events, await journal.delete_snapshots(), await journal.snapshot()

    assert asyncio.run(scene()) == (True, [3], 1, None)
