"""`inorder topics …`: plan, apply, failover, status and migrate, as a person types them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import inorder
from inorder.cli.main import main
from inorder.kafka.readers import read_back
from inorder.topics.stores.kafka_topics import KafkaTopicCluster
from tests.integration.topics.conftest import SettingsOf

_SETTINGS = """\
[kafka]
"bootstrap.servers" = "{bootstrap}"
[database]
url = "{url}"
[publisher]
backend = "kafka"
[topics."{topic}"]
partitions = {partitions}
config = {{ "retention.ms" = 60000 }}
"""

Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    postgres_url: str,
    kafka_bootstrap: str,
    unique: str,
) -> Run:
    """Runs `inorder topics …` with so many partitions in its settings; returns code, what JSON it gave, and words."""

    def command(*arguments: str, partitions: int = 4) -> tuple[int, Any, str]:
        config = tmp_path / "inorder.toml"
        words = {"bootstrap": kafka_bootstrap, "url": postgres_url, "topic": unique, "partitions": partitions}
        config.write_text(_SETTINGS.format(**words))
        monkeypatch.setattr(sys, "argv", ["inorder", "topics", *arguments, "--config", str(config), "--json"])
        try:
            code: object = main()
        except SystemExit as ended:
            code = ended.code or 0
        assert isinstance(code, int)
        printed = capsys.readouterr()
        return code, json.loads(printed.out) if printed.out else None, printed.err

    return command


@pytest.mark.full
def test_a_topic_is_planned_made_switched_and_copied_back(run: Run, unique: str, settings_of: SettingsOf) -> None:
    _, planned, _ = run("plan")
    assert [each["action"] for each in planned] == ["MakeIt"]
    assert run("apply")[0] == 0
    assert run("plan")[1] == []
    settings = settings_of(publisher={"backend": "kafka"})
    with inorder.Publisher(settings) as publisher:
        publisher.publish_list([inorder.Message(unique, key=str(key), value="1") for key in range(20)])
        _, planned, _ = run("apply", partitions=8)
        assert f"inorder topics failover {unique} --partitions 8" in planned[0]["text"]
        assert KafkaTopicCluster(settings.kafka.properties).partitions(unique) == 4, "never grown in place"
        code, state, words = run("failover", unique, "--partitions", "8", partitions=8)
        assert (code, state["kafka_topic"], state["generation"]) == (0, f"{unique}.g1", 1)
        assert "The topic is closed" in words
        assert run("plan", partitions=8)[1] == [], "the new generation is as the settings want it"
        publisher.publish_list([inorder.Message(unique, key=str(key), value="2") for key in range(20)])
    _, [status], _ = run("status", unique)
    assert (status["phase"], status["next"], status["epoch"]) == ("steady", "", status["mirrored_epoch"])
    assert [each["state"] for each in status["generations"]] == ["closed", "open"]
    assert run("migrate", unique)[1] == {f"{unique}.g1": 20}
    assert run("migrate", unique)[1] == {f"{unique}.g1": 0}
    copied = [(record.key, record.value) for record in read_back(settings.kafka.properties, unique)]
    assert sorted(copied) == sorted((str(key).encode(), place) for key in range(20) for place in (b"1", b"2"))
    _, [status], _ = run("status")
    assert status["generations"][0]["late"] == 0, "copies are ours"
    stray = Producer({"bootstrap.servers": settings.kafka.properties["bootstrap.servers"]})
    stray.produce(unique, b"from somebody who knows no generations", b"0")
    stray.flush(60)
    _, [status], _ = run("status")
    assert status["generations"][0]["late"] > 0
    assert "find the producer that does not follow" in status["next"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("failover", "NAME", "--partitions", "8"), "There is no topic"),
        (("migrate", "NAME"), "has only one generation"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(run: Run, unique: str, arguments: tuple[str, ...], words: str) -> None:
    code, _, said = run(*(unique if each == "NAME" else each for each in arguments))
    assert (code, words in said, unique in said) == (3, True, True)


def test_a_topic_that_was_never_switched_has_nothing_to_cancel(run: Run, unique: str) -> None:
    assert "was never switched" in run("failover", unique, "--cancel")[2]
