"""Whatever was written and however it was cut into slices: an audit of a replicated store finds no difference."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from inorder.journal.audit.findings import FindingKind, StoredRow
from inorder.journal.replication.job import ReplicateWorker
from tests.fakes.replica import KilledError
from tests.selection import examples
from tests.unit.journal.audited import Audited
from tests.unit.journal.replicated_topic import key
from tests.unit.journal.test_replicating_kills import SEGMENTS, due, sizes, steps, topic_of

Steps: TypeAlias = list[tuple[str, str, list[int]]]


PURGED_WHILE_PARKED: Steps = [("look", "a", [1]), ("header", "a", [1]), ("append", "a", [1]), ("purge seen", "a", [1])]
VOID_PURGE_BEFORE_PARKING: Steps = [
    ("append", "a", [1]),
    ("purge seen", "a", [1]),
    ("delete", "a", [3]),
    ("repeat", "a", [1]),
    ("header", "a", [1]),
]


@examples(60)
@example(PURGED_WHILE_PARKED, [], 2, 1)
@example(VOID_PURGE_BEFORE_PARKING, [], 2, 1)
@given(steps, sizes, SEGMENTS, st.integers(1, 5))
def test_a_replicated_store_has_no_difference(chosen: Steps, cuts: list[int], size: int, batch: int) -> None:
    world = Audited(topic_of(chosen), segment_size=size, batch=batch)
    world.flush(*cuts)
    assert world.differences() == []


BEGUN_AFTER_A_BOUND: Steps = [
    ("append", "b", [1]),
    ("delete seen", "a", [1]),
    ("look", "a", [1]),
    ("append after", "a", [1]),
]


@examples(60)
@example(BEGUN_AFTER_A_BOUND, [], 2, 1)
@example([("append", "b", [1]), ("delete", "a", [1]), ("append", "a", [5])], [], 2, 1)
@given(steps, sizes, SEGMENTS, st.integers(0, 14))
def test_retention_makes_no_difference(chosen: Steps, cuts: list[int], size: int, first: int) -> None:
    world = Audited(topic_of(chosen), segment_size=size)
    world.flush(*cuts)
    world.first = min(first, len(world.topic.records))
    assert world.differences() == []


@examples(60)
@given(steps, steps, sizes)
def test_a_replicator_that_goes_on_makes_no_difference(early: Steps, late: Steps, cuts: list[int]) -> None:
    world = Audited(topic_of(early))
    world.flush(*cuts)
    world.topic.records += topic_of(late).records
    rest = iter(cuts)

    def go_on() -> None:
        for batch in world.topic.chunks(due(world.store), [next(rest, 1)]):
            ReplicateWorker(world.store, world.segment_size).apply(batch, expected=0)
            break

    world.meanwhile = go_on
    assert world.differences() == []


@examples(60)
@given(steps, st.lists(st.integers(0, 5), max_size=4), st.lists(sizes, max_size=4))
def test_a_replicator_that_died_makes_no_difference_once_it_is_back(
    chosen: Steps, deaths: list[int], cuts: list[list[int]]
) -> None:
    world = Audited(topic_of(chosen))
    store = world.store
    for after, chunks in zip(chain[int | None](deaths, repeat(None)), chain(cuts, repeat([100])), strict=False):
        store.dies_at = None if after is None else store.writes + after
        try:
            world.flush(*chunks)
        except KilledError:
            continue
        break
    assert world.differences() == []


@examples(60)
@given(steps, sizes, SEGMENTS, st.data())
def test_an_event_that_is_taken_away_is_found_and_nothing_else(
    chosen: Steps, cuts: list[int], size: int, data: st.DataObject
) -> None:
    world = Audited(topic_of(chosen), segment_size=size)
    world.flush(*cuts)
    visible = [
        (id, event.seq_nr, event.offset)
        for id in world.store.ids("journal")
        if (head := world.store.head(key(id))) is not None
        for event in world.store.read(key(id), head, 1)
    ]
    if not visible:
        return
    id, seq_nr, offset = data.draw(st.sampled_from(visible))

    def without(rows: list[StoredRow]) -> list[StoredRow]:
        return [row for row in rows if row.seq_nr != seq_nr or row.columns.offset != offset]

    world.rows.changes[key(id)] = without
    found = [(each.kind, each.id, each.seq_nr, each.offset) for each in world.differences()]
    assert found == [(FindingKind.missing_event, id, seq_nr, offset)]
