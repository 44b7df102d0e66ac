"""The job `migrate`: generations of a topic are copied one after the other, by both engines, once and in order."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from pyspark.sql import SparkSession

import inorder
from inorder.app import App
from inorder.engines.progress import RunTotals
from inorder.engines.running import follow
from inorder.engines.slice_work import SliceWork
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import ReadRecord, read_back
from inorder.testing.checker import check_delivery, check_placement
from tests.conftest import Eventually
from tests.integration.pipeline.engines import ENGINES, new_engine
from tests.operating import fail_over, migrate_topic
from tests.selection import few

KEYS = 15
PLACES = 6


@pytest.fixture
def settings(postgres_url: str, kafka_bootstrap: str, unique: str) -> inorder.Settings:
    """Of a topic with 2 partitions."""
    found = inorder.Settings.load(
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        relay={"group": unique, "leadership": "database"},
        publisher={"backend": "kafka"},
    )
    ensure_topic(found.kafka.properties, unique, 2)
    return found


def publish(settings: inorder.Settings, topic: str, places: range) -> None:
    messages = [inorder.Message(topic, key=str(key), value=str(place)) for place in places for key in range(KEYS)]
    with inorder.Publisher(settings) as publisher:
        publisher.publish_list(messages)


def copied(settings: inorder.Settings, destination: str, places: range) -> list[ReadRecord]:
    """What the copy holds, once it is known to be whole and in order."""
    found = list(read_back(settings.kafka.properties, destination))
    wanted = [(str(key).encode(), place) for key in range(KEYS) for place in places]
    verdict = check_delivery(wanted, [(record.key, int(record.value or b"")) for record in found])
    verdict += check_placement((record.key, record.partition) for record in found)
    return found if verdict.holds else []


@pytest.mark.parametrize("kind", few(ENGINES))
def test_generations_are_copied_one_after_the_other_and_never_twice(
    kind: str,
    spark: SparkSession,
    settings: inorder.Settings,
    kafka_bootstrap: str,
    unique: str,
    eventually: Eventually,
) -> None:
    publish(settings, unique, range(2))
    fail_over(settings, unique, partitions=5)
    publish(settings, unique, range(2, PLACES))
    destination = f"{unique}.all"
    progress = RunTotals()

    def run_engine(work: SliceWork, over: threading.Event) -> None:
        new_engine(kind, spark, work, kafka_bootstrap).run(over, once=True, listener=progress)

    with App(settings) as app:
        migration = app.migration(unique, destination)
        migration.prepare()
        follow(migration.reading, unique, threading.Event(), run_engine)
    assert progress.totals()["applied"] == KEYS * PLACES
    assert set(migrate_topic(settings, unique, to=destination).values()) == {0}, "whoever copies goes on from there"
    eventually(partial(copied, settings, destination, range(PLACES)))


@pytest.mark.full
def test_a_copy_that_is_followed_goes_on_with_the_next_generation(
    settings: inorder.Settings, unique: str, eventually: Eventually
) -> None:
    publish(settings, unique, range(2))
    fail_over(settings, unique, partitions=5)
    stop, result = threading.Event(), dict[str, int]()
    destination = f"{unique}.all"
    run = partial(migrate_topic, settings, unique, to=destination, once=False, stop=stop)
    copying = threading.Thread(target=lambda: result.update(run()))
    copying.start()
    try:
        eventually(lambda: copied(settings, destination, range(2)), 60)
        publish(settings, unique, range(2, 5))
        fail_over(settings, unique, partitions=3)
        publish(settings, unique, range(5, PLACES))
        eventually(lambda: copied(settings, destination, range(PLACES)), 60)
        with App(settings) as app:
            assert set(app.migration(unique, destination).behind().values()) == {0}
    finally:
        stop.set()
        copying.join(60)
    assert list(result.values()) == [2 * KEYS, 3 * KEYS, KEYS]
