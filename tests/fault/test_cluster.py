"""The resident engine on separate executors: tasks in other processes find the driver, and end with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from psycopg import Connection

import inorder.cli
from inorder.kafka.admin import ensure_topic
from tests.fakes.table_store import message

SOURCE = Path(inorder.cli.__file__).parents[2]
RECORDS = 400


@pytest.mark.fault
@pytest.mark.timeout(900)
def test_tasks_on_two_executors_drain_a_topic_once(
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    direct: Connection[Any],
    tmp_path: Path,
    spark_home: Path,
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 4)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(RECORDS):
        producer.produce(unique, message(number % 40, data=f"{number}"), str(number % 40), number % 4)
    assert producer.flush(30) == 0
    config = tmp_path / "inorder.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka_bootstrap}"\n[database]\nurl = "{postgres_url}"\n'
        f"[pipeline]\ncreate_tables = true\n"
        f'engine = "resident"\nmaster = "local-cluster[2,1,1024]"\n[pipeline.upsert]\ntopic = "{unique}"\n'
    )
    ran = subprocess.run(
        [sys.executable, "-m", "inorder.cli", "pipeline", "run", "upsert", "--once", "--json", "--config", str(config)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "SPARK_HOME": str(spark_home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])["applied"] == RECORDS
    rows = direct.execute("SELECT id, data FROM messages ORDER BY id").fetchall()
    assert rows == [(key, f"{RECORDS - 40 + key}") for key in range(40)]
