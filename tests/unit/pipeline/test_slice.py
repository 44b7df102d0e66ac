"""The slice protocol on a store in memory: replays, chunkings, lost answers, pointers that move back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import Apply, MovedBack, Skip, Slice, SliceOutcome, plan
from inorder.model.errors import GuaranteeError, UnknownOutcomeError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.stores.ports import Value
from tests.fakes.table_store import MemoryTableStore, message, slice_of
from tests.selection import examples

MAPPING = TableMapping("demo", "upsert", "messages")


@pytest.mark.parametrize(
    ("pointer", "expected", "offsets", "decision"),
    [
        (0, 0, (0, 1, 2), Apply(0)),
        (0, 0, (5, 6), Apply(5)),
        (2, 0, (0, 1, 2), Apply(2)),
        (2, 2, (0, 1, 4), Apply(2)),
        (3, 3, (7, 9), Apply(7)),
        (3, 0, (0, 1, 2), Skip()),
        (9, 3, (0, 1, 2), Skip()),
        (3, 3, (), Skip()),
        (2, 3, (3, 4), MovedBack()),
        (0, 1, (), MovedBack()),
    ],
)
def test_the_pointer_decides_what_is_applied(
    pointer: int, expected: int, offsets: tuple[int, ...], decision: object
) -> None:
    assert plan(pointer, expected, slice_of(*((offset, b"{}") for offset in offsets))) == decision


def test_an_outcome_accounts_for_every_record() -> None:
    store = MemoryTableStore()
    batch = slice_of(
        (0, message(1, data="a")),
        (1, message(1, data="b")),
        (2, b"not json"),
        (5, message(2)),
        (6, message(2, data="c")),
    )
    outcome = apply_slice(store, MAPPING, batch)
    assert outcome == SliceOutcome("upsert", 0, next_offset=7, read=5, applied=3, ignored=1, rejected=1)
    again = apply_slice(store, MAPPING, slice_of((6, message(2, data="c")), (8, message(2, data="c"))))
    assert again == SliceOutcome("upsert", 0, next_offset=9, read=2, identical=1, replayed=1)


def test_a_slice_with_nothing_but_garbage_moves_the_pointer() -> None:
    store = MemoryTableStore()
    assert apply_slice(store, MAPPING, slice_of((3, b"?"), (4, None))).next_offset == 5
    assert [letter.code for letter in store.contents.letters.values()] == ["not-json", "null-value"]
    assert store.contents.rows == {}


def test_a_pointer_that_moved_back_stops_loudly_and_writes_nothing() -> None:
    store = MemoryTableStore()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a"))))
    with pytest.raises(GuaranteeError) as caught:
        apply_slice(store, MAPPING, slice_of((7, message(1, data="b"))), expected=7)
    assert "upsert[0]" in caught.value.message
    assert "is at 1, but 7 was committed" in caught.value.message
    assert "inorder pipeline run" in caught.value.hint
    assert store.contents.rows[1].values == (None, "a")


@pytest.mark.parametrize("offsets", [(1, 0), (1, 1), (0, 2, 1)])
def test_a_slice_out_of_order_is_refused(offsets: tuple[int, ...]) -> None:
    store = MemoryTableStore()
    with pytest.raises(GuaranteeError, match="Out of order"):
        apply_slice(store, MAPPING, slice_of(*((offset, message(1, data="a")) for offset in offsets)))
    assert store.contents.pointers == {}


@pytest.mark.parametrize("answer", ["committed", "rolled back"])
def test_a_lost_answer_to_commit_is_settled_by_the_pointer(answer: str) -> None:
    store = MemoryTableStore()
    store.lost_answers.append("committed" if answer == "committed" else "rolled back")
    outcome = apply_slice(store, MAPPING, slice_of((0, message(1, data="a")), (1, message(1, data="b"))))
    assert outcome == SliceOutcome("upsert", 0, next_offset=2, read=2, applied=2)
    assert [tally.written.applied for tally in store.contents.tallies["upsert", 0]] == [2]


def test_answers_lost_again_and_again_are_handed_to_the_caller() -> None:
    store = MemoryTableStore()
    store.lost_answers.extend(["rolled back"] * 3)
    with pytest.raises(UnknownOutcomeError, match="offsets 0 to 0"):
        apply_slice(store, MAPPING, slice_of((0, message(1, data="a"))))
    assert store.contents.rows == {}


RECORDS = st.lists(
    st.one_of(
        st.builds(lambda key, flag: message(key, enabled=flag), st.integers(0, 3), st.booleans()),
        st.builds(lambda key, text: message(key, data=text), st.integers(0, 3), st.sampled_from("abc")),
        st.builds(lambda key, text: message(key, enabled=True, data=text), st.integers(0, 3), st.sampled_from("ab")),
        st.builds(message, st.integers(0, 3)),
        st.sampled_from([b"garbage", b"[]", None]),
    ),
    max_size=24,
)
HOLES = st.lists(st.integers(1, 3), min_size=24, max_size=24)
RANGES = st.lists(st.tuples(st.integers(0, 24), st.integers(1, 24)), max_size=8)


def logged(records: list[bytes | None], holes: list[int]) -> list[tuple[int, bytes | None]]:
    """The records at offsets that rise with holes."""
    return list(zip(itertools.accumulate(holes), records, strict=False))


def folded_one_by_one(log: list[tuple[int, bytes | None]]) -> dict[object, tuple[Value | None, ...]]:
    """An independent reading of the rules: no decoder, no fold, no versions."""
    rows: dict[object, dict[str, Value]] = {}
    for _, value in log:
        document = orjson.loads(value) if value and value.startswith(b"{") else {}
        if len(document) > 1:
            rows.setdefault(document.pop("id"), {}).update(document)
    return {key: (row.get("enabled"), row.get("data")) for key, row in rows.items()}


def chunks(log: list[tuple[int, bytes | None]], sizes: list[int]) -> Iterator[Slice]:
    start = 0
    for size in itertools.chain(sizes, itertools.repeat(5)):
        if start >= len(log):
            return
        yield slice_of(*log[start : start + size])
        start += size


def apply_all(store: MemoryTableStore, log: list[tuple[int, bytes | None]], sizes: list[int]) -> None:
    for batch in chunks(log, sizes):
        apply_slice(store, MAPPING, batch)


@examples(300)
@given(RECORDS, HOLES, RANGES, st.lists(st.integers(1, 9), max_size=6))
def test_replays_of_any_range_in_any_chunking_change_nothing(
    records: list[bytes | None], holes: list[int], ranges: list[tuple[int, int]], sizes: list[int]
) -> None:
    log = logged(records, holes)
    store, contiguous = MemoryTableStore(), 0
    for start, length in ranges:
        # An engine may begin anywhere at or below the pointer, never above it.
        begin = min(start, contiguous)
        apply_slice(store, MAPPING, slice_of(*log[begin : begin + length]))
        contiguous = max(contiguous, min(begin + length, len(log)))
    apply_all(store, log, sizes)
    assert {key: row.values for key, row in store.contents.rows.items()} == folded_one_by_one(log)
    figures = [tally.written for tally in store.contents.tallies["upsert", 0]]
    counted = sum(written.applied + written.identical + written.stale for written in figures)
    others = sum(tally.ignored + tally.rejected for tally in store.contents.tallies["upsert", 0])
    assert counted + others == len(log)


@examples(300)
@given(RECORDS, HOLES, st.lists(st.integers(1, 9), max_size=6), st.lists(st.integers(1, 9), max_size=6))
def test_a_full_replay_after_lost_pointers_moves_no_value_even_for_a_moment(
    records: list[bytes | None], holes: list[int], sizes: list[int], other_sizes: list[int]
) -> None:
    log = logged(records, holes)
    store = MemoryTableStore()
    apply_all(store, log, sizes)
    rows = store.contents.rows
    store.contents.pointers.clear()
    for batch in chunks(log, other_sizes):
        apply_slice(store, MAPPING, batch)
        assert {key: row.values for key, row in store.contents.rows.items()} == {
            key: row.values for key, row in rows.items()
        }
        assert all(store.contents.rows[key].version >= row.version for key, row in rows.items())


def test_a_value_that_went_and_came_back_within_a_slice_moves_the_version() -> None:
    store = MemoryTableStore()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a"))))
    apply_slice(store, MAPPING, slice_of((1, message(1, data="b")), (2, message(1, data="a"))))
    store.contents.pointers.clear()
    assert apply_slice(store, MAPPING, slice_of((0, message(1, data="a")), (1, message(1, data="b")))).stale == 2
    assert store.contents.rows[1].values == (None, "a")


@pytest.mark.parametrize(
    ("others", "partition", "keyless"), [((), 0, "reject"), ((1,), 0, "apply"), ((0,), 1, "apply")]
)
def test_records_without_a_key_are_applied_on_one_partition_or_by_choice(
    others: tuple[int, ...], partition: int, keyless: str
) -> None:
    store, mapping = MemoryTableStore(), replace(MAPPING, keyless=keyless)
    store.begin("upsert", None, dict.fromkeys((partition, *others), 0))
    outcome = apply_slice(store, mapping, slice_of((0, message(1, data="a")), partition=partition))
    assert (outcome.applied, outcome.rejected) == (1, 0)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("refuses", [True, False], ids=["isolated", "at once"])
def test_only_the_records_without_a_key_are_set_aside_on_several_partitions(plain: bool, refuses: bool) -> None:
    store = MemoryTableStore(refuses=lambda row: refuses and row.values[1] == "bad")
    store.begin("upsert", None, {0: 0, 1: 0})
    values = [message(1, data="a"), message(1, data="b"), message(2, data="bad" if refuses else "c")]
    values += [] if plain else [b"garbage"]
    keys: list[bytes | None] = [b"1", None, b"2", b"3"][: len(values)]
    batch = Slice("upsert", 0, list(range(len(values))), keys, values, [None] * len(values))
    apply_slice(store, MAPPING, batch)
    assert store.contents.rows[1].values == (None, "a")
    letters = {offset: letter.code for (_, _, offset), letter in store.contents.letters.items()}
    assert letters == (
        {1: "no-record-key"} | ({2: "refused-by-database"} if refuses else {}) | ({} if plain else {3: "not-json"})
    )


def test_a_stale_record_is_named_with_its_row() -> None:
    store = MemoryTableStore()
    store.begin("upsert", None, {0: 0, 1: 0})
    apply_slice(store, MAPPING, Slice("upsert", 0, [5], [b"7"], [message(7, data="a")], [None]))
    outcome = apply_slice(
        store,
        MAPPING,
        Slice("upsert", 1, [3, 4], [b"7", b"7"], [message(7, data="b"), message(7, data="c")], [None] * 2),
    )
    assert (outcome.stale, outcome.stale_keys) == (2, ("7",))
