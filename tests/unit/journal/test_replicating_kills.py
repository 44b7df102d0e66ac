"""A store without transactions equals the model of its topic, wherever replicators die, wake up late or cut slices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.action import Delete, Purge
from inorder.journal.replication.job import ReplicateWorker
from inorder.model.errors import DamagedRecordError, UnknownOutcomeError
from tests.fakes.replica import KilledError, MemoryReplica
from tests.selection import examples
from tests.unit.journal.replicated_topic import TOPIC, Seen, Topic, shows

IDS = ("a", "b")
# Numbers that rise, repeat and fall: second writers are part of life.
numbers = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True).map(sorted)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["append"] * 4
            + ["delete", "delete", "purge", "mark", "foreign", "header", "events"]
            + ["whole", "append after", "append after", "look", "repeat", "delete seen", "purge seen"]
        ),
        st.sampled_from(IDS),
        numbers,
    ),
    max_size=14,
)
sizes = st.lists(st.integers(1, 6), max_size=6)
SEGMENTS = st.sampled_from([2, 3, 10_000])


WRITES: dict[str, Callable[[Topic, str, list[int]], object]] = {
    "append": lambda topic, id, seq_nrs: topic.append(id, *seq_nrs),
    "whole": lambda topic, id, seq_nrs: topic.append(id, *seq_nrs, append_id=f"append {len(topic.records)}"),
    "append after": lambda topic, id, seq_nrs: topic.append_after(id, len(seq_nrs)),
    "delete": lambda topic, id, seq_nrs: topic.delete(id, seq_nrs[-1]),
    "delete seen": lambda topic, id, seq_nrs: topic.act_on(id, Delete(seq_nrs[-1])),
    "purge": lambda topic, id, _: topic.purge(id),
    "purge seen": lambda topic, id, _: topic.act_on(id, Purge()),
    "look": lambda topic, id, _: topic.look(id),
    "repeat": lambda topic, id, _: topic.repeat(id),
    "mark": lambda topic, id, _: topic.mark(id),
    "foreign": lambda topic, *_: topic.foreign(),
    "header": lambda topic, id, _: topic.damaged_header(id),
    "events": lambda topic, id, seq_nrs: topic.damaged_events(id, seq_nrs[0]),
}


def topic_of(chosen: list[tuple[str, str, list[int]]]) -> Topic:
    topic = Topic()
    for kind, id, seq_nrs in chosen:
        WRITES[kind](topic, id, seq_nrs)
    return topic


def seen(look: Callable[[], Seen]) -> Seen | str:
    try:
        return look()
    except DamagedRecordError:
        return "parked"


def assert_equal(topic: Topic, store: MemoryReplica) -> None:
    for id in IDS:
        assert seen(partial(shows, store, id)) == seen(partial(topic.says, id))
    assert store.offset(TOPIC, 0) == (len(topic.records) - 1 if topic.records else None)


def due(store: MemoryReplica) -> int:
    offset = store.offset(TOPIC, 0)
    return 0 if offset is None else offset + 1


class Watching:
    """Sees to it that no event which was gone comes back."""

    def __init__(self, store: MemoryReplica) -> None:
        self._store = store
        self._last: dict[str, frozenset[tuple[int, int]]] = dict.fromkeys(IDS, frozenset())
        self._gone: dict[str, set[tuple[int, int]]] = {id: set() for id in IDS}

    def look(self) -> None:
        for id in IDS:
            found = seen(partial(shows, self._store, id))
            if found == "parked":
                continue
            now = frozenset(found[1]) if isinstance(found, tuple) else frozenset()
            assert not now & self._gone[id]
            self._gone[id] |= self._last[id] - now
            self._last[id] = now


@examples(300)
@given(steps, sizes, SEGMENTS)
def test_any_chunking_leads_to_what_the_topic_says(
    chosen: list[tuple[str, str, list[int]]], cuts: list[int], segment_size: int
) -> None:
    topic, store = topic_of(chosen), MemoryReplica()
    worker = ReplicateWorker(store, segment_size)
    expected = 0
    for batch in topic.chunks(0, cuts):
        outcome = worker.apply(batch, expected)
        expected = outcome.next_offset
        assert outcome.read == len(batch) == outcome.applied + outcome.ignored + outcome.rejected
    assert_equal(topic, store)


@examples(400)
@given(steps, st.lists(st.integers(0, 5), max_size=5), st.lists(sizes, max_size=5), SEGMENTS)
def test_a_replicator_may_die_between_any_two_writes(
    chosen: list[tuple[str, str, list[int]]], deaths: list[int], cuts: list[list[int]], segment_size: int
) -> None:
    topic, store = topic_of(chosen), MemoryReplica()
    watching = Watching(store)
    for after, chunks in zip(chain[int | None](deaths, repeat(None)), chain(cuts, repeat([100])), strict=False):
        store.dies_at = None if after is None else store.writes + after
        try:
            for batch in topic.chunks(due(store), chunks):
                ReplicateWorker(store, segment_size).apply(batch, expected=0)
                watching.look()
        except KilledError:
            watching.look()
        else:
            break
    assert_equal(topic, store)


@examples(400)
@given(
    st.lists(st.tuples(st.sampled_from(["append", "append", "delete"]), st.just("a"), numbers), max_size=8),
    st.integers(0, 4),
    SEGMENTS,
)
def test_a_reader_between_any_two_writes_sees_what_the_journal_once_was(
    chosen: list[tuple[str, str, list[int]]], first: int, segment_size: int
) -> None:
    """A slice leaves out what later records of it undo, so a head that it wrote in between would show a mixture."""
    topic, death = topic_of(chosen), 0
    once = {Topic(topic.records[:end]).says("a") for end in range(len(topic.records) + 1)}
    is_done = False
    while not is_done:
        store = MemoryReplica()
        store.dies_at, death = death, death + 1
        with suppress(KilledError):
            for batch in topic.chunks(0, [first or 100, 100]):
                ReplicateWorker(store, segment_size).apply(batch, expected=0)
            is_done = True
        assert shows(store, "a") in once


@examples(300)
@given(steps, st.integers(0, 6), st.integers(1, 6), sizes, SEGMENTS, st.booleans())
def test_one_that_wakes_up_late_changes_nothing(
    chosen: list[tuple[str, str, list[int]]],
    first: int,
    length: int,
    cuts: list[int],
    segment_size: int,
    compares: bool,
) -> None:
    topic, store = topic_of(chosen), MemoryReplica(compares=compares)
    for batch in topic.chunks(0, [first] if first else []):
        if batch.offsets[0] >= first:
            break
        ReplicateWorker(store, segment_size).apply(batch, expected=0)

    def meanwhile() -> None:
        for batch in topic.chunks(due(store), cuts):
            ReplicateWorker(store, segment_size).apply(batch, expected=0)

    late = topic.slice(due(store), due(store) + length)
    store.before_writing = meanwhile
    if late.offsets:
        ReplicateWorker(store, segment_size).apply(late, expected=0)
    meanwhile()
    assert_equal(topic, store)


@examples(400)
@given(
    steps,
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.none() | st.integers(0, 4)), max_size=4),
    sizes,
    SEGMENTS,
    st.booleans(),
)
def test_one_that_others_interrupt_between_any_two_writes_changes_nothing(
    chosen: list[tuple[str, str, list[int]]],
    interruptions: list[tuple[int, int, int | None]],
    cuts: list[int],
    segment_size: int,
    compares: bool,
) -> None:
    """Slices of both overlap and end anywhere; the others may die in the middle of theirs."""
    topic, store = topic_of(chosen), MemoryReplica(compares=compares)
    waiting = list(interruptions)
    passed = 0

    def interrupt() -> None:
        nonlocal passed
        passed += 1
        if waiting and passed > waiting[0][0]:
            passed, (_, length, death) = 0, waiting.pop(0)
            batch = topic.slice(due(store), due(store) + length)
            store.dies_at = None if death is None else store.writes + death
            with suppress(KilledError):
                if batch.offsets:
                    ReplicateWorker(store, segment_size).apply(batch, expected=0)
            store.dies_at = None

    store.between = interrupt
    for chunks in chain([cuts], repeat([100], len(interruptions) + 1)):
        with suppress(UnknownOutcomeError):  # a compare-and-set that failed too often: the engine reads the slice again
            for batch in topic.chunks(due(store), chunks):
                ReplicateWorker(store, segment_size).apply(batch, expected=0)
    assert_equal(topic, store)


@pytest.mark.parametrize("appends", [0, 1], ids=["nothing", "an append"])
def test_a_purge_that_was_half_applied_is_recognised_when_the_slice_is_repeated(appends: int) -> None:
    """The journal is gone, the offset is before the purge: what came before the purge begins no journal."""
    for cut in range(2, 8):
        for death in range(12):
            topic, store = Topic(), MemoryReplica()
            topic.append("a", 1, 2)
            for number in range(appends):
                topic.append("a", 3 + number, append_id="before")
            topic.act_on("a", Purge())  # a mark and the purge
            purge = topic.records[-1]
            topic.append("a", 1, append_id="1")
            topic.repeat("a")
            topic.records.append(purge)  # once more
            topic.append("a", 2, append_id="2")
            ReplicateWorker(store, 2).apply(topic.slice(0, 1), expected=0)
            store.dies_at = store.writes + death
            try:
                for batch in topic.chunks(1, [cut, 10]):
                    ReplicateWorker(store, 2).apply(batch, expected=0)
            except KilledError:
                store.dies_at = None
                for batch in topic.chunks(due(store), [10]):
                    ReplicateWorker(store, 2).apply(batch, expected=0)
            assert_equal(topic, store)
            assert topic.says("a") == (2, ((1, 3 + appends), (2, 6 + appends)))
