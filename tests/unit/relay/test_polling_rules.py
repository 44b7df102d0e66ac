"""What is taken of a read, what is written down of a round, and what a new owner makes of the last marker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.message import OutboxRow
from inorder.relay.marker import Marker, ranges
from inorder.relay.polling_rules import (
    Gaps,
    Missing,
    Round,
    Step,
    chunks,
    ordered_by,
    recover,
    settlement,
    step,
    waiting_keys,
    writes,
)
from inorder.relay.stores.ports import MissingEvent, Settlement

IDS = st.lists(st.integers(1, 60), unique=True, max_size=30).map(sorted)


def row(id: int, key: bytes | None = b"k") -> OutboxRow:
    return OutboxRow(id, "t", key, b"v", (), None, None)


def rows(*ids: int) -> list[OutboxRow]:
    return [row(id) for id in ids]


@pytest.mark.parametrize(
    ("offset", "ids", "to_offset", "gaps"),
    [
        (0, [], 0, []),
        (7, [], 7, []),
        (0, [1, 2, 3], 3, []),
        (0, [3], 3, [1, 2]),
        (4, [6, 7, 9], 9, [5, 8]),
    ],
)
def test_the_offset_goes_to_the_last_id_and_what_was_not_there_is_a_gap(
    offset: int, ids: list[int], to_offset: int, gaps: list[int]
) -> None:
    found = step(offset, rows(*ids))
    assert ([each.id for each in found.rows], found.to_offset, list(found.gaps)) == (ids, to_offset, gaps)
    assert found.large_gap_to is None


def test_a_large_gap_is_not_recorded_id_by_id() -> None:
    assert step(0, rows(1_000_000, 1_000_001)) == Step((), 0, large_gap_to=999_999)
    before = step(0, rows(1, 2, 1_000_000))
    assert ([each.id for each in before.rows], before.to_offset, before.large_gap_to) == ([1, 2], 2, None)


@given(st.integers(0, 10), IDS, st.integers(0, 20))
def test_a_step_accounts_for_every_id_that_it_passes(offset: int, ids: list[int], most_gaps: int) -> None:
    visible = rows(*(id for id in ids if id > offset))
    found = step(offset, visible, most_gaps=most_gaps)
    passed = sorted([*(each.id for each in found.rows), *found.gaps])
    assert passed == list(range(offset + 1, found.to_offset + 1))
    assert len(found.gaps) <= most_gaps
    assert list(found.rows) == visible[: len(found.rows)], "nothing is taken before what is left"
    if visible and found.to_offset == offset:
        assert found.large_gap_to == visible[0].id - 1


@given(
    offset=st.integers(0, 10),
    ids=IDS,
    missing=st.frozensets(st.integers(1, 10)),
    chance=st.randoms(use_true_random=False),
)
def test_every_id_that_the_offset_passes_is_delivered_dead_or_recorded(
    offset: int, ids: list[int], missing: frozenset[int], chance: object
) -> None:
    draw = chance.random  # type: ignore[attr-defined]  # hypothesis hands out a random.Random
    taken = step(offset, rows(*(id for id in ids if id > offset)))
    recorded = {id for id in missing if id <= offset}
    work = Round(offset, taken)
    for id in [*(each.id for each in taken.rows), *recorded]:
        fate = draw()
        if fate < 0.5:
            work.delivered[id] = 0
        elif fate < 0.7:
            work.refused.add(id)
    dead = {id for id in [*taken.gaps, *recorded] if id not in work.delivered and draw() < 0.3}
    found = settlement(work, recorded, dead)
    after = (recorded | {event.id for event in found.missed}) - set(found.delivered)
    for id in [*range(offset + 1, found.to_offset + 1), *recorded]:
        is_out = id in work.delivered or id in dead
        assert is_out != (id in after), id
    assert {event.id for event in found.missed if event.exception_thrown} | set(found.failed) >= work.refused - dead
    assert (found.from_offset, found.to_offset) == (offset, taken.to_offset)


def test_an_event_that_is_given_up_at_once_is_recorded_and_moved_in_one() -> None:
    work = Round(4, Step(rows(5), 5), refused={5}, exceeded={5: "too large"})
    found = settlement(work, set())
    assert found.missed == [MissingEvent(5, exception_thrown=True)]
    assert found.exceeded == [(5, "too large")]


def test_a_round_without_any_news_writes_nothing() -> None:
    assert not writes(settlement(Round(5, Step((), 5)), {1, 2}))
    assert writes(settlement(Round(5, Step((), 6)), set()))
    assert writes(settlement(Round(5, Step((), 5), waited=[1]), {1, 2}))


@pytest.mark.parametrize(
    ("offset", "floor", "published", "wanted"),
    [
        (10, 10, [], None),
        (10, 10, [11, 12], Settlement(10, 12, delivered=[11, 12])),
        (10, 10, [3, 12], Settlement(10, 12, missed=[MissingEvent(11)], delivered=[3, 12])),
        (12, 10, [3, 11, 12], Settlement(12, 12, missed=[], delivered=[3, 11, 12])),
        (9, 10, [11, 12], None),
    ],
    ids=["nothing", "not settled", "with a hole", "settled", "offset set back"],
)
def test_a_new_owner_settles_what_the_last_marker_names(
    offset: int, floor: int, published: list[int], wanted: Settlement | None
) -> None:
    found = recover(offset, Marker(ranges(published), floor))
    if wanted is None:
        assert found is None
        return
    assert found is not None
    assert (found.from_offset, found.to_offset) == (wanted.from_offset, wanted.to_offset)
    assert (list(found.missed), list(found.delivered)) == (list(wanted.missed), list(wanted.delivered))


@given(st.integers(0, 10), IDS)
def test_a_recovery_passes_no_id_that_it_does_not_name(offset: int, published: list[int]) -> None:
    found = recover(offset, Marker(ranges(published), 0))
    if found is None:
        assert not published
        return
    named = {event.id for event in found.missed} | set(found.delivered)
    assert named >= set(range(offset + 1, found.to_offset + 1))
    assert not {event.id for event in found.missed} & set(published)


def test_with_an_order_rows_wait_for_their_key_and_without_one_for_nobody() -> None:
    keeps, passes = ordered_by(keep_order=True), ordered_by(keep_order=False)
    assert keeps(row(1)) == keeps(row(2)) != keeps(row(3, b"other"))
    assert passes(row(1)) != passes(row(2))
    assert keeps(row(1, None)) != keeps(row(2, None)), "no key, no order"


def test_only_keys_of_topics_whose_policy_is_park_wait_for_an_exceeded_event() -> None:
    parked = {("a", b"k"): (1,), ("b", b"k"): (2,)}
    assert waiting_keys(parked, lambda topic: "park" if topic == "a" else "skip") == {("a", b"k"): (1,)}


@given(IDS, st.integers(1, 7))
def test_chunks_are_all_ids_the_highest_first(ids: list[int], size: int) -> None:
    found = list(chunks(ids, size))
    assert [id for part in reversed(found) for id in part] == ids
    assert all(0 < len(part) <= size for part in found)


def test_a_gap_is_proven_when_all_that_were_open_after_the_read_have_ended() -> None:
    gaps = Gaps()
    gaps.miss([1, 2], frozenset({"a", "b"}))
    gaps.miss([3], frozenset({"b", "c"}))
    gaps.miss([4], frozenset())
    assert (gaps.ids(), gaps.ended()) == ([1, 2, 3, 4], [4])
    gaps.observe(frozenset({"b", "new"}))
    assert gaps.ended() == [4]
    gaps.observe(frozenset({"new"}))
    assert gaps.ended() == [1, 2, 3, 4]
    gaps.forget([2, 4])
    assert (gaps.ids(), len(gaps)) == ([1, 3], 2)


def test_a_database_that_cannot_name_transactions_proves_nothing() -> None:
    gaps = Gaps()
    gaps.miss([1], None)
    gaps.observe(None)
    assert (gaps.ended(), gaps.unwatched()) == ([], frozenset({1}))
    gaps.observe(frozenset({"a"}))
    assert gaps.unwatched() == frozenset(), "from now on it can"
    gaps.observe(frozenset())
    assert gaps.ended() == [1]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.frozensets(st.sampled_from("abc")), st.frozensets(st.sampled_from("abc"))))
)
def test_no_gap_is_proven_while_somebody_lives_who_may_bring_it(
    steps: list[tuple[int, frozenset[str], frozenset[str]]],
) -> None:
    """Transactions end and never come back under the same name, so the names here carry the step they began in."""
    gaps, bearers, open_now = Gaps(), dict[int, set[str]](), set[str]()
    for number, (id, begun, ended) in enumerate(steps):
        open_now -= {name for name in open_now if name[0] in ended}
        gaps.observe(frozenset(open_now))
        open_now |= {f"{name}{number}" for name in begun}
        if id not in bearers:
            gaps.miss([id], frozenset(open_now))
            bearers[id] = set(open_now)
        for proven in gaps.ended():
            assert not bearers[proven] & open_now
    gaps.observe(frozenset())
    assert gaps.ended() == sorted(bearers)


def test_what_people_change_in_the_table_of_missing_events_is_found() -> None:
    missing = Missing()
    missing.load([MissingEvent(1, 2, True), MissingEvent(2)])
    assert missing.unseen(10) == ([1, 2], True)
    missing.record_read([1, 2], [1], frozenset())
    assert (missing.unseen(10), missing.gaps.ids()) == (([], True), [2])
    assert (missing.take_refused(1), missing.take_refused(1)) == (True, False)
    assert missing.retries(1) == 3
    missing.load([MissingEvent(1, 3, True), MissingEvent(9)])
    assert missing.unseen(10) == ([9], True)
    assert (missing.gaps.ids(), missing.ids) == ([], {1, 9})


def test_the_attempt_that_makes_an_event_missing_is_no_retry() -> None:
    missing = Missing()
    assert missing.retries(5) == 0
    missing.apply(Settlement(4, 5, missed=[MissingEvent(5, exception_thrown=True)]))
    assert (missing.retries(5), missing.retries(5)) == (1, 2)
    missing.apply(Settlement(5, 5, delivered=[5]))
    assert (missing.ids, missing.retries(5)) == (set(), 0)


def test_an_id_that_nobody_can_prove_is_counted_only_after_a_whole_wait() -> None:
    missing = Missing()
    missing.load([MissingEvent(1)])
    missing.record_read([1], [], None)
    assert missing.out_of_patience() == [], "it may have been missed a moment ago"
    assert missing.out_of_patience() == [1]
