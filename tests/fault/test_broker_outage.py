"""The broker dies under load and comes back: relay and pipeline wait it out, and nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from inorder.embedded import Kafka
from tests.fault.conftest import Ordeal
from tests.fault.fleet import NewFleet, Way
from tests.fault.standing import told_where_it_stands

OUTAGES = 2
LONG_OUTAGE_SECONDS = 60.0
STORMS = int(os.environ.get("STORMS", "10"))
STORM_SEED = int(os.environ.get("STORM_SEED", "27"))


@pytest.mark.spark
@pytest.mark.short
@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ordeal", [1], indirect=True)
def test_a_broker_killed_under_load_costs_time_and_nothing_else(ordeal: Ordeal) -> None:
    with told_where_it_stands(ordeal.path):
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


@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "way",
    [
        Way("drain", "native", "exactly-once", "kafka"),
        Way("drain", "native", "at-least-once", "database", 4),
        Way("mark-purge", "goharvest", "exactly-once", "database", 4),
        Way("mark-purge", "native", "at-least-once", "kafka"),
    ],
    ids=str,
)
def test_a_broker_away_for_a_minute_sets_no_record_aside_and_the_backlog_follows_in_order(
    new_fleet: NewFleet, tmp_path: Path, way: Way
) -> None:
    with Kafka(tmp_path / "kafka") as broker:
        fleet = new_fleet(way, bootstrap=broker.bootstrap)
        with fleet.load:
            fleet.start_staggered(2, 1.0)
            fleet.wait_for_progress()
            broker.kill()
            threading.Event().wait(LONG_OUTAGE_SECONDS)
            fleet.history.append(f"the broker is back, {fleet.waiting()} rows wait")
            broker.start()
            fleet.wait_for_progress()
        assert len(fleet.running()) == 2, "no instance ended for it"
        verdict = fleet.verdict()
    assert verdict.holds, verdict


@pytest.mark.fault
@pytest.mark.timeout(300 + 120 * STORMS)
@pytest.mark.parametrize("ordeal", [STORM_SEED], indirect=True)
def test_storms_of_kills_and_restarts_of_the_broker_cost_time_and_nothing_else(ordeal: Ordeal) -> None:
    """Kills at any moment, also of a broker that has just begun to recover, with relay and job under load."""
    chance = random.Random(ordeal.seed)
    with told_where_it_stands(ordeal.path):
        with ordeal.load():
            ordeal.wait_for_progress()
            for number in range(STORMS):
                for _ in range(chance.choice([1, 1, 2, 3])):
                    threading.Event().wait(chance.uniform(0, 2))
                    ordeal.path.kill_broker()
                    threading.Event().wait(chance.uniform(0, 1))
                    ordeal.path.start_broker()
                ordeal.path.relay.check()
                ordeal.path.pipeline.check()
                ordeal.wait_for_progress()
                ordeal.history.append(f"storm {number + 1} at {ordeal.path.position()}")
        summary = ordeal.verdict()
    assert summary.holds, summary.verdict
    assert summary.committed == summary.published > 0
