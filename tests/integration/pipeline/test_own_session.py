"""A job on the caller's session leaves that session as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import SparkSession

import inorder.spark
from inorder.settings import Settings
from tests.fakes.table_store import message
from tests.integration.pipeline.conftest import CreateTopic

RECORDS = 40


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
        f'[pipeline.upsert]\ntopic = "{unique}"\n'
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
