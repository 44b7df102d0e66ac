"""The broker dies under load and comes back: relay and pipeline wait it out, and nothing is lost or doubled."""

from __future__ import annotations

import pytest

from tests.fault.conftest import Ordeal

OUTAGES = 2


@pytest.mark.timeout(400)
@pytest.mark.parametrize("ordeal", [1], indirect=True)
def test_a_broker_killed_under_load_costs_time_and_nothing_else(ordeal: Ordeal) -> None:
    with ordeal.load():
        for _ in range(OUTAGES):
            ordeal.wait_for_progress()
            ordeal.path.kill_broker()
            ordeal.path.relay.check()
            ordeal.path.pipeline.check()
            ordeal.path.start_broker()
        ordeal.wait_for_progress()
    summary = ordeal.verdict()
    assert summary.holds, summary.verdict
    assert summary.committed == summary.published > 0
