"""File, then variables, then overrides; each value knows where it came from."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pydantic
import pytest

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings
from tests.unit.settings.conftest import Write


def sources(settings: Settings) -> dict[str, tuple[object, str]]:
    """Value and source of every setting that is not a default."""
    return {row.key: (row.value, row.source) for row in settings.describe() if row.source != "default"}


def test_without_a_file_the_defaults_of_the_contract_hold() -> None:
    settings = Settings.load()
    assert settings.kafka.bootstrap_servers == "127.0.0.1:9092"
    assert settings.database.url is None
    assert settings.redis.url is None
    relay = settings.relay
    assert (relay.group, relay.strategy, relay.layout, relay.table) == ("orders", "drain", "native", "outbox")
    assert (relay.delivery, relay.leadership, relay.shards) == ("exactly-once", "kafka", 1)
    assert (relay.batch_size, relay.max_attempts, relay.on_exceeded) == (10_000, 5, "park")
    upsert = settings.pipeline.upsert
    assert settings.pipeline.engine == "micro-batch"
    assert (upsert.topic, upsert.table, upsert.key, upsert.mode) == ("upsert", "messages", ["id"], "upsert")
    assert upsert.fields == {"enabled": "boolean", "data": "text"}
    assert sources(settings) == {}


def test_overrides_go_over_variables_and_variables_over_the_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write('[relay]\ngroup = "file"\ntable = "file"\nbatch_size = 7\n')
    monkeypatch.setenv("INORDER_RELAY__GROUP", "variable")
    monkeypatch.setenv("INORDER_RELAY__TABLE", "variable")
    settings = Settings.load(relay={"group": "override"})
    assert sources(settings) == {
        "relay.group": ("override", "override"),
        "relay.table": ("variable", "env"),
        "relay.batch_size": (7, "file"),
    }


def test_the_place_of_each_value_is_told(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("[relay]\nbatch_size = 7\n")
    monkeypatch.setenv("INORDER_LOG__LEVEL", "debug")
    places = {row.key: row.place for row in Settings.load().describe()}
    assert places["relay.batch_size"] == "./inorder.toml"
    assert places["log.level"] == "INORDER_LOG__LEVEL"
    assert places["relay.group"] == ""


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml does not exist"):
        Settings.load(tmp_path / "none.toml")


def test_a_named_file_is_read_and_the_default_one_is_not(write: Write, tmp_path: Path) -> None:
    write('[relay]\ngroup = "default"\n')
    other = tmp_path / "other.toml"
    other.write_text('[relay]\ngroup = "other"\n', "utf-8")
    assert Settings.load(other).relay.group == "other"
    assert Settings.load(str(other)).relay.group == "other"


@pytest.mark.parametrize("key", ['"bootstrap.servers"', "bootstrap.servers"])
def test_kafka_properties_may_be_quoted_or_dotted(write: Write, key: str) -> None:
    write(f'[kafka]\n{key} = "broker:1"\n"linger.ms" = 5\n"socket.keepalive.enable" = true\n')
    assert Settings.load().kafka.properties == {
        "bootstrap.servers": "broker:1",
        "linger.ms": 5,
        "socket.keepalive.enable": True,
    }


def test_an_underscore_of_a_kafka_variable_is_a_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INORDER_KAFKA__BOOTSTRAP_SERVERS", "broker:1")
    assert Settings.load().kafka.bootstrap_servers == "broker:1"


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("INORDER_RELAY__BATCH_SIZE", "12", "relay.batch_size", 12),
        ("INORDER_PIPELINE__UPSERT__TOPIC", "other", "pipeline.upsert.topic", "other"),
        ("INORDER_PIPELINE__UPSERT__FIELDS", '{"name": "text"}', "pipeline.upsert.fields", {"name": "text"}),
        ("INORDER_TOPICS__ORDERS__PARTITIONER", "id-modulo", "topics.orders.partitioner", "id-modulo"),
        ("INORDER_TOPICS", '{"a.b": {"partitioner": "murmur2"}}', 'topics."a.b".partitioner', "murmur2"),
        ("INORDER_RELAY", '{"group": "json"}', "relay.group", "json"),
    ],
)
def test_variables_reach_nested_fields_and_tables(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, key: str, value: object
) -> None:
    monkeypatch.setenv(name, text)
    assert sources(Settings.load()) == {key: (value, "env")}


@pytest.mark.parametrize("name", ["INORDER_CACHE", "INORDER_IVY_SETTINGS", "INORDER_TRACEBACK"])
def test_variables_that_are_no_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "x")
    assert sources(Settings.load()) == {}


def test_a_topic_without_a_section_has_the_default_partitioner() -> None:
    settings = Settings.load(topics={"orders": {"partitioner": "id-modulo"}})
    assert settings.topic("orders").partitioner == "id-modulo"
    assert settings.topic("other").partitioner == "murmur2"


def test_settings_cannot_be_changed_afterwards() -> None:
    settings = Settings.load()
    with pytest.raises(pydantic.ValidationError):
        settings.relay.group = "other"
    settings.kafka.properties["bootstrap.servers"] = "other"
    assert settings.kafka.bootstrap_servers == "127.0.0.1:9092"


def test_settings_survive_pickling_with_their_sources() -> None:
    settings = Settings.load(relay={"group": "shop"}, kafka={"sasl.password": "hunter2"})
    again: Settings = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own bytes
    assert again.describe() == settings.describe()
    assert again.kafka.properties == settings.kafka.properties


def test_a_command_without_a_database_says_how_to_set_it() -> None:
    with pytest.raises(ConfigurationError, match=r"database\.url is not set") as caught:
        Settings.load().database.require_url()
    assert "INORDER_DATABASE__URL" in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, set()),
        ({"topics": {"orders": {"partitions": 2}}}, {"orders"}),
        ({"pipeline": {"upsert": {"topic": "users"}}}, {"users"}),
    ],
)
def test_a_topic_is_named_by_more_than_a_default(settings: dict[str, Any], named: set[str]) -> None:
    assert Settings.load(**settings).named_topics() == named


@pytest.mark.parametrize(
    ("pipeline", "creates"),
    [
        ({}, True),
        ({"upsert": {"topic": "users"}}, True),
        ({"upsert": {"table": "users"}}, False),
        ({"tables": [{"topic": "users", "table": "users"}]}, False),
        ({"tables": [{"topic": "users", "table": "users"}], "create_tables": True}, True),
    ],
)
def test_a_table_whose_name_may_be_mistyped_is_not_created(pipeline: dict[str, Any], creates: bool) -> None:
    assert Settings.load(pipeline=pipeline).pipeline.may_create_tables == creates
