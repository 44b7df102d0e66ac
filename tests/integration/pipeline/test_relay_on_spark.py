"""The job `relay`: relays as tasks of Spark share the shards, and a row leaves the outbox once and in order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from pyspark.sql import SparkSession
from sqlalchemy.engine import make_url

import inorder
from inorder.engines.resident_tasks import ServiceTaskPlan, run_service
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.relay.on_spark import DrainCheck, PublishedTotal, RelayTask, tasks_for
from inorder.testing.checker import check_delivery
from tests.conftest import Eventually
from tests.integration.pipeline.engines import SPARK_WAIT
from tests.operating import install_schema, relay_status

KEYS = 30
PLACES = 10


@pytest.mark.full
def test_tasks_share_the_shards_and_publish_each_row_once_in_order(
    spark: SparkSession, postgres_url: str, kafka_bootstrap: str, unique: str, eventually: Eventually
) -> None:
    settings = inorder.Settings.load(
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        relay={"group": unique, "leadership": "database", "shards": 2},
    )
    ensure_topic(settings.kafka.properties, unique, 3)
    install_schema(settings, "native")
    outbox = inorder.Outbox(settings.relay.table)
    conninfo = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo) as connection:
        for place in range(PLACES):
            messages = [inorder.Message(unique, key=str(key), value=str(place)) for key in range(KEYS)]
            outbox.publish_list(connection, messages)
    stop, published, waiting = (
        threading.Event(),
        PublishedTotal(),
        DrainCheck(lambda: relay_status(settings)["waiting"]),
    )
    assert tasks_for(settings, slots=4) == 2
    with ThreadPoolExecutor(1) as pool:
        duty = ServiceTaskPlan("relay", RelayTask(settings), count=2)
        running = pool.submit(run_service, spark, duty, stop, published.add)
        try:
            eventually(lambda: waiting.is_done() and published.total == KEYS * PLACES, SPARK_WAIT)
        finally:
            stop.set()
        running.result(timeout=SPARK_WAIT)
    found = [(record.key, int(record.value or b"")) for record in read_back(settings.kafka.properties, unique)]
    verdict = check_delivery([(str(key).encode(), place) for key in range(KEYS) for place in range(PLACES)], found)
    assert verdict.holds, verdict
    assert published.total == KEYS * PLACES
