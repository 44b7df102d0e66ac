"""Workers that die at the worst moment, and new partitions: the pointer settles them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from psycopg import Connection
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from inorder.engines.running import Engine
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import SliceTransaction, TableStore, TableStores
from inorder.pipeline.stores.postgres_table import PostgresTableStore
from inorder.pipeline.stores.table import SqlTableStores
from tests.conftest import Eventually
from tests.fakes.table_store import message
from tests.integration.pipeline.engines import ENGINES, SPARK_WAIT, new_engine, upsert_work
from tests.selection import few

Start = Callable[[TableStores], Engine]

FIGURES = "SELECT sum(records_applied)::int, sum(records_identical)::int FROM inorder_pointer"


class DyingStore(PostgresTableStore):
    """Kills its own process around the commit of its first slice, once per marker file."""

    def __init__(self, url: str, mapping: TableMapping, moment: str, marker: str) -> None:
        super().__init__(url, mapping)
        self._moment = moment
        self._marker = marker

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        with super().slice_transaction(topic, partition) as transaction:
            yield transaction
            self._die_at("before commit")
        self._die_at("after commit")

    def _die_at(self, moment: str) -> None:
        if moment != self._moment:
            return
        try:
            Path(self._marker).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DyingStores:
    """Opens stores that kill the worker they are opened in."""

    url: str
    mapping: TableMapping
    moment: str
    marker: str

    def __call__(self) -> TableStore:
        return DyingStore(self.url, self.mapping, self.moment, self.marker)


@pytest.fixture
def mapping(unique: str) -> TableMapping:
    return TableMapping("test", unique, "messages")


@pytest.fixture(params=few(ENGINES, "resident"))
def engine(request: pytest.FixtureRequest, spark: SparkSession, mapping: TableMapping, kafka_bootstrap: str) -> Start:
    def start(stores: TableStores) -> Engine:
        return new_engine(request.param, spark, upsert_work(stores, mapping), kafka_bootstrap, batch=300)

    return start


def produce(bootstrap: str, topic: str, rounds: range, partitions: int = 2) -> None:
    """One record per round for each of 20 keys, every value new."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in rounds:
        for key in range(20):
            producer.produce(topic, message(key, data=f"{number}"), str(key), key % partitions)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("moment", few(["before commit", "after commit"], "after commit"))
def test_a_worker_killed_around_its_commit_applies_each_record_once(
    moment: str,
    engine: Start,
    mapping: TableMapping,
    kafka_bootstrap: str,
    postgres_url: str,
    create_topic: Callable[..., None],
    direct: Connection[Any],
    tmp_path: Path,
) -> None:
    # Workers cannot import test modules, so the classes of this one travel whole.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # Spark ships it untyped
    marker = tmp_path / "killed"
    create_topic(mapping.topic, 2)
    produce(kafka_bootstrap, mapping.topic, range(20))
    stores = DyingStores(postgres_url, mapping, moment, str(marker))
    engine(stores).run(threading.Event(), once=True)
    assert marker.exists()
    assert direct.execute(FIGURES).fetchone() == (400, 0)
    assert direct.execute("SELECT DISTINCT data, count(*)::int FROM messages GROUP BY 1").fetchall() == [("19", 20)]


@pytest.mark.full
def test_a_partition_added_under_a_running_pipeline_is_read_from_its_beginning(
    engine: Start,
    mapping: TableMapping,
    kafka_bootstrap: str,
    postgres_url: str,
    create_topic: Callable[..., None],
    direct: Connection[Any],
    eventually: Eventually,
) -> None:
    create_topic(mapping.topic, 1)
    produce(kafka_bootstrap, mapping.topic, range(1), partitions=1)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        stores = SqlTableStores(postgres_url, mapping)
        running = threads.submit(engine(stores).run, stop)
        try:
            eventually(lambda: direct.execute(FIGURES).fetchone() == (20, 0), SPARK_WAIT)
            admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
            for future in admin.create_partitions([NewPartitions(mapping.topic, 2)]).values():
                future.result(timeout=30)
            producer = Producer({"bootstrap.servers": kafka_bootstrap})
            producer.produce(mapping.topic, message(100, data="new"), "100", 1)
            assert producer.flush(30) == 0
            eventually(lambda: direct.execute(FIGURES).fetchone() == (21, 0), SPARK_WAIT)
        finally:
            stop.set()
        running.result(timeout=SPARK_WAIT)
