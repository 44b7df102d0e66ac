"""Relays behind a pooler that lends sessions by transaction publish everything once and in order."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.fault.fleet import NewFleet, Way
from tests.transaction_pooler import TransactionPooler

SESSIONS = 6


LOCK = "[relay.topic_lock]\nlock_seconds = 5\n"


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(Way("drain", leadership="database"), marks=pytest.mark.full),
        pytest.param(Way("mark-purge", "goharvest", leadership="database", shards=2), marks=pytest.mark.full),
        pytest.param(Way("polling", "trendyol", leadership="database"), marks=pytest.mark.fault),
        pytest.param(Way("topic-lock", "deimos", "at-least-once", "none", more=LOCK), marks=pytest.mark.fault),
    ],
    ids=str,
)
def test_two_relays_share_the_sessions_of_a_pooler(new_fleet: NewFleet, postgres_url: str, way: Way) -> None:
    with closing(TransactionPooler(postgres_url, SESSIONS)) as pooler:
        fleet = new_fleet(way, relay_url=pooler.url)
        with fleet.load:
            fleet.start_staggered(2, 0.5)
            fleet.wait_for_progress()
            fleet.kill_leader()
        verdict = fleet.verdict()
    assert verdict.holds, verdict
