"""A relay that was frozen and replaced resumes and changes nothing."""

from __future__ import annotations

import pytest

from inorder.embedded.stack import Program
from tests.fault.fleet import NewFleet, Way

TIMES = 2


def terms(relay: Program) -> int:
    """How often it has become the leader."""
    return relay.log_path.read_text().count("relay.taken_over")


@pytest.mark.timeout(300)
def test_a_paused_relay_that_was_overtaken_wakes_up_and_doubles_nothing(new_fleet: NewFleet) -> None:
    # A lease in the database ends sooner than a session of a consumer group, and leaves the fence to the broker.
    fleet = new_fleet(Way(leadership="database"))
    with fleet.load:
        first = fleet.start_one()
        fleet.wait_for_progress()
        for _ in range(TIMES):
            before = terms(first)
            first.pause()
            second = fleet.start_one()
            fleet.wait_for_progress()
            assert terms(second) > 0, "who published? The first relay is paused"
            first.resume()
            fleet.wait_for_progress()
            second.check()
            second.stop()
            fleet.wait_for_progress()
            first.check()
            # The broker's fence stops it, or the lease does before it publishes: either way its old term is over.
            assert terms(first) > before, "the first relay never noticed: was it overtaken?"
    verdict = fleet.verdict()
    assert verdict.holds, verdict
