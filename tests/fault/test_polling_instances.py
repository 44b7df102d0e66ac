"""Several instances of a polling relay, of which one is master by a key in Redis, while masters are killed and frozen.

Each record carries the instance and the term that sent it, so the topics themselves show which instance published when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

import pytest

from inorder.kafka.readers import ReadRecord
from tests.fault.faulty_relay import TAG
from tests.fault.fleet import Fleet, NewFleet, Way

LIFETIME_MS, RACE_MS = 1500, 300
SLACK_MS = 20_000
"""Time for a new master to fence the old one and to read, on a busy machine."""
FREEZE_SECONDS = 3.0

_MORE = """\
[relay.polling]
queue_wait_ms = 20
missing_wait_ms = 300
missing_max_retries = 2
[relay.lease]
lifetime_ms = {lifetime}
race_interval_ms = {race}
[redis]
url = "{redis}"
"""


def way(redis_url: str, delivery: str = "exactly-once", error_rate: float = 0.0) -> Way:
    more = _MORE.format(lifetime=LIFETIME_MS, race=RACE_MS, redis=redis_url)
    return Way(
        "polling",
        "trendyol",
        delivery,
        "redis",
        error_rate=error_rate,
        more=more,
        is_tagged=delivery == "exactly-once",
    )


def terms(records: Iterable[ReadRecord]) -> list[bytes | None]:
    """The instances that published a partition, term after term."""
    return [tag for tag, _ in groupby(dict(record.headers)[TAG] for record in records)]


def partitions(records: Sequence[ReadRecord]) -> list[list[ReadRecord]]:
    placed = sorted(records, key=lambda record: (record.topic, record.partition, record.offset))
    return [list(group) for _, group in groupby(placed, key=lambda record: (record.topic, record.partition))]


def assert_one_publishes_at_a_time(records: Sequence[ReadRecord]) -> None:
    """Checks that no partition returns to a past term, and that all partitions have the terms in one order."""
    followed: dict[bytes | None, set[bytes | None]] = {}
    for partition in partitions(records):
        found = terms(partition)
        assert len(found) == len(set(found)), found
        for earlier, later in pairwise(found):
            followed.setdefault(earlier, set()).add(later)
    assert not any(earlier in followed.get(later, ()) for earlier, ends in followed.items() for later in ends)


def hand_overs(records: Sequence[ReadRecord]) -> list[int]:
    """Milliseconds between the last record of each term and the first one of the next, whatever their partitions."""
    ordered = sorted(records, key=lambda record: record.timestamp_ms)
    spans = [list(group) for _, group in groupby(ordered, key=lambda record: dict(record.headers)[TAG])]
    return [later[0].timestamp_ms - earlier[-1].timestamp_ms for earlier, later in pairwise(spans)]


def troubled(fleet: Fleet, kills: int) -> None:
    """Three instances, of which the master is killed and frozen, and all stop in order."""
    with fleet.load:
        fleet.start_staggered(3, 0.3)
        fleet.wait_for_progress()
        for _ in range(kills):
            fleet.kill_leader()
            fleet.freeze_leader(FREEZE_SECONDS)
        fleet.stop_in_order()


@pytest.mark.timeout(240)
def test_three_instances_one_master_and_nothing_lost_doubled_or_overtaken(new_fleet: NewFleet, redis_url: str) -> None:
    fleet = new_fleet(way(redis_url))
    troubled(fleet, kills=1)
    verdict = fleet.verdict()
    assert verdict.holds, verdict
    records = fleet.records()
    assert_one_publishes_at_a_time(records)
    # One was killed and the next one frozen, so a third has published; a later one may find nothing left.
    assert len({tag for each in partitions(records) for tag in terms(each)}) >= 3, "was one killed, and one frozen?"
    assert max(hand_overs(records)) <= LIFETIME_MS + RACE_MS + SLACK_MS, hand_overs(records)
    assert not fleet.said("Traceback")


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_masters_that_fall_again_and_again_with_failing_clients_keep_every_promise(
    new_fleet: NewFleet, redis_url: str, delivery: str
) -> None:
    fleet = new_fleet(way(redis_url, delivery, error_rate=0.02))
    troubled(fleet, kills=4)
    verdict = fleet.verdict()
    assert verdict.holds, verdict
    if delivery == "exactly-once":
        assert_one_publishes_at_a_time(fleet.records())
    assert not fleet.said("Traceback")
