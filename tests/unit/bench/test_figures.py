"""Rates and percentiles say what they claim to say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.bench.figures import (
    DrainRate,
    Sample,
    TrialSpread,
    difference,
    drain_of,
    latency_of,
    percentile,
    ratio_of,
    ratio_of_medians,
    sent_of,
    spread_dict,
    spread_of,
    spread_text,
)


def test_a_rate_counts_from_the_first_visible_record_to_the_last() -> None:
    looks = [Sample(10.0, 0), Sample(11.0, 100), Sample(12.0, 600), Sample(13.0, 1_100)]
    assert drain_of(looks, rows=1_100, started=9.0) == DrainRate(
        records_per_second=500.0, seconds=2.0, startup_seconds=2.0
    )


def test_looks_after_the_last_record_do_not_lower_the_rate() -> None:
    looks = [Sample(1.0, 100), Sample(2.0, 200), Sample(3.0, 200), Sample(9.0, 200)]
    assert drain_of(looks, rows=200, started=0.0).records_per_second == 100.0


def test_the_markers_of_transactions_are_no_records() -> None:
    looks = [Sample(1.0, 1_004), Sample(2.0, 2_008)]
    assert drain_of(looks, rows=2_000, started=0.0).records_per_second == pytest.approx(1_000)


def test_what_is_visible_at_once_is_not_rated() -> None:
    drain = drain_of([Sample(1.0, 0), Sample(2.0, 50), Sample(3.0, 50)], rows=50, started=0.5)
    assert drain == DrainRate(None, 0.0, 1.5)
    assert drain.as_dict()["records_per_second"] is None


def test_a_drain_that_moved_nothing_is_not_rated() -> None:
    assert drain_of([Sample(1.0, 0)], rows=5, started=0.0) == DrainRate(None, 0.0, 0.0)


def test_a_sender_is_rated_from_its_first_call_to_its_last_acknowledgement() -> None:
    assert sent_of(rows=100, started=1.0, began=3.0, ended=3.5) == DrainRate(200.0, 0.5, 2.0)


@pytest.mark.parametrize(("quantile", "value"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_a_percentile_is_a_value_that_was_measured(quantile: float, value: int) -> None:
    assert percentile(range(1, 101), quantile) == value


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_rise_and_end_at_the_maximum(values: list[float]) -> None:
    found = latency_of(values)
    assert found["p50"] <= found["p95"] <= found["p99"] <= found["max"] == round(max(values), 2)
    assert found["count"] == len(values)


def test_no_latencies_give_no_percentiles() -> None:
    assert latency_of([]) == {"count": 0}


@pytest.mark.parametrize(
    ("ours", "peer", "ratio"), [(50.0, 100.0, 0.5), (None, 100.0, None), (50.0, None, None), (50.0, 0.0, None)]
)
def test_a_ratio_needs_both_sides(ours: float | None, peer: float | None, ratio: float | None) -> None:
    assert ratio_of(ours, peer) == ratio


@given(st.lists(st.floats(min_value=0.001, max_value=1e9), min_size=1, max_size=9))
def test_a_spread_holds_all_its_values(values: list[float]) -> None:
    spread = spread_of(values)
    assert spread is not None
    assert spread.low == min(values) <= spread.median <= spread.high == max(values)
    assert spread.trials == len(values)


def test_one_slow_trial_does_not_move_the_median() -> None:
    assert spread_of([100.0, 101.0, 3.0]) == TrialSpread(100.0, 3.0, 101.0, 3)


def test_what_could_not_be_measured_is_left_out_of_a_spread() -> None:
    assert spread_of([None, 4.0, None]) == TrialSpread(4.0, 4.0, 4.0, 1)
    assert spread_of([None]) is None
    assert spread_of([]) is None


def test_a_ratio_compares_medians() -> None:
    assert ratio_of_medians(spread_of([10.0, 30.0, 20.0]), spread_of([4.0, 5.0, 6.0])) == 4.0
    assert ratio_of_medians(spread_of([10.0]), None) is None
    assert ratio_of_medians(None, spread_of([10.0])) is None


def test_a_spread_is_told_with_its_edges_and_a_single_trial_without() -> None:
    assert spread_text(spread_of([1_000.0, 2_500.4, 4_000.0]), 0) == "2,500 (1,000..4,000)"
    assert spread_text(spread_of([2.25]), 1) == "2.2"
    assert spread_text(None, 1) == "-"
    assert spread_dict(spread_of([1.0, 2.0])) == {"median": 1.5, "min": 1.0, "max": 2.0, "trials": 2}
    assert spread_dict(None) is None


def test_a_difference_needs_both_readings() -> None:
    assert difference(5.0, 3.5) == 1.5
    assert difference(None, 3.5) is None
    assert difference(5.0, None) is None
