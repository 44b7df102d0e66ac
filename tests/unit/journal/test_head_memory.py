"""A replicator that caches heads writes the same as one that reads each, even beside other replicators."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inorder.journal.replication.job import ReplicateWorker, release
from inorder.journal.replication.store_port import (
    HeadMemory,
    JournalChange,
    Quarantined,
    ReplicaSlice,
    write_head_once,
)
from inorder.journal.replication.transition import InsertEvents
from inorder.journal.stores.ports import JournalHead, TopicIncarnation
from inorder.model.errors import FencedError, GuaranteeError, RejectedError, TransientError
from inorder.model.journal import Key
from tests.fakes.replica import KilledError, MemoryReplica
from tests.selection import examples
from tests.unit.journal.replicated_topic import TOPIC, Topic, key, shows
from tests.unit.journal.test_replicating_kills import SEGMENTS, Watching, assert_equal, due, sizes, steps, topic_of


class Replicator:
    """One process: a store that others write too, and a memory of its own."""

    def __init__(self, store: MemoryReplica, most: int = 100, *, expects: bool = False) -> None:
        self.store = store
        self.expects = expects
        """Whether it writes events before it knows where the offset is, as the one for Cassandra does."""
        self.asked: list[str] = []
        """Journals whose heads the store was asked for."""
        self.refuses: set[int] = set()
        """Offsets of statements that the store does not take."""
        self._memory = HeadMemory(most)

    @contextmanager
    def slice(self, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        with self.store.slice(topic, partition) as writing:
            self._listen(writing)
            moved = self._memory.moved_to(topic, partition)
            expecting = _Expecting(writing, moved) if self.expects and moved is not None else writing
            with self._memory.over(expecting, topic, partition) as remembering:
                yield remembering
                if isinstance(expecting, _Expecting):
                    expecting.confirm()

    def offsets(self, topic: str) -> Mapping[int, int]:
        return self.store.offsets(topic)

    def incarnation(self, topic: str) -> TopicIncarnation | None:
        return self.store.incarnation(topic)

    def adopt(self, topic: str, held: TopicIncarnation) -> TopicIncarnation:
        return self.store.adopt(topic, held)

    def close(self) -> None:
        self.store.close()

    def apply(self, topic: Topic, first: int, end: int, *, expected: int = 0, segment_size: int = 3) -> None:
        batch = topic.slice(first, end)
        if batch.offsets:
            ReplicateWorker(self, segment_size).apply(batch, expected)

    def _listen(self, writing: ReplicaSlice) -> None:
        heads, carry_out = writing.heads, writing.carry_out

        def heard(keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
            self.asked += [each.id for each in keys]
            return heads(keys)

        def refusing(changes: Sequence[JournalChange]) -> None:
            if self.refuses & {dated.offset for change in changes for dated in change.statements}:
                raise RejectedError("No.")
            carry_out(changes)

        writing.heads, writing.carry_out = heard, refusing  # type: ignore[method-assign]  # listened to


class _Expecting:
    """A slice that expects the offset where its replicator left it, and no journal parked."""

    def __init__(self, writing: ReplicaSlice, moved: int) -> None:
        self._writing = writing
        self._moved = moved
        self._keys: Sequence[Key] = ()

    def lock_offset(self) -> int | None:
        return self._moved

    def parked(self, keys: Sequence[Key]) -> Collection[Key]:
        self._keys = keys
        return ()

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        events = [_inserts(change) for change in changes]
        self._writing.carry_out([each for each in events if each.statements])
        self.confirm()
        self._writing.carry_out(changes)

    def confirm(self) -> None:
        if self._writing.lock_offset() != self._moved or self._writing.parked(self._keys):
            raise FencedError("Not as expected.")

    def free(self, purged: Mapping[Key, int]) -> None:
        self.confirm()
        self._writing.free(purged)

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        self.confirm()
        self._writing.quarantine(records)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writing, name)


def _inserts(change: JournalChange) -> JournalChange:
    """The events that a change writes before anything else."""
    first = takewhile(lambda each: isinstance(each.statement, InsertEvents), write_head_once(change))
    return replace(change, statements=tuple(first))


turns = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 4), st.none() | st.integers(0, 5), st.booleans(), st.integers(-3, 0)),
    max_size=12,
)
"""Who is next, how long its slice is, after how many writes it fails if it does, whether it is a new process then, and
how far behind the offset its slice begins."""


@examples(500)
@given(steps, turns, sizes, SEGMENTS, st.sampled_from([1, 100]), st.booleans())
@example(
    # A purge is applied and its offset is not moved: what was a fork before it seems to begin a journal.
    chosen=[*[("append", "a", [1])] * 5, ("purge seen", "a", [1]), ("append", "a", [1])],
    taken=[(0, 1, None, False, 0), (0, 3, None, False, 0), (0, 3, 4, False, 0)],
    cuts=[1, 1, 1, 1],
    segment_size=2,
    most=1,
    expects=False,
)
def test_rivals_with_memories_that_fail_anywhere_lead_to_what_the_topic_says(
    chosen: list[tuple[str, str, list[int]]],
    taken: list[tuple[int, int, int | None, bool, int]],
    cuts: list[int],
    segment_size: int,
    most: int,
    expects: bool,
) -> None:
    topic, store = topic_of(chosen), MemoryReplica()
    watching, rivals = Watching(store), [Replicator(store, most, expects=expects) for _ in range(2)]
    for who, length, fails, is_killed, behind in taken:
        first = max(0, due(store) + behind)
        store.dies_at = None if fails is None else store.writes + fails
        with suppress(KilledError):
            rivals[who].apply(topic, first, first + length, segment_size=segment_size)
        if store.dies_at is None and fails is not None and is_killed:
            rivals[who] = Replicator(store, most, expects=expects)
        store.dies_at = None
        watching.look()
    for batch in topic.chunks(due(store), cuts):
        ReplicateWorker(rivals[0], segment_size).apply(batch, expected=0)
        watching.look()
    assert_equal(topic, store)


@examples(300)
@given(steps, st.integers(0, 6), st.integers(1, 6), sizes, sizes, SEGMENTS, st.booleans())
def test_one_that_goes_on_from_its_memory_after_a_pause_changes_nothing(
    chosen: list[tuple[str, str, list[int]]],
    first: int,
    length: int,
    cuts: list[int],
    rest: list[int],
    segment_size: int,
    expects: bool,
) -> None:
    topic, store = topic_of(chosen), MemoryReplica()
    paused, other = Replicator(store, expects=expects), Replicator(store, expects=expects)
    for each in range(min(first, len(topic.records))):
        paused.apply(topic, each, each + 1, segment_size=segment_size)

    def meanwhile() -> None:
        for batch in topic.chunks(due(store), cuts):
            ReplicateWorker(other, segment_size).apply(batch, expected=0)

    store.before_writing = meanwhile
    paused.apply(topic, due(store), due(store) + length, segment_size=segment_size)
    for batch in topic.chunks(due(store), rest):
        ReplicateWorker(paused, segment_size).apply(batch, expected=0)
    assert_equal(topic, store)


def growing(appends: int = 4) -> Topic:
    topic = Topic()
    for number in range(1, appends + 1):
        topic.append("a", number)
    return topic


def test_a_head_is_asked_for_until_the_store_has_it() -> None:
    topic, store = growing(), MemoryReplica()
    one = Replicator(store)
    for offset in range(4):
        one.apply(topic, offset, offset + 1)
    assert one.asked == ["a", "a"]
    assert_equal(topic, store)


def test_that_there_is_none_after_a_purge_is_remembered_too() -> None:
    topic, store = growing(1), MemoryReplica()
    topic.purge("a")
    topic.append("a", 1)
    topic.append("a", 2)
    one = Replicator(store)
    for offset in range(4):
        one.apply(topic, offset, offset + 1)
    assert one.asked == ["a", "a"]
    assert_equal(topic, store)


def test_when_another_has_moved_the_offset_every_head_is_asked_for_again() -> None:
    topic, store = growing(), MemoryReplica()
    one, other = Replicator(store), Replicator(store)
    one.apply(topic, 0, 1)
    other.apply(topic, 1, 2)
    one.apply(topic, 2, 3)
    one.apply(topic, 3, 4)
    assert one.asked == ["a", "a"]
    assert_equal(topic, store)


def test_when_a_slice_has_failed_every_head_is_asked_for_again() -> None:
    topic, store = growing(), MemoryReplica()
    one = Replicator(store)
    one.apply(topic, 0, 1)
    store.dies_at = store.writes + 1
    with pytest.raises(TransientError):
        one.apply(topic, 1, 2)
    one.apply(topic, 1, 3)
    one.apply(topic, 3, 4)
    assert one.asked == ["a", "a", "a"]
    assert_equal(topic, store)


def test_a_store_that_went_back_is_noticed_before_anything_is_written() -> None:
    topic, store = growing(), MemoryReplica()
    one = Replicator(store)
    one.apply(topic, 0, 2)
    store._offsets[TOPIC, 0] = 0
    writes = store.writes
    with pytest.raises(GuaranteeError):
        one.apply(topic, 2, 3, expected=2)
    assert store.writes == writes


def test_a_journal_that_was_released_is_asked_for() -> None:
    topic, store = growing(1), MemoryReplica()
    topic.damaged_events("a", 2)
    topic.append("a", 3, expire_after=timedelta(days=1))
    topic.mark("a")
    topic.append("a", 4)
    one = Replicator(store)
    for offset in range(4):
        one.apply(topic, offset, offset + 1)
    store.discard(key("a"), 1)
    assert release(store, key("a"), 3) == 1
    one.asked.clear()
    one.apply(topic, 4, 5)
    assert one.asked == ["a"]
    assert shows(store, "a") == (4, ((1, 0), (3, 2), (4, 4)))
    head = store.head(key("a"))
    assert head is not None
    assert head.expiry is None  # the release has set it, the last append takes it off


def test_a_journal_that_the_store_refused_is_asked_for() -> None:
    topic, store = growing(3), MemoryReplica()
    one = Replicator(store)
    one.refuses = {1}
    one.apply(topic, 0, 2)
    one.refuses = set()
    store.discard(key("a"))
    one.asked.clear()
    one.apply(topic, 2, 3)
    assert one.asked == ["a"]


def test_not_more_is_kept_than_allowed() -> None:
    topic, store = Topic(), MemoryReplica()
    for number in (1, 2):
        for id in ("a", "b", "c"):
            topic.append(id, number)
    one = Replicator(store, most=2)
    for offset in range(6):
        one.apply(topic, offset, offset + 1)
    assert len(one._memory._heads) == 2
    assert one.asked == ["a", "b", "c", "a", "b", "c"]
    assert_equal(topic, store)
