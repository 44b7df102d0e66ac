"""The driver of `resident` at the size of a large cluster."""

from __future__ import annotations

import pytest

from tests.proof.driver_scale import measure


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_a_thousand_partitions_and_four_hundred_tasks_cost_the_driver_a_fraction_of_a_core_and_no_more_memory() -> None:
    cost = measure()
    assert cost.outcomes_per_second > 500, "the tasks have reported"
    assert cost.cores < 0.2
    assert cost.last_mb < cost.first_mb + 10
