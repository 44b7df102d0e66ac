"""Live records are due at a fixed rate, whatever becomes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.bench.load import Schedule
from inorder.bench.options import LIVE_SLACK_SECONDS, BenchOptions


def test_the_warm_up_comes_on_top_and_is_not_counted() -> None:
    schedule = Schedule(rate=500, seconds=10.0, warm_seconds=2.0)
    assert (schedule.warm, schedule.total, schedule.lasts) == (1_000, 6_000, 12.0)


def test_records_are_due_evenly() -> None:
    schedule = Schedule(rate=500, seconds=1.0)
    assert [schedule.due_ns(number) for number in (0, 1, 500)] == [0, 2_000_000, 1_000_000_000]


@given(st.integers(1, 10_000), st.integers(0, 100_000))
def test_rounding_never_adds_up(rate: int, number: int) -> None:
    exact = number * 1e9 / rate
    assert Schedule(rate, 1.0).due_ns(number) == pytest.approx(exact, abs=1)


@given(st.integers(1, 200), st.integers(1, 8))
def test_writers_share_every_record_once(rate: int, writers: int) -> None:
    schedule = Schedule(rate, seconds=1.0, warm_seconds=0.5)
    shares = [number for writer in range(writers) for number in schedule.share(writer, writers)]
    assert sorted(shares) == list(range(schedule.total))


def test_a_live_phase_ends_a_while_after_its_schedule() -> None:
    options = BenchOptions(rows=1, schedule=Schedule(rate=10, seconds=3.0, warm_seconds=1.0))
    assert options.live_cap == 4.0 + LIVE_SLACK_SECONDS


def test_a_worker_gets_the_whole_schedule() -> None:
    schedule = Schedule(rate=10, seconds=3.0, warm_seconds=1.0)
    assert Schedule(**BenchOptions(1, schedule).live_task) == schedule  # type: ignore[arg-type]  # the rate comes back whole


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert BenchOptions() == BenchOptions(200_000, Schedule(rate=500, seconds=10.0, warm_seconds=2.0))
