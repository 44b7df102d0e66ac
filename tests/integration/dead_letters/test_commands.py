"""The commands as people type them, and the same refusal at both ends of a topic."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import inorder
from tests.integration.dead_letters.conftest import Job
from tests.operating import list_dead_letters


@pytest.mark.full
def test_the_commands_list_show_retry_and_discard_letters(postgres_job: Job, tmp_path: Path) -> None:
    job = postgres_job
    config = tmp_path / "inorder.toml"
    config.write_text(
        f'[database]\nurl = "{job.url}"\n[kafka]\n"bootstrap.servers" = "{job.bootstrap}"\n'
        f'[pipeline.upsert]\ntopic = "{job.topic}"\nfields = {{ n = "text", data = "text" }}\n'
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "inorder.cli", "dead-letters", *arguments, "--config", str(config)]
        return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)

    first, second = job.send(1, n="one"), job.send(2, n="two")
    job.consume()
    listed = json.loads(run("list", "--json").stdout)
    assert [letter["id"] for letter in listed] == [f"{job.topic}:0:{first}", f"{job.topic}:0:{second}"]
    assert "wrong-type" in run("show", f"{job.topic}:0:{first}").stdout
    retried = run("retry", f"{job.topic}:0:{first}", "--reason", "n is a text now")
    assert (retried.returncode, "retry: 1 (1 applied)." in retried.stderr) == (0, True), retried.stderr
    discarded = run("discard", "--key", "2", "--reason", "of no use")
    assert "discard: 1 letters." in discarded.stderr, discarded.stderr
    assert run("list", "--json").stdout.strip() == "[]"
    assert job.rows()[1][0] == "one"


def test_a_publisher_refuses_with_the_code_and_detail_of_the_dead_letter(postgres_job: Job, tmp_path: Path) -> None:
    job = postgres_job
    schema = tmp_path / "schema.json"
    schema.write_text('{"properties": {"data": {"maxLength": 3}}}')
    settings = job.settings(topics={job.topic: {"json_schema": str(schema)}}, publisher={"backend": "kafka"})
    bad = [{"id": 1, "data": "long"}, {"id": "x"}, {"id": 2, "n": 5}]
    refused = []
    with inorder.Publisher(settings) as publisher:
        for value in bad:
            with pytest.raises(inorder.ValidationError) as caught:
                publisher.publish(inorder.Message(job.topic, value=value))
            refused.append((caught.value.rule, caught.value.message))
    assert job.records() == []
    for value in bad:
        job.producer.produce(job.topic, json.dumps(value))
    job.producer.flush(60)
    job.apply(settings)
    letters = list_dead_letters(settings, 10)
    assert [(letter.code, f"value: {letter.detail} ({letter.code})") for letter in letters] == refused
    assert [letter.code for letter in letters] == ["schema-mismatch", "wrong-type", "wrong-type"]
