"""Journals replicated by the command, and one that cannot be read in quarantine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from inorder.journal.action import Purge
from inorder.journal.codec import ACTION_HEADER, action_record
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Key
from inorder.model.message import Limits
from tests.acceptance.cli.conftest import Inorder

pytestmark = [pytest.mark.spark, pytest.mark.full]

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_journals_are_replicated_and_a_parked_one_is_listed(
    inorder_command: Inorder, kafka_bootstrap: str, postgres_url: str, unique: str, tmp_path: Path
) -> None:
    topic = f"{unique}-events"
    variables = {
        "INORDER_KAFKA__BOOTSTRAP_SERVERS": kafka_bootstrap,
        "INORDER_DATABASE__URL": postgres_url,
    }
    (tmp_path / "inorder.toml").write_text(f'[journal]\ntopic_prefixes = ["{unique}"]\n')

    def run(*arguments: str) -> tuple[Any, str]:
        ran = inorder_command(*arguments, "--json", **variables)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout), ran.stderr

    ensure_topic({"bootstrap.servers": kafka_bootstrap}, topic, 1)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    purge = action_record(Key("a", topic), Purge(), START, Limits())
    producer.produce(topic, None, "a", headers=list(purge.headers))
    producer.produce(topic, b"?", "b", headers=[(ACTION_HEADER, b"{")])
    assert producer.flush(60) == 0
    totals, said = run("pipeline", "run", "replicate", "--once", "--engine", "resident")
    assert (totals["applied"], totals["rejected"]) == (1, 1)
    assert f"The job replicate reads all topics that begin with {unique} with the engine resident." in said
    waiting, said = run("journal", "quarantine", "list")
    assert [(each["id"], each["offset"], each["value"]) for each in waiting] == [("b", 1, "?")]
    assert said == "Quarantine: 1 records of 1 journals.\n"
