"""Invalid input in any amount: exactly the invalid records become dead letters, and valid ones are not delayed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from inorder.engines.slice_work import SliceOutcome
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import GuaranteeError, InorderError, MassRefusalError
from inorder.model.partitioning import Place
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from tests.fakes.table_store import message
from tests.fault.engine_ordeal import PARTITIONS, Stage
from tests.integration.pipeline.engines import ENGINES, new_engine, upsert_work

LONG = pytest.mark.fault
MANY = 500_000
KEYS = 10_000
SLOWER = 2.0
_LETTERS = """
SELECT count(*)::int, count(DISTINCT "offset")::int, min("offset")::int, max("offset")::int
FROM inorder_dead_letter WHERE topic = %s AND "partition" = 0 AND code = 'not-json'
"""


def garbage(number: int) -> bytes:
    """Invalid records."""
    return b"garbage %d" % number


def good(number: int) -> bytes:
    """Valid records, always with new values."""
    return message(number % KEYS, enabled=True, data=f"{number}")


def send(stage: Stage, topic: str, partition: int, value: Callable[[int], bytes], records: int) -> None:
    """So many records in a row."""
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 50})
    for number in range(records):
        producer.produce(topic, value(number), b"0", partition)
        if number % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "records"),
    [
        ("resident", 20_000),
        pytest.param("resident", MANY, marks=LONG),
        pytest.param("micro-batch", MANY, marks=LONG),
    ],
)
def test_garbage_in_a_row_is_buried_exactly_and_the_good_records_around_it_are_applied(
    spark: SparkSession, stage: Stage, kind: str, records: int
) -> None:
    mapping = TableMapping("test", stage.topic, "messages")
    work = upsert_work(SqlTableStores(stage.url, mapping), mapping)
    engine = new_engine(kind, spark, work, stage.bootstrap)
    stage.send(5)
    send(stage, stage.topic, 0, garbage, records)
    stage.send(5)
    engine.run(threading.Event(), once=True)
    assert stage.applied() == (200, records)
    with stage.connect() as connection:
        buried = connection.execute(_LETTERS, (stage.topic,)).fetchone()
        rows = connection.execute("SELECT DISTINCT data FROM messages").fetchall()
    assert buried == (records, records, 50, 50 + records - 1), "all of it, each once, and nothing else"
    assert rows == [("9",)]


@dataclass
class StopWatch:
    """A listener that records when each partition was finished."""

    end: int
    began: float = field(default_factory=time.monotonic)
    seconds: dict[int, float] = field(default_factory=dict)

    def applied(self, outcome: SliceOutcome) -> None:
        if outcome.next_offset == self.end:
            self.seconds[outcome.partition] = time.monotonic() - self.began

    def spent(self, phases: Mapping[str, float]) -> None:
        """Nothing."""

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        """Nothing."""

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        """Not kept."""

    def waits(self, place: Place, error: MassRefusalError) -> None:
        raise AssertionError(f"{place} waits: {error}")


@LONG
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ENGINES)
def test_garbage_slows_the_good_records_beside_it_and_behind_it_by_less_than_two(
    spark: SparkSession, stage: Stage, kind: str
) -> None:
    def drained(name: str, value: Callable[[int], bytes], records: int) -> dict[int, float]:
        """Seconds until each partition was applied; the first one holds these values, the second valid ones."""
        topic = f"{stage.topic}.{name}"
        ensure_topic({"bootstrap.servers": stage.bootstrap}, topic, PARTITIONS)
        for partition, values in enumerate((value, good)):
            send(stage, topic, partition, values, records)
        mapping = TableMapping(name, topic, name)
        engine = new_engine(kind, spark, upsert_work(SqlTableStores(stage.url, mapping), mapping), stage.bootstrap)
        watch = StopWatch(records)
        engine.run(threading.Event(), once=True, listener=watch)
        return watch.seconds

    drained("warm", good, KEYS)
    alone, mixed = drained("plain", good, MANY), drained("spoilt", garbage, MANY)
    ratios = {"beside": mixed[1] / alone[1], "behind": mixed[0] / alone[0]}
    print(f"\n{kind}: good records only {alone}, with garbage {mixed}, slower by {ratios}")  # noqa: T201
    assert max(ratios.values()) < SLOWER
