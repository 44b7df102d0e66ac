"""Figures can be put together in any way and in any order, and stay small whatever is counted."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.measures import (
    BOUNDS,
    COUNT_BOUNDS,
    MOST_LABELS,
    OTHER,
    Histogram,
    MeasureTally,
    absorb,
    read_histograms,
    under,
)
from inorder.engines.progress import add_outcomes
from inorder.engines.slice_work import Measures, SliceOutcome, add_measures

NAMES = st.sampled_from(["records", "latency/append#3", "latency/append#sum", "version/1.0"])
FIGURES = st.dictionaries(NAMES, st.integers(0, 2**40))
MICROS = st.integers(-10, 10**11)


@given(FIGURES, FIGURES, FIGURES)
def test_it_does_not_matter_how_figures_are_put_together(one: Measures, two: Measures, three: Measures) -> None:
    assert add_measures(add_measures(one, two), three) == add_measures(one, add_measures(two, three))
    assert add_measures(one, two) == add_measures(two, one)
    assert add_measures(one, {}) == one


@given(st.lists(MICROS, min_size=1), st.integers(0, 10))
def test_a_spread_has_everything_once_wherever_it_was_cut(times: list[int], cut: int) -> None:
    whole, first, second, at_once = MeasureTally(), MeasureTally(), MeasureTally(), MeasureTally()
    at_once.took_all("latency/append", Counter(times))
    for number, micros in enumerate(times):
        whole.took("latency/append", micros)
        (first if number < cut else second).took("latency/append", micros)
    figures = whole.take()
    assert add_measures(first.take(), second.take()) == at_once.take() == figures
    found = read_histograms(figures, "latency")["append"]
    assert (sum(found.counts), found.total) == (len(times), sum(max(0, each) for each in times))
    for bound, below in zip(BOUNDS, range(1, len(BOUNDS) + 1), strict=True):
        assert sum(found.counts[:below]) == sum(each <= bound * 1_000_000 for each in times)


def test_what_is_taken_is_gone() -> None:
    tally = MeasureTally()
    tally.add("records", 2)
    tally.add("nothing", 0)
    assert (tally.take(), tally.take()) == ({"records": 2}, {})


def test_many_of_one_time_are_counted_at_once() -> None:
    tally = MeasureTally()
    tally.took("round", 2_000, times=5)
    assert read_histograms(tally.take(), "round")[""] == Histogram((0, 5, *[0] * (len(BOUNDS) - 1)), 10_000)


def test_sizes_have_bounds_of_their_own() -> None:
    tally = MeasureTally()
    for size in (1, 3, 4, 1_000_000):
        tally.had("round_records", size)
    found = read_histograms(tally.take(), "round_records", COUNT_BOUNDS)[""]
    assert found == Histogram((1, 1, 1, 0, 0, 0, 0, 0, 0, 1), 1_000_008)


def test_names_that_begin_alike_are_kept_apart() -> None:
    tally = MeasureTally()
    tally.took("round", 1)
    tally.had("round_records", 1)
    figures = tally.take()
    assert [list(read_histograms(figures, name)) for name in ("round", "round_records", "roun")] == [[""], [""], []]


@given(st.dictionaries(st.text(max_size=60) | st.none(), st.integers(1, 9), max_size=60))
def test_words_of_others_are_few_and_harmless_and_none_is_lost(words: dict[str | None, int]) -> None:
    tally = MeasureTally()
    tally.add_labels("version", words)
    figures = tally.take()
    assert len(figures) <= MOST_LABELS + 1
    assert sum(number for _, number in under(figures, "version")) == sum(words.values())
    assert orjson.loads(orjson.dumps(figures)) == figures


@given(st.lists(st.dictionaries(st.sampled_from([f"version/{n}" for n in range(50)]), st.integers(1, 9)), max_size=9))
def test_the_sums_of_a_long_run_have_few_words_too(parts: list[dict[str, int]]) -> None:
    known: dict[str, int] = {}
    for part in parts:
        absorb(known, part)
    assert len(known) <= MOST_LABELS + 1
    assert sum(known.values()) == sum(sum(part.values()) for part in parts)


def test_a_word_that_is_known_is_still_counted_when_there_are_many() -> None:
    known = {f"version/{number}": 1 for number in range(MOST_LABELS)}
    absorb(known, {"version/3": 1, "version/new": 1, "records": 1, "latency/append#2": 1})
    assert (known["version/3"], known[f"version/{OTHER}"], known["records"], known["latency/append#2"]) == (2, 1, 1, 1)


@pytest.mark.parametrize(("earlier", "later"), [({}, {"a": 1}), ({"a": 1}, {}), ({}, {})])
def test_outcomes_that_are_told_as_one_keep_the_measures_of_both(earlier: Measures, later: Measures) -> None:
    def outcome(measures: Measures) -> SliceOutcome:
        return SliceOutcome("t", 0, next_offset=1, read=1, measures=measures)

    assert add_outcomes(outcome(earlier), outcome(later)).measures == add_measures(earlier, later)
