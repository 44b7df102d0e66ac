"""A topic is deleted while the relay publishes to it: its rows wait, all others continue."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inorder.database.postgres import connect
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.testing.checker import check_delivery
from tests.conftest import Eventually
from tests.contract.shard_log.strict_broker import StrictKafka
from tests.fault.fleet import PARTITIONS, Fleet, NewFleet, Way
from tests.operating import exceeded_rows

LOOKS = 12
BETWEEN_SECONDS = 0.4
"""The interval of the checks: long enough in total for two retries of the deleted topic."""


@pytest.fixture(scope="module")
def strict_kafka(servers_folder: Path) -> Iterator[StrictKafka]:
    """A broker without automatic creation of topics."""
    with StrictKafka(servers_folder / "fault-strict-kafka") as broker:
        yield broker


def first_waiting(fleet: Fleet, topic: str) -> dict[bytes, int]:
    """The next event of each key of a topic."""
    statement = "SELECT key, min(convert_from(value, 'UTF8')::int) FROM outbox WHERE topic = %s GROUP BY key"
    with connect(fleet.place.url, "test") as connection:
        return {bytes(key): place for key, place in connection.execute(statement, [topic])}


def seconds_to_get_through(fleet: Fleet, topic: str) -> float:
    """How long it takes to publish all rows of a topic that wait now."""
    threading.Event().wait(BETWEEN_SECONDS)
    began = time.monotonic()
    fleet.wait_for_progress(f"topic = '{topic}'")
    return time.monotonic() - began


@pytest.mark.timeout(240)
@pytest.mark.parametrize("delivery", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.fault)])
def test_a_deleted_topic_waits_alone_and_its_rows_follow_in_order_when_it_is_back(
    new_fleet: NewFleet, strict_kafka: StrictKafka, eventually: Eventually, delivery: str
) -> None:
    fleet = new_fleet(Way(delivery=delivery, leadership="none"), bootstrap=strict_kafka.bootstrap)
    steady, lost = fleet.topics
    with fleet.load:
        fleet.start_one()
        fleet.wait_for_progress()
        strict_kafka.delete(lost)
        eventually(lambda: fleet.said("relay.topic_waits"))
        took = sorted(seconds_to_get_through(fleet, steady) for _ in range(LOOKS))
        expected = first_waiting(fleet, lost)
        assert expected, "the other topic has gone on while rows of this one waited"
        ensure_topic(fleet.settings.kafka.properties, lost, PARTITIONS)
        fleet.wait_for_progress()
    eventually(lambda: not fleet.waiting(), 60)
    fleet.stop_all()
    fleet.history.append(f"rows of the other topic took {took[0]:.2f} to {took[-1]:.2f} s")
    check_steady(fleet, steady, set(expected), delivery)
    check_restored(fleet, lost, expected)
    assert exceeded_rows(fleet.settings) == []


def check_steady(fleet: Fleet, topic: str, others: set[bytes], delivery: str) -> None:
    """Checks every guarantee for the other topic."""
    committed = [event for event in fleet.load.committed() if event[0] not in others]
    records = read_back(fleet.settings.kafka.properties, topic)
    verdict = check_delivery(committed, [(record.key, int(record.value or b"0")) for record in records])
    if delivery == "at-least-once":
        verdict = replace(verdict, duplicated=0)
    assert verdict.holds, verdict


def check_restored(fleet: Fleet, topic: str, expected: dict[bytes, int]) -> None:
    """Checks that the waiting rows are in the new topic, first copies in order and without a gap."""
    committed = dict(max_places(fleet))
    found: dict[bytes, list[int]] = defaultdict(list)
    for record in read_back(fleet.settings.kafka.properties, topic):
        place = int(record.value or b"0")
        if place not in found[record.key or b""]:
            found[record.key or b""].append(place)
    assert found == {key: list(range(first, committed[key] + 1)) for key, first in expected.items()}


def max_places(fleet: Fleet) -> Iterator[tuple[bytes, int]]:
    """Each key's last event; the events of a key come in ascending order."""
    for key, place in fleet.load.committed():
        assert isinstance(key, bytes)
        yield key, place
