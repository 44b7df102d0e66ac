"""Clusters: tasks in other processes find the driver and end with it, and workers that come and go cost nothing."""

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
from inorder.embedded import SparkCluster
from inorder.kafka.admin import ensure_topic
from tests.conftest import Eventually
from tests.fakes.table_store import message
from tests.fault.cluster_ordeal import EVENTS, PARTITIONS, SETTINGS, WAIT_SECONDS, ClusterOrdeal
from tests.fault.engine_ordeal import Stage
from tests.fault.filling import filling
from tests.fault.processes import executors
from tests.fault.replicate_stages import ENGINES
from tests.fault.test_executors import are_beyond
from tests.injections import INJECTIONS
from tests.operating import install_schema

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


@pytest.mark.fault
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("engine", ENGINES)
def test_workers_killed_added_and_decommissioned_and_a_killed_driver_lose_double_and_reorder_nothing(
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    direct: Connection[Any],
    tmp_path: Path,
    eventually: Eventually,
    engine: str,
) -> None:
    for topic in (unique, f"{unique}-journal"):
        ensure_topic({"bootstrap.servers": kafka_bootstrap}, topic, PARTITIONS)
    with SparkCluster(tmp_path / "cluster", 2, cores=3) as cluster:
        config = tmp_path / "inorder.toml"
        words = {"bootstrap": kafka_bootstrap, "url": postgres_url, "topic": unique}
        config.write_text(SETTINGS.format(engine=engine, master=cluster.url, **words))
        ordeal = ClusterOrdeal(config, unique, direct, eventually)
        for layout in ("native", "table", "journal"):
            install_schema(ordeal.settings, layout)
        killed, decommissioned = cluster.workers
        share = EVENTS // 5
        ordeal.write(share)
        ordeal.driver.start()
        try:
            ordeal.wait_for_progress()
            killed.kill()
            ordeal.write(share)
            ordeal.wait_for_all()
            cluster.add_worker()
            ordeal.write(share)
            eventually(lambda: cluster.registered() == 3, WAIT_SECONDS)
            leaving = decommissioned.pid
            assert leaving is not None
            assert executors(leaving)
            INJECTIONS.note("a Spark worker decommissioned")
            cluster.decommission(decommissioned)
            eventually(lambda: not executors(leaving), WAIT_SECONDS)
            ordeal.wait_for_all()
            cluster.add_worker()
            ordeal.write(share)
            ordeal.driver.kill()
            ordeal.driver.start()
            ordeal.write(share)
            ordeal.wait_for_all()
            ordeal.verify()
        finally:
            ordeal.driver.stop()
            print(ordeal.driver.log_path.read_text(errors="replace")[-20_000:])  # noqa: T201 its log, if the test fails


@pytest.mark.fault
@pytest.mark.timeout(1_800)
def test_partitions_of_lost_and_decommissioned_workers_go_on_elsewhere_and_new_workers_get_some(
    stage: Stage, tmp_path: Path, eventually: Eventually
) -> None:
    stage.more = '[pipeline.spark]\nspark.decommission.enabled = true\nspark.executor.memory = "600m"\n'
    with (
        SparkCluster(tmp_path / "cluster", 2) as cluster,
        filling(stage, tmp_path, "resident", master=cluster.url) as service,
    ):

        def wait_for_all_partitions() -> None:
            before = stage.pointers()
            eventually(lambda: service.has_ended() or are_beyond(stage.pointers(), before), WAIT_SECONDS)
            service.check()

        def assigned() -> int:
            return service.log_path.read_text(errors="replace").count('"pipeline.task_assigned"')

        with stage.load(), stage.witness():
            lost, leaving = cluster.workers
            wait_for_all_partitions()
            lost.kill()
            wait_for_all_partitions()
            before = assigned()
            cluster.add_worker()
            eventually(lambda: service.has_ended() or assigned() >= before + 2, WAIT_SECONDS)
            wait_for_all_partitions()
            cluster.decommission(leaving)
            pid = leaving.pid
            assert pid is not None
            eventually(lambda: not executors(pid), WAIT_SECONDS)
            wait_for_all_partitions()
        stage.verify()
