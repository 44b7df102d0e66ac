"""The journal commands on real servers: tables, events in, events out, and the message when something is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inorder.kafka.admin import ensure_topic
from tests.acceptance.cli.conftest import Inorder


@pytest.fixture
def variables(kafka_bootstrap: str, postgres_url: str) -> dict[str, str]:
    return {
        "INORDER_KAFKA__BOOTSTRAP_SERVERS": kafka_bootstrap,
        "INORDER_DATABASE__URL": postgres_url,
        "INORDER_JOURNAL__ORIGIN": "here",
    }


@pytest.mark.full
def test_a_journal_from_its_tables_to_its_purge(
    inorder_command: Inorder, variables: dict[str, str], kafka_bootstrap: str, unique: str
) -> None:
    topic = f"journal-{unique}"

    def run(*arguments: str, stdin: str = "") -> list[Any]:
        ran = inorder_command(*arguments, stdin=stdin, **variables)
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()]

    assert run("schema", "install", "--layout", "journal", "--json")[0]["layout"] == "journal"
    refused = inorder_command("journal", "append", topic, "a", stdin='{"seq_nr": 1}\n', **variables)
    assert refused.returncode == 1
    assert f"Topic {topic!r} does not exist.\nCreate it" in refused.stderr
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, topic, 1)
    lines = '{"seq_nr": 1, "payload": {"opened": true}}\n{"seq_nr": 2, "payload": "text", "payload_type": "text"}\n'
    assert run("journal", "append", topic, "a", "--json", stdin=lines) == [{"partition": 0, "offset": 0}]
    found = run("journal", "read", topic, "a")
    assert [(each["seq_nr"], each["payload"], each["origin"]) for each in found] == [
        (1, {"opened": True}, "here"),
        (2, "text", "here"),
    ]
    assert run("journal", "delete", topic, "a", "--to", "1", "--json")[0]["partition"] == 0
    lag = [each for each in run("journal", "lag", "--json")[0] if each["topic"] == topic]
    assert [(each["partition"], each["replicated"], each["behind"]) for each in lag] == [(0, None, 4)]


@pytest.mark.full
def test_tables_that_are_missing_are_named_with_what_makes_them(
    inorder_command: Inorder, variables: dict[str, str], kafka_bootstrap: str, unique: str
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 1)
    ran = inorder_command("journal", "read", unique, "a", **variables)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert 'relation "pointer2" does not exist' in ran.stderr
    assert "inorder schema install --layout journal" in ran.stderr
