"""Every way to split five events into appends reads the same, however far replication is behind.

The matrix of the original: all splits of 1..n for n up to 5, 13 ways in which replication lags, with and without the
head cache, and every record of the log delivered once or twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from inorder.model.journal import MAX_SEQ_NR
from inorder.testing.memory_journal import REGIMES, Regime
from tests.unit.journal.world import World

every_way = pytest.mark.parametrize(
    ("regime", "cached", "doubled"),
    [
        pytest.param(
            regime,
            cached,
            doubled,
            id=f"{regime.name}-{'cached' if cached else 'replayed'}-{doubled + 1}x",
            marks=() if cached != doubled else pytest.mark.full,
        )
        for regime in REGIMES
        for cached in (False, True)
        for doubled in (False, True)
    ],
)


def splits(last: int) -> Iterator[list[list[int]]]:
    """Every way to cut 1..last into runs."""
    for cuts in range(2 ** max(0, last - 1)):
        runs: list[list[int]] = [[1]] if last else []
        for seq_nr in range(2, last + 1):
            if cuts >> (seq_nr - 2) & 1:
                runs.append([])
            runs[-1].append(seq_nr)
        yield runs


SPLITS = [runs for last in range(6) for runs in splits(last)]


def test_the_matrix_is_complete() -> None:
    assert len(SPLITS) == 1 + 1 + 2 + 4 + 8 + 16
    assert len(REGIMES) == 13


@every_way
def test_a_journal_reads_the_same_however_it_was_split(regime: Regime, cached: bool, doubled: bool) -> None:
    for runs in SPLITS:
        everything = [seq_nr for run in runs for seq_nr in run]
        last = len(everything)

        def world(runs: list[list[int]] = runs) -> World:
            made = World(cached=cached, doubled=doubled).follow(regime)
            for run in runs:
                made.append(*run)
            return made

        check_reads(world(), everything)
        check_deletes(world, everything)
        purged = world()
        purged.journal.purge()
        assert (purged.read(), purged.journal.pointer()) == ([], None)
        marked = world()
        marked.journal.mark("x")
        assert (marked.read(), marked.journal.pointer()) == (everything, last or None)


def check_reads(world: World, everything: list[int]) -> None:
    last = len(everything)
    assert world.read() == everything
    assert world.read(1, last + 1) == everything
    assert world.read(MAX_SEQ_NR) == []
    assert world.journal.pointer() == (last or None)
    if last:
        assert world.read(1, last) == everything
        assert world.read(last) == [last]


def check_deletes(world: Callable[[], World], everything: list[int]) -> None:
    last = len(everything)
    for to in {1, max(1, last - 1), last or 1, MAX_SEQ_NR}:
        made = world()
        appended = made.log.end("journal", 0) - 1
        deleted = made.journal.delete(to)
        # A mark comes before the delete; nothing is written where there is no journal.
        assert (deleted and deleted.offset) == (appended + 2 if last else None)
        assert made.read() == [seq_nr for seq_nr in everything if seq_nr > to]
        assert made.journal.pointer() == (last or None)


@every_way
def test_deletes_and_appends_in_turn(regime: Regime, cached: bool, doubled: bool) -> None:
    world = World(cached=cached, doubled=doubled).follow(regime)
    world.append(1)
    world.journal.delete(3)
    world.append(2, 3)
    world.journal.delete(2)
    world.append(4)
    assert world.read(1, 2) == []
    assert world.read(2, 3) == [3]
    assert world.read(3, 4) == [3, 4]
    assert world.read(4, 5) == [4]
    assert world.read(5, 6) == []
    assert world.journal.pointer() == 4
    world.journal.purge()
    assert (world.read(), world.journal.pointer()) == ([], None)


@every_way
def test_a_record_of_two_events_is_read_whole_and_in_part(regime: Regime, cached: bool, doubled: bool) -> None:
    world = World(cached=cached, doubled=doubled).follow(regime)
    world.append(1, 2)
    assert [world.read(), world.read(2), world.read(1, 1)] == [[1, 2], [2], [1]]


@every_way
def test_a_journal_begins_again_after_a_purge(regime: Regime, cached: bool, doubled: bool) -> None:
    world = World(cached=cached, doubled=doubled).follow(regime)
    world.append(1, 2, 3)
    world.journal.delete(2)
    world.journal.purge()
    world.append(1)
    assert (world.read(), world.journal.pointer()) == ([1], 1)
    world.append(2)
    assert (world.read(), world.journal.pointer()) == ([1, 2], 2)
    assert world.forks == world.replicator.forks == []


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("doubled", [False, True])
@pytest.mark.parametrize("behind", [None, 0, 500])
def test_a_thousand_events(cached: bool, doubled: bool, behind: int | None) -> None:
    world = World(cached=cached, doubled=doubled, segment_size=10, buffer_bytes=2_000)
    world.follow(Regime("", behind))
    for seq_nr in range(1, 1001):
        world.append(seq_nr)
    assert world.read() == list(range(1, 1001))
    assert world.read(501) == list(range(501, 1001))
    for to in range(1, 500, 10):
        world.delete(to)
    assert world.read() == list(range(492, 1001))
    world.journal.delete(1000)
    assert (world.read(), world.journal.pointer()) == ([], 1000)
    world.journal.purge()
    assert (world.read(), world.journal.pointer()) == ([], None)
