"""One command prints the status of every part, and an unreachable part does not hide the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import inorder
from inorder.app import App
from inorder.journal.service import journal_store
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key
from tests.integration.dead_letters.conftest import Job
from tests.integration.following.test_follow import publish
from tests.operating import install_schema


def test_each_part_tells_what_waits_and_what_was_set_aside(
    postgres_url: str, kafka_bootstrap: str, unique: str
) -> None:
    job, prefix = Job(postgres_url, kafka_bootstrap, unique), f"{unique}-journal"
    settings = job.settings(journal={"topic_prefixes": [prefix]}, relay={"leadership": "none", "group": unique})
    install_schema(settings, "native")
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, prefix, 1)
    store = journal_store(settings)
    store.install()
    store.close()
    publish(settings, inorder.Message(unique, key=1, value={"id": 1, "data": "a"}))
    job.send(1, n="one")
    job.consume()
    job.send(2, data="x")
    with inorder.Journals(settings) as journals:
        journals.journal(Key("1", prefix)).append([Event(1)])
    with App(settings) as app:
        status = app.status()
    assert (status["relay"]["waiting"], status["relay"]["exceeded"]) == (1, 0)
    pipeline = status["pipeline"]
    assert (pipeline["rejected"], pipeline["dead_letters"], pipeline["behind"]) == (1, 1, 1)
    assert status["journal"] == {"topics": 1, "behind": 1, "parked": 0, "ends": 1, "replicated": 0}
    assert status["topics"] == {"switched": 0, "behind": {}, "paused": {}}


@pytest.mark.full
def test_a_part_that_is_away_says_so_and_the_others_are_told(
    postgres_url: str, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    config = tmp_path / "inorder.toml"

    def run(servers: str) -> tuple[int, dict[str, Any]]:
        config.write_text(
            f'[database]\nurl = "{postgres_url}"\n[kafka]\n"bootstrap.servers" = "{servers}"\n'
            f'[relay]\nleadership = "database"\n[journal]\ntopic_prefixes = ["{unique}-none"]\n'
            f'[pipeline.upsert]\ntopic = "{unique}"\n'
        )
        command = [sys.executable, "-m", "inorder.cli", "status", "--json", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        return done.returncode, json.loads(done.stdout)

    install_schema(inorder.Settings.load(None, database={"url": postgres_url}), "native")
    code, status = run("127.0.0.1:9")
    assert (code, "error" in status["relay"], "error" in status["journal"]) == (4, False, True)
