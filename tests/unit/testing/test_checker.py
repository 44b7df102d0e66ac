"""The checker sees every way in which a relay can break its word, and cries wolf in none other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inorder.testing.checker import Event, Verdict, check_delivery, check_placement, check_rows, fold_updates

HISTORY: list[Event] = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]


def test_a_faithful_delivery_holds() -> None:
    assert check_delivery(HISTORY, HISTORY).holds


def test_keys_may_interleave_in_any_way() -> None:
    assert check_delivery(HISTORY, [("b", 1), ("a", 1), ("a", 2), ("b", 2), ("a", 3)]).holds


def test_a_missing_event_is_lost() -> None:
    verdict = check_delivery(HISTORY, HISTORY[:-1])
    assert (verdict.lost, verdict.holds) == (1, False)
    assert verdict.examples == ("lost: key 'b', event 2",)


def test_each_further_copy_is_a_duplicate() -> None:
    verdict = check_delivery(HISTORY, [*HISTORY, ("a", 3), ("a", 3)])
    assert (verdict.duplicated, verdict.out_of_order) == (2, 0)


def test_an_old_copy_is_a_duplicate_and_not_disorder() -> None:
    assert check_delivery(HISTORY, [*HISTORY, ("a", 1)]) == Verdict(
        duplicated=1, examples=("duplicated: key 'a', event 1",)
    )


def test_an_event_after_a_newer_one_of_its_key_is_out_of_order() -> None:
    verdict = check_delivery(HISTORY, [("a", 1), ("a", 3), ("a", 2), ("b", 1), ("b", 2)])
    assert (verdict.out_of_order, verdict.lost, verdict.duplicated) == (1, 0, 0)


def test_an_event_that_nobody_committed_is_a_phantom() -> None:
    verdict = check_delivery(HISTORY, [*HISTORY, ("c", 1)])
    assert (verdict.phantom, verdict.holds) == (1, False)


def test_a_key_in_two_partitions_is_out_of_order_whatever_the_reader_happened_to_see() -> None:
    verdict = check_placement([("a", 0), ("b", 1), ("a", 0), ("b", 2)])
    assert verdict == Verdict(out_of_order=1, examples=("out of order: key 'b' is in partitions [1, 2]",))


def test_a_row_that_misses_an_update_is_lost_and_one_from_nowhere_a_phantom() -> None:
    verdict = check_rows({1: {"data": "new"}, 2: {"data": "x"}}, {1: {"data": "old"}, 2: {"data": "x"}, 3: {}})
    assert (verdict.lost, verdict.phantom) == (1, 1)
    assert "row 1 is {'data': 'old'}, not {'data': 'new'}" in verdict.examples


def test_partial_updates_fold_in_the_order_of_their_places() -> None:
    assert fold_updates([(2, {"a": 2}), (1, {"a": 1, "b": 1})]) == {"a": 2, "b": 1}


events = st.tuples(st.sampled_from("abc"), st.integers(1, 5))


@given(st.sets(events), st.lists(events))
def test_a_verdict_holds_exactly_when_each_key_arrives_once_and_in_order(
    committed: set[Event], delivered: list[Event]
) -> None:
    faithful = all(
        [event for event in delivered if event[0] == key] == sorted(event for event in committed if event[0] == key)
        for key in "abc"
    )
    assert check_delivery(committed, delivered).holds == faithful
