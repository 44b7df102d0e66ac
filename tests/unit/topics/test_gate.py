"""A generation is applied when all of the one before is, and what stands behind an end is applied by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import Pointer, Slice, SliceOutcome, SliceWorker, before_end
from inorder.topics.gate import BoundedWork, count_left, is_drained, may_apply, version_generation
from inorder.topics.generations import Generation, Pointers, TopicState

ZERO = Generation(0, "orders", 2, ends=(3, 0))
ONE = Generation(1, "orders.g1", 4, ends=(0, 5, 0, 2))
TWO = Generation(2, "orders.g2", 8)
STATE = TopicState("orders", (ZERO, ONE, TWO))


@pytest.mark.parametrize(
    ("pointers", "wanted"),
    [
        ({}, ZERO),
        ({"orders": {0: 2}}, ZERO),
        ({"orders": {0: 3}}, ONE),
        ({"orders": {0: 9, 1: 9}}, ONE),
        ({"orders": {0: 3}, "orders.g1": {1: 5}}, ONE),
        ({"orders": {0: 3}, "orders.g1": {1: 5, 3: 2}}, TWO),
        ({"orders.g1": {1: 5, 3: 2}}, ZERO),
    ],
)
def test_exactly_one_generation_may_be_applied_at_a_time(
    pointers: dict[str, dict[int, int]], wanted: Generation
) -> None:
    assert may_apply(STATE, lambda topic: pointers.get(topic, {})) == wanted


def test_an_open_generation_is_never_drained() -> None:
    assert not is_drained(TWO, dict.fromkeys(range(8), 10**9))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.dictionaries(st.integers(0, 5), st.integers(0, 12)))
def test_nothing_is_left_if_and_only_if_it_is_drained(ends: list[int], pointers: dict[int, int]) -> None:
    generation = replace(ZERO, partitions=len(ends), ends=tuple(ends))
    assert is_drained(generation, pointers) == (count_left(generation, pointers) == 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=30))
def test_the_gate_never_goes_back_while_pointers_rise(moves: list[tuple[int, int]]) -> None:
    pointers: dict[str, dict[int, int]] = {}
    before = 0
    for partition, offset in moves:
        generation = may_apply(STATE, lambda topic: pointers.get(topic, {}))
        assert generation.number >= before
        before = generation.number
        mine = pointers.setdefault(generation.topic, {})
        mine[partition] = max(offset, mine.get(partition, 0))


@dataclass
class Noting:
    """A worker that notes what it was given."""

    seen: list[tuple[str, int, list[int]]] = field(default_factory=list)

    def pointers(self, topic: str) -> Mapping[int, Pointer]:  # noqa: ARG002 - the port's signature
        return {0: Pointer(7)}

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        return {number: Pointer(first, 0, topic_id) for number, first in firsts.items() if topic}

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        self.seen.append((batch.topic, batch.partition, list(batch.offsets)))
        return SliceOutcome(batch.topic, batch.partition, batch.next_offset or expected, len(batch))

    def close(self) -> None:
        self.seen.append(("closed", 0, []))


@dataclass(frozen=True)
class Work:
    """Opens the same worker every time."""

    worker: Noting = field(hash=False)
    name: str = "upsert:messages"
    topics: tuple[str, ...] = ("orders", "payments")
    needs_headers: bool = True

    def open(self) -> SliceWorker:
        return self.worker


def batch_of(topic: str, partition: int, *offsets: int) -> Slice:
    many = len(offsets)
    return Slice(topic, partition, offsets, [b"k"] * many, [b"v"] * many, [0] * many, [()] * many)


def test_records_behind_an_end_are_shown_to_nobody() -> None:
    noting = Noting()
    work = BoundedWork(Work(noting), (("orders", (5, 2)),))
    assert (work.name, work.topics, work.needs_headers) == ("upsert:messages", ("orders", "payments"), True)
    worker = work.open()
    worker.apply(batch_of("orders", 0, 3, 4), 0)
    worker.apply(batch_of("orders", 0, 4, 6, 7), 0)
    worker.apply(batch_of("orders", 1, 2, 3), 2)
    worker.apply(batch_of("orders", 6, 0, 1), 0)
    worker.apply(batch_of("payments", 1, 8), 0)
    assert noting.seen == [
        ("orders", 0, [3, 4]),
        ("orders", 0, [4]),
        ("orders", 1, []),
        ("orders", 6, []),
        ("payments", 1, [8]),
    ]
    assert worker.pointers("orders") == {0: Pointer(7)}
    assert worker.begin("orders", "id", {1: 5}) == {1: Pointer(5, 0, "id")}
    worker.close()
    assert noting.seen[-1][0] == "closed"


@given(st.sets(st.integers(0, 30)), st.integers(0, 31))
def test_a_cut_keeps_exactly_the_records_before_the_end_with_all_their_columns(offsets: set[int], end: int) -> None:
    batch = batch_of("orders", 0, *sorted(offsets))
    found = before_end(batch, end)
    assert list(found.offsets) == sorted(offset for offset in offsets if offset < end)
    assert {len(found.keys), len(found.values), len(found.timestamps), len(found.headers)} == {len(found)}


def test_pointers_are_those_of_one_pipeline() -> None:
    asked: list[str] = []

    def pointers(topic: str) -> Pointers:
        asked.append(topic)
        return {0: 3}

    may_apply(STATE, pointers)
    assert asked == ["orders", "orders.g1"], "no more are asked for than needed"


@pytest.mark.parametrize(
    ("found", "number"),
    [
        ({}, 1),
        ({"orders": [0, 0]}, 1),
        ({"orders": [0, 3]}, 4),
        ({"orders": [3], "orders.g1": [2, 2]}, 2),
        ({"orders": [0], "other": [7]}, 1),
    ],
)
def test_a_generation_is_newer_than_all_earlier_ones_of_the_pipeline(found: dict[str, list[int]], number: int) -> None:
    assert version_generation(STATE, STATE.generations[1], found) == number
