"""A job on the caller's session leaves that session as it was; several jobs share one context."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import SparkSession
from sqlalchemy.engine import make_url

import inorder.spark
from inorder.model.errors import ConfigurationError, InorderError
from inorder.settings import Settings
from tests.conftest import Eventually
from tests.fakes.table_store import message
from tests.integration.pipeline.conftest import CreateTopic
from tests.integration.pipeline.engines import SPARK_WAIT, Heard
from tests.operating import install_schema
from tests.selection import few

RECORDS = 40


@pytest.mark.full
@pytest.mark.parametrize("engine", ["micro-batch", "resident"])
def test_a_session_of_the_callers_keeps_its_settings_and_lives_on(
    spark: SparkSession,
    create_topic: CreateTopic,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    direct: Connection[Any],
    tmp_path: Path,
    engine: Literal["micro-batch", "resident"],
) -> None:
    create_topic(unique, 2)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(RECORDS):
        producer.produce(unique, message(number % 10, data=f"{number}"), str(number % 10), number % 2)
    assert producer.flush(30) == 0
    config = tmp_path / "inorder.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka_bootstrap}"\n[database]\nurl = "{postgres_url}"\n'
        f'[pipeline]\ncreate_tables = true\n[pipeline.upsert]\ntopic = "{unique}"\n'
    )
    yours = spark.newSession()
    yours.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yours.conf.set("spark.sql.adaptive.enabled", "true")
    totals = inorder.spark.run(yours, Settings.load(config), "upsert", engine=engine, once=True)
    assert totals["applied"] == RECORDS
    assert direct.execute("SELECT count(*) FROM messages").fetchone() == (10,)
    assert yours.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    assert yours.conf.get("spark.sql.adaptive.enabled") == "true"
    assert yours.range(3).count() == 3, "it lives on"


def test_a_session_of_spark_connect_is_refused_before_anything_is_opened(unique: str) -> None:
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    settings = Settings.load(pipeline={"upsert": {"topic": unique}})
    for job in ("upsert", ("relay", "upsert")):
        with pytest.raises(ConfigurationError, match="do not run through Spark Connect"):
            inorder.spark.run(remote, settings, job)


@pytest.mark.full
@pytest.mark.parametrize("engine", few(["resident", "micro-batch"], "resident"))
def test_jobs_of_one_application_go_on_while_one_fails_again_and_again(
    spark: SparkSession,
    create_topic: CreateTopic,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    direct: Connection[Any],
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    engine: Literal["micro-batch", "resident"],
) -> None:
    create_topic(unique, 2)
    settings = Settings.load(
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        relay={"group": unique},
        pipeline={"create_tables": True, "upsert": {"topic": unique}},
        journal={"store": "postgresql+psycopg://nobody@127.0.0.1:1/none"},
    )
    install_schema(settings, "native")
    stop, heard = threading.Event(), Heard()

    def publish(first: int) -> None:
        conninfo = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
        found = [inorder.Message(unique, key=str(key), value=message(key, data=f"{first}")) for key in range(10)]
        with psycopg.connect(conninfo) as connection:
            inorder.Outbox(settings.relay.table).publish_list(connection, found)

    def restarts() -> list[str]:
        return [vars(each)["job"] for each in caplog.records if each.message == "application.job_restart"]

    with caplog.at_level(logging.WARNING, "inorder.pipeline"), ThreadPoolExecutor(1) as pool:
        run = pool.submit(
            inorder.spark.run,
            spark,
            settings,
            ("relay", "upsert", "replicate"),
            engine=engine,
            stop=stop,
            listener=heard,
        )
        try:
            publish(1)
            eventually(lambda: run.done() or heard.sum("applied") >= 10, SPARK_WAIT)
            eventually(lambda: run.done() or restarts(), SPARK_WAIT)
            publish(2)
            eventually(lambda: run.done() or heard.sum("applied") >= 20, SPARK_WAIT)
        finally:
            stop.set()
        with pytest.raises(InorderError) as failed:
            run.result(SPARK_WAIT)
    assert "127.0.0.1" in str(failed.value), "the job replicate was waiting for its next start"
    assert set(restarts()) == {"replicate"}
    assert direct.execute("SELECT count(*), min(data), max(data) FROM messages").fetchone() == (10, "2", "2")
    assert spark.range(3).count() == 3
