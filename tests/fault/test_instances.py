"""goharvest's tests with several instances, with kills and freezes added.

Instances start one after the other and stop in the order in which they started, while their Kafka clients fail in two
of a hundred calls; the leader is killed, and another is frozen until it is replaced. Through all of this each key's
events arrive in order and completely; in `exactly-once` once, and in `at-least-once` with repeats behind the first
copies.
"""

from __future__ import annotations

from itertools import product

import pytest

from tests.fault.fleet import Fleet, NewFleet, Way

ERROR_RATE = 0.02
SHORT_SESSION_MS = 3000
SHORT_FREEZE_SECONDS = 5.0
LONG_FREEZE_SECONDS = 20.0

MATRIX = [
    Way(strategy, layout, delivery, leadership, shards, error_rate=ERROR_RATE)
    for (strategy, layout), delivery, (leadership, shards) in product(
        [("drain", "native"), ("mark-purge", "native"), ("mark-purge", "goharvest")],
        ["exactly-once", "at-least-once"],
        product(["kafka", "database"], [1, 4]),
    )
]
STAGGER_SECONDS = {1: 2.0, 4: 5.0, 8: 2.0}


def start_and_stop(fleet: Fleet, instances: int, stagger_seconds: float, freeze_seconds: float | None) -> None:
    """One test of goharvest's; with `freeze_seconds` leaders are killed and frozen too."""
    with fleet.load:
        fleet.start_staggered(instances, stagger_seconds)
        fleet.wait_for_progress()
        fleet.wait_for_errors()
        if freeze_seconds is not None:
            fleet.kill_leader()
            fleet.freeze_leader(freeze_seconds)
        fleet.stop_in_order()
    verdict = fleet.verdict()
    assert verdict.holds, verdict
    assert fleet.injected() > 0
    assert not fleet.said("Traceback")
    assert not fleet.said("did not stop within")


@pytest.mark.timeout(240)
def test_four_instances_keep_every_promise_through_errors_kills_and_freezes(new_fleet: NewFleet) -> None:
    fleet = new_fleet(Way(session_ms=SHORT_SESSION_MS, error_rate=ERROR_RATE))
    start_and_stop(fleet, 4, 0.5, SHORT_FREEZE_SECONDS)


@pytest.mark.full
@pytest.mark.timeout(240)
def test_eight_instances_share_four_shards_and_hand_them_on_in_order(new_fleet: NewFleet) -> None:
    way = Way("mark-purge", "goharvest", "at-least-once", "database", 4, error_rate=ERROR_RATE)
    start_and_stop(new_fleet(way), 8, 0.3, None)


@pytest.mark.matrix
@pytest.mark.timeout(900)
@pytest.mark.parametrize("instances", [1, 4, 8])
@pytest.mark.parametrize("way", MATRIX, ids=str)
def test_goharvests_matrix(new_fleet: NewFleet, way: Way, instances: int) -> None:
    start_and_stop(new_fleet(way), instances, STAGGER_SECONDS[instances], LONG_FREEZE_SECONDS)
