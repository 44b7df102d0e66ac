"""`inorder pipeline run replicate` serves its health and the metrics of its tasks while it runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

import inorder
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key
from tests.acceptance.cli.conftest import COMMAND
from tests.conftest import Eventually

pytestmark = [pytest.mark.spark, pytest.mark.full]

STARTED_WITHIN = 150.0
"""Seconds; Spark starts in five, or in a hundred on a machine that has much else to do."""


@pytest.fixture
def config(tmp_path: Path, kafka_bootstrap: str, postgres_url: str, unique: str) -> Path:
    file = tmp_path / "inorder.toml"
    file.write_text(
        f"""
        kafka."bootstrap.servers" = "{kafka_bootstrap}"
        database.url = "{postgres_url}"
        journal.topic_prefixes = ["{unique}"]
        health.listen = "127.0.0.1:0"
        pipeline.engine = "resident"
        """
    )
    return file


@pytest.fixture
def running(config: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [*COMMAND, "pipeline", "run", "replicate", "--config", str(config)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        yield process
        process.terminate()
        process.wait(timeout=120)


def test_a_running_replicator_serves_what_its_tasks_have_done(
    running: subprocess.Popen[bytes], config: Path, unique: str, tmp_path: Path, eventually: Eventually
) -> None:
    settings = inorder.Settings.load(config)
    ensure_topic(dict(settings.kafka.properties), unique, 2)
    with inorder.Journals(settings) as journals:
        for number in range(4):
            journals.journal(Key(f"id{number}", unique)).append([Event(1, "one"), Event(2, "two")])
    [address] = eventually(lambda: re.findall(r"metrics at (http://\S+)\.", (tmp_path / "said.txt").read_text()))

    def metrics() -> str:
        assert running.poll() is None, (tmp_path / "said.txt").read_text()
        with urlopen(f"{address}/metrics", timeout=60) as answer:  # noqa: S310 - our own
            return str(answer.read().decode())

    wanted = [
        f'inorder_replicator_events_total{{topic="{unique}"}} 8.0',
        f'inorder_replicator_replication_latency_seconds_count{{topic="{unique}",type="append"}} 4.0',
        f'inorder_pipeline_records_total{{job="replicate",outcome="applied",topic="{unique}"}} 4.0',
        'inorder_pipeline_running{job="replicate"} 1.0',
    ]
    eventually(lambda: all(line in text for text in [metrics()] for line in wanted), STARTED_WITHIN)
    with urlopen(f"{address}/health", timeout=60) as answer:  # noqa: S310 - our own
        assert (answer.status, answer.read()) == (200, b"Pong")
