"""The checker of journals finds every way in which a read can be wrong, and blames none that is right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.testing.journal_checker import (
    Read,
    ReadVerdict,
    Shown,
    Written,
    check_journal,
    check_journals,
    moments,
)


def events(*numbers: int, life: str = "a") -> Shown:
    return tuple((number, f"{life}{number}") for number in numbers)


def history(*actions: Written) -> list[Written]:
    """One action after the other: sent at 10, 20, 30, …, acknowledged five later."""
    return [replace(each, sent=10 * at, acknowledged=10 * at + 5) for at, each in enumerate(actions, 1)]


def append(*numbers: int, life: str = "a") -> Written:
    return Written(0, events=events(*numbers, life=life))


def delete(to: int) -> Written:
    return Written(0, delete_to=to)


PURGE = Written(0, is_purge=True)

WRITTEN = history(append(1, 2), append(3, 5), delete(1), PURGE, append(1, life="b"))


def test_moments_are_what_the_journal_holds_after_each_action() -> None:
    assert moments(WRITTEN) == [
        (),
        events(1, 2),
        events(1, 2, 3, 5),
        events(2, 3, 5),
        (),
        events(1, life="b"),
    ]


def test_a_number_counts_once_in_a_life() -> None:
    assert moments(history(append(1, 2), delete(2), append(2, 3, life="b")))[-1] == (), "all or nothing"
    assert moments(history(append(1, 2), delete(2), append(3, life="b")))[-1] == events(3, life="b")


@pytest.mark.parametrize(
    ("began", "ended", "shown"),
    [
        (1, 2, ()),
        (16, 19, events(1, 2)),
        (16, 21, events(1, 2)),  # sent, and not yet acknowledged: both are right
        (16, 21, events(1, 2, 3, 5)),
        (26, 29, events(1, 2, 3, 5)),
        (46, 49, ()),
        (1, 60, events(2, 3, 5)),
        (56, 57, events(1, life="b")),
    ],
)
def test_a_read_of_any_moment_between_its_begin_and_its_end_holds(began: float, ended: float, shown: Shown) -> None:
    verdict = check_journal(WRITTEN, [Read(began, ended, shown)])
    assert (verdict.holds, verdict.reads, verdict.examples) == (True, 1, ())


@pytest.mark.parametrize(
    ("began", "ended", "shown", "fault"),
    [
        (16, 19, (), "lost"),
        (16, 19, events(1), "lost"),
        (16, 21, events(2, 3, 5), "lost"),
        (26, 29, events(1, 2), "lost"),
        (26, 29, events(1, 2, 5), "lost"),
        (56, 59, (), "lost"),
        (1, 9, events(1, 2), "came_back"),
        (36, 39, events(1, 2, 3, 5), "came_back"),
        (46, 49, events(5), "came_back"),
        (56, 59, (*events(1, life="b"), *events(2)), "came_back"),
        (16, 19, events(1, 2, 9), "came_back"),
        (16, 31, events(1, 2, 5), "torn"),
        (36, 41, events(5), "torn"),
        (36, 51, events(2), "torn"),
        (16, 19, events(2, 1), "out_of_order"),
        (16, 19, (*events(1), *events(1, 2)), "out_of_order"),
    ],
)
def test_any_other_read_is_found_out(began: float, ended: float, shown: Shown, fault: str) -> None:
    verdict = check_journal(WRITTEN, [Read(began, ended, shown)])
    assert not verdict.holds
    assert getattr(verdict, fault) == 1
    assert len(verdict.examples) == 1
    assert verdict.lost + verdict.came_back + verdict.torn + verdict.out_of_order == 1


def test_what_one_reader_has_seen_no_later_read_takes_back() -> None:
    unheard = [replace(each, acknowledged=float("inf")) for each in WRITTEN[:2]]
    new, old = events(1, 2, 3, 5), events(1, 2)
    assert check_journal(unheard, [Read(1, 60, new)]).holds
    assert check_journal(unheard, [Read(61, 62, old)]).holds
    verdict = check_journal(unheard, [Read(61, 62, old), Read(1, 60, new)])
    assert (verdict.lost, verdict.reads) == (1, 2)


def test_an_event_that_disappears_and_comes_back_is_found_though_nothing_was_acknowledged() -> None:
    unheard = [Written(10, events=events(1)), Written(20, is_purge=True)]
    seen = [Read(30, 31, events(1)), Read(32, 33, ()), Read(34, 35, events(1))]
    assert check_journal(unheard, seen[:2]).holds
    verdict = check_journal(unheard, seen)
    assert (verdict.came_back, verdict.lost) == (1, 0)


def test_reads_at_the_same_time_owe_each_other_nothing() -> None:
    unheard = [replace(each, acknowledged=float("inf")) for each in WRITTEN]
    assert check_journal(unheard, [Read(61, 70, events(1, 2, 3, 5)), Read(62, 71, events(1, 2))]).holds


def test_journals_are_told_apart_by_their_ids() -> None:
    seen = {"x": [Read(16, 19, events(1, 2))], "y": [Read(16, 19, events(1, 2))]}
    verdict = check_journals({"x": WRITTEN}, seen)
    assert (verdict.reads, verdict.came_back) == (2, 1)
    assert verdict.examples == ("journal y: came back: 1 (a1), 2 (a2) to []",)


def test_verdicts_add_up() -> None:
    one = ReadVerdict(3, 1, 1, 1, 1, ("a",) * 4)
    assert one + one == ReadVerdict(6, 2, 2, 2, 2, ("a",) * 5)


actions = st.lists(
    st.one_of(
        st.integers(1, 3).map(lambda count: ("append", count)),
        st.integers(1, 8).map(lambda to: ("delete", to)),
        st.just(("purge", 0)),
    ),
    max_size=8,
)


def numbered(chosen: list[tuple[str, int]]) -> list[Written]:
    """As a writer does it: rising numbers, unique contents."""
    made: list[Written] = []
    last = 0
    for at, (what, number) in enumerate(chosen):
        if what == "append":
            made.append(append(*range(last + 1, last + 1 + number), life=f"{at}."))
            last += number
        elif what == "delete":
            made.append(delete(min(number, last)))
        else:
            made.append(PURGE)
            last = 0
    return history(*made)


@given(actions, st.lists(st.integers(0, 8), max_size=6))
def test_whoever_reads_one_moment_after_another_is_right_and_whoever_goes_back_is_not(
    chosen: list[tuple[str, int]], order: list[int]
) -> None:
    written = [replace(each, acknowledged=float("inf")) for each in numbered(chosen)]
    states = moments(written)
    looked = [min(at, len(written)) for at in order]
    reads = [Read(1000 + 2 * n, 1001 + 2 * n, states[at]) for n, at in enumerate(looked)]
    at, is_possible = 0, True
    for read in reads:
        while at < len(states) and states[at] != read.events:
            at += 1
        is_possible = is_possible and at < len(states)
    assert check_journal(written, reads).holds == is_possible
    assert check_journal(written, [*reads]).reads == len(reads)
