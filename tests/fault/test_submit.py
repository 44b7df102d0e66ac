"""`spark-submit` decides where a job runs and how: master, name and properties are the submitter's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from psycopg import Connection
from sqlalchemy.engine import make_url

from inorder.embedded import SparkCluster
from inorder.kafka.admin import ensure_topic
from inorder.spark import submit
from tests.fakes.table_store import message

SOURCE = Path(submit.__file__).parents[2]
RECORDS = 200
HOST = "127.0.0.1"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The URL of a standalone master with two workers of one core."""
    with SparkCluster(tmp_path / "cluster", 2) as found:
        yield found.url


def environment(log: Path) -> dict[str, str]:
    """The properties of an application, from its event log."""
    lines = [json.loads(line) for file in log.rglob("*") if file.is_file() for line in _json_lines(file)]
    (found,) = [line["Spark Properties"] for line in lines if line["Event"] == "SparkListenerEnvironmentUpdate"]
    return dict(found)


def _json_lines(file: Path) -> list[str]:
    return [line for line in file.read_text(errors="replace").splitlines() if line.startswith('{"Event"')]


def run_submitted(home: Path, config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The job upsert, once; what Python writes to stderr is in its stdout."""
    job = [submit.__file__, "upsert", "--once", "--json", "--config", str(config)]
    return subprocess.run(
        [str(home / "bin" / "spark-submit"), *options, *job],
        cwd=config.parent,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.full
def test_a_submitted_job_runs_on_the_cluster_with_the_submitters_settings(
    cluster: str,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    direct: Connection[Any],
    tmp_path: Path,
    spark_home: Path,
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 2)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(RECORDS):
        producer.produce(unique, message(number % 20, data=f"{number}"), str(number % 20), number % 2)
    assert producer.flush(30) == 0
    config, events = tmp_path / "inorder.toml", tmp_path / "events"
    events.mkdir()
    secrets = ("kafka-secret", "database-secret")
    url = make_url(postgres_url).set(password=secrets[1]).render_as_string(hide_password=False)
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka_bootstrap}"\n"sasl.password" = "{secrets[0]}"\n'
        f'[database]\nurl = "{url}"\n'
        f'[pipeline]\ncreate_tables = true\nengine = "resident"\n[pipeline.spark]\nspark.executor.memory = "600m"\n'
        f'[pipeline.upsert]\ntopic = "{unique}"\n'
    )
    properties = {
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
    }
    options = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
    ran = run_submitted(spark_home, config, "--master", cluster, "--name", "nightly", *options)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])["applied"] == RECORDS
    rows = direct.execute("SELECT id, data FROM messages ORDER BY id").fetchall()
    assert rows == [(key, f"{RECORDS - 20 + key}") for key in range(20)]
    used = environment(events)
    logged = "".join(file.read_text(errors="replace") for file in events.rglob("*") if file.is_file())
    assert [secret for secret in secrets if secret in logged] == [], "no secret is in what Spark shows"
    assert {name: used[name] for name in properties} == properties
    assert (used["spark.master"], used["spark.app.name"]) == (cluster, "nightly")
    assert used["spark.executor.memory"] == "600m", "the settings come first"
    assert used["spark.sql.adaptive.enabled"] == "false", "what is unset is set"
    assert len(re.findall("Launching executor", (tmp_path / "cluster" / "master.log").read_text())) >= 2


@pytest.mark.full
def test_a_master_in_the_settings_that_differs_from_the_submitters_is_refused(
    tmp_path: Path, spark_home: Path, kafka_bootstrap: str, postgres_url: str
) -> None:
    config = tmp_path / "inorder.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka_bootstrap}"\n[database]\nurl = "{postgres_url}"\n'
        '[pipeline]\ncreate_tables = true\nmaster = "local[2]"\n'
    )
    ran = run_submitted(spark_home, config, "--master", "local[1]")
    assert ran.returncode == 3, ran.stderr
    assert "spark-submit was given the master local[1], and pipeline.master is local[2]" in ran.stdout
