"""Where the original is wrong, documented or not: each of these tests fails with its rules.

Read with the head cache and without, replicated to any point, each journal shows what its actions say.
"""

from __future__ import annotations

import pytest

from inorder.journal.action import Purge
from inorder.journal.codec import RecordSender, append_record
from inorder.model.deadline import Deadline
from inorder.model.journal import RecordMetadata
from inorder.model.message import Limits
from inorder.testing.memory_journal import MemoryHeads, MemoryJournalLog, MemoryJournalStore
from tests.unit.journal.world import KEY, NOON, World, event

both = pytest.mark.parametrize("cached", [False, True], ids=["replayed", "cached"])


@both
@pytest.mark.parametrize("old", [1, 2, 5])
def test_a_purge_and_an_append_over_replicated_events(cached: bool, old: int) -> None:
    world = World(cached=cached)
    world.append(*range(1, old + 1))
    world.replicate()
    world.journal.purge()
    world.append(1, 2)
    assert (world.read(), world.journal.pointer()) == ([1, 2], 2)
    events = [record.partition_offset.offset for record in world.journal.read()]
    assert events == [3, 3], "the new events, not those of the old life"
    world.append(3)
    world.delete(1)
    assert (world.read(), world.journal.pointer()) == ([2, 3], 3)


@both
def test_a_delete_of_an_earlier_life_does_not_hide_the_next(cached: bool) -> None:
    world = World(cached=cached)
    world.append(1, 2, 3)
    world.replicate()
    world.delete(3)
    world.journal.purge()
    world.append(1)
    assert (world.read(), world.journal.pointer()) == ([1], 1)


def test_a_replicated_purge_is_not_held_against_the_store() -> None:
    """The cache keeps the journal because it is written all the time; the log has long lost its purge."""
    world = World(cached=True)
    world.journal.purge()
    world.append(1)
    assert world.read() == [1]
    for seq_nr in range(2, 6):
        world.append(seq_nr)
        assert world.read() == list(range(1, seq_nr + 1))
        world.replicate(behind=2)
        replicated = world.store.offset(KEY.topic, 0)
        assert replicated is not None
        world.log.forget(KEY.topic, 0, replicated + 1)


@pytest.mark.parametrize("size", [2, 10])
@both
def test_a_gap_over_a_segment_border(cached: bool, size: int) -> None:
    world = World(cached=cached, segment_size=size)
    world.append(1, 2, 3)
    world.append(25)
    world.replicate()
    assert world.read() == [1, 2, 3, 25]
    world.delete(3)
    world.replicate()
    assert world.read() == [25]


@both
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_lower_number_never_lowers_the_pointer(cached: bool, behind: int) -> None:
    world = World(cached=cached)
    world.append(1, 2, 3)
    world.append(2)
    world.replicate(behind=behind)
    assert (world.read(), world.journal.pointer()) == ([1, 2, 3], 3)


@both
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_delete_without_a_journal_hides_nothing_to_come(cached: bool, behind: int) -> None:
    world = World(cached=cached)
    world.delete(10)
    world.append(1, 2)
    world.replicate(behind=behind)
    assert (world.read(), world.journal.pointer()) == ([1, 2], 2)
    world.append(3)
    assert (world.read(), world.journal.pointer()) == ([1, 2, 3], 3)


@both
@pytest.mark.parametrize("behind", [0, 1, 2, 3])
def test_of_two_writers_the_first_counts_and_the_other_is_reported(cached: bool, behind: int) -> None:
    world = World(cached=cached)
    world.append(1)
    world.append(2)
    world.append(2, 3)
    world.replicate(behind=behind)
    # All of it or nothing: the second writer has decided on 3 after its own 2.
    assert [(record.seq_nr, record.offset) for record in world.journal.read()] == [(1, 0), (2, 1)]
    world.replicate()
    assert [(each.record.seq_nr, each.is_proven) for each in world.replicator.forks] == [(2, True), (3, False)]


@both
@pytest.mark.parametrize("behind", [0, 1, 2, 3])
def test_an_append_of_kafka_journal_counts_event_by_event(cached: bool, behind: int) -> None:
    world = World(cached=cached)
    world.append(1)
    world.append(2)
    events = [event(2), event(3)]
    world.log.send(append_record(KEY, events, NOON, RecordSender(), RecordMetadata(), {}, Limits()))
    world.replicate(behind=behind)
    assert [(record.seq_nr, record.offset) for record in world.journal.read()] == [(1, 0), (2, 1), (3, 2)]
    reported = world.replicator.forks + world.forks
    assert [(fork.record.offset, fork.record.seq_nr, fork.is_proven) for fork in reported] == [(2, 2, True)]


def test_a_journal_that_the_cache_has_dropped_is_read_from_the_log() -> None:
    log, store = MemoryJournalLog(), MemoryJournalStore()
    heads = MemoryHeads(log, store, max_journals=2)
    world = World(log=log, store=store, heads=heads)
    world.append(1)
    for id in ("a", "b", "c"):
        world.other(id).append([event(1)])
        assert [record.seq_nr for record in world.other(id).read()] == [1]
    assert heads.find(KEY, 0, log.end(KEY.topic, 0) - 1, Deadline(lambda: 0.0, 1, "")) is None
    assert (world.read(), world.journal.pointer()) == ([1], 1)
    world.append(2)
    assert (world.read(), world.journal.pointer()) == ([1, 2], 2)


def test_a_purge_after_the_mark_does_not_leave_half_a_journal() -> None:
    """The store has applied a purge that came after our mark: what it had before it is gone, the log has the rest."""
    world = World()
    world.append(1, 2)
    world.replicate()
    world.append(3)
    offset = world.store.offset
    purges = [Purge()]

    def racing(topic: str, partition: int) -> int | None:
        found = offset(topic, partition)
        if purges:
            world.journals.send(KEY, purges.pop())
            world.replicate()
        return found

    world.store.offset = racing  # type: ignore[method-assign] # a purge between the two questions
    assert world.read() == []


def test_a_cache_that_is_further_than_the_mark_is_followed_there() -> None:
    """It has a delete after our mark, so the append before that delete is visible too."""
    world = World(cached=True)
    world.append(1, 2, 3)

    def meanwhile(*_: object) -> None:
        world.log.on_sent = lambda *_: None
        world.append(4)
        world.delete(3)

    world.log.on_sent = meanwhile
    assert world.read() == [4]
