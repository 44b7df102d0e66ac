"""Relay and Spark driver die by SIGKILL at any moment, and nothing is lost, duplicated or reordered."""

from __future__ import annotations

import pytest

from tests.fault.conftest import Ordeal

FEW_KILLS, KILLS = 3, 10
MORE_SEEDS = [7, 42, 1971, 20261115, 31337]


def survive(ordeal: Ordeal, kills: int) -> None:
    with ordeal.load():
        ordeal.kill_at_random(kills)
    summary = ordeal.verdict()
    assert summary.holds, summary.verdict
    assert summary.committed == summary.published > 0
    assert len(ordeal.history) == kills


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ordeal", [20261], indirect=True)
def test_relay_and_driver_may_be_killed_and_every_guarantee_holds(ordeal: Ordeal) -> None:
    survive(ordeal, FEW_KILLS)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ordeal", [20261], indirect=True)
def test_relay_and_driver_may_be_killed_ten_times_and_every_guarantee_holds(ordeal: Ordeal) -> None:
    survive(ordeal, KILLS)


@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ordeal", MORE_SEEDS, indirect=True)
def test_the_same_with_other_seeds_and_more_kills(ordeal: Ordeal) -> None:
    survive(ordeal, 3 * KILLS)
