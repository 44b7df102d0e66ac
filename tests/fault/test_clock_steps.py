"""Clocks decide nothing: instances whose wall clocks are set hours ahead and back publish as others do."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from inorder.embedded.stack import Program
from tests.fault import stepping_relay
from tests.fault.fleet import Fleet, NewFleet, Way
from tests.injections import INJECTIONS

STEPS = 6
FARTHEST_SECONDS = 26 * 3600
"""More than a day: what is kept by the day must notice as well."""
POLLING = "[relay.polling]\nmissing_wait_ms = 300\nmissing_max_retries = 2"


def start_stepping(fleet: Fleet, clock: Path) -> Program:
    """One more instance, whose clock follows the file."""
    clock.write_text("0")
    argv = [sys.executable, stepping_relay.__file__, str(clock), "relay", "run", "--config", str(fleet.config)]
    instance = Program(f"{fleet.place.name}-{len(fleet.instances)}", argv, fleet.place.folder)
    instance.start()
    fleet.instances.append(instance)
    return instance


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "way",
    [
        Way("drain", leadership="kafka"),
        Way("drain", leadership="database", shards=2, more="retention_days = 1"),
        Way("mark-purge", "goharvest", "at-least-once", "database"),
        Way("polling", "trendyol", leadership="database", more=POLLING),
    ],
    ids=str,
)
def test_clocks_that_are_set_ahead_and_back_change_nothing(new_fleet: NewFleet, tmp_path: Path, way: Way) -> None:
    fleet, chance = new_fleet(way), random.Random(1)
    clocks = [tmp_path / f"clock-{number}" for number in range(2)]
    with fleet.load:
        for clock in clocks:
            start_stepping(fleet, clock)
        fleet.wait_for_progress()
        for number in range(STEPS):
            # Each in turn, so that the instances disagree; at last one of them dies while they do.
            step = chance.uniform(-FARTHEST_SECONDS, FARTHEST_SECONDS)
            clocks[number % 2].write_text(str(step))
            INJECTIONS.note("clock of a relay set")
            fleet.history.append(f"clock {number % 2} at {step:+.0f} s")
            fleet.wait_for_progress()
        fleet.instances[0].kill()
        fleet.wait_for_progress()
    verdict = fleet.verdict()
    assert verdict.holds, verdict
    assert not fleet.said("Traceback")
