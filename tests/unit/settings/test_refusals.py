"""What is wrong is refused with its key, its value, where it stands and what was expected."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings
from tests.unit.settings.conftest import Write


def refused(**overrides: Any) -> str:
    """The message of the refusal."""
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(**overrides)
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[relay]\nbach_size = 1",
            "relay.bach_size in ./inorder.toml is unknown; did you mean relay.batch_size?",
        ),
        ("[rely]\ngroup = 'x'", "rely in ./inorder.toml is unknown; did you mean relay?"),
        ("batch_size = 1", "batch_size in ./inorder.toml is unknown; did you mean relay.batch_size?"),
        (
            "[database]\nbatch_size = 1",
            "database.batch_size in ./inorder.toml is unknown; did you mean relay.batch_size?",
        ),
        (
            "[pipeline.upsert]\ntabel = 'x'",
            "pipeline.upsert.tabel in ./inorder.toml is unknown; did you mean pipeline.upsert.table?",
        ),
        (
            "[topics.orders]\npartitoner = 'murmur2'",
            "topics.orders.partitoner in ./inorder.toml is unknown; did you mean topics.NAME.partitioner?",
        ),
        ("[relay]\nzzzzzz = 1", "relay.zzzzzz in ./inorder.toml is unknown."),
        ("[page]\nlisten = '127.0.0.1:8090'", "page in ./inorder.toml is unknown."),
    ],
)
def test_an_unknown_key_names_its_place_and_the_nearest_key(write: Write, text: str, message: str) -> None:
    write(text)
    assert refused() == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "INORDER_RELAY__BACH_SIZE",
            "relay.bach_size in INORDER_RELAY__BACH_SIZE is unknown; did you mean relay.batch_size?",
        ),
        ("INORDER_RELY__GROUP", "rely in INORDER_RELY__GROUP is unknown; did you mean relay?"),
        ("INORDER_CACHES", "INORDER_CACHES is unknown; did you mean INORDER_CACHE?"),
        (
            "INORDER_LOG__LEVL",
            "log.levl in INORDER_LOG__LEVL is unknown; did you mean log.level?",
        ),
    ],
)
def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.setenv(name, "1")
    assert refused() == message


def test_an_unknown_override_is_refused() -> None:
    message = refused(relay={"bach_size": 1})
    assert message == "relay.bach_size in the overrides is unknown; did you mean relay.batch_size?"


@pytest.mark.parametrize(
    ("relay", "expected"),
    [
        (
            {"strategy": "drian"},
            (
                "relay.strategy = 'drian' in the overrides is wrong: "
                "expected one of drain, mark-purge, topic-lock, polling; the nearest is drain."
            ),
        ),
        (
            {"leadership": 5},
            "relay.leadership = 5 in the overrides is wrong: expected one of kafka, database, redis, none.",
        ),
        (
            {"batch_size": "many"},
            "relay.batch_size = 'many' in the overrides is wrong: expected a whole number.",
        ),
        ({"batch_size": True}, "relay.batch_size = True in the overrides is wrong: expected a whole number."),
        ({"batch_size": 1.5}, "relay.batch_size = 1.5 in the overrides is wrong: expected a whole number."),
        ({"batch_size": [1]}, "relay.batch_size = [1] in the overrides is wrong: expected a whole number."),
        ({"batch_size": 0}, "relay.batch_size = 0 in the overrides is wrong: expected 1 or more."),
        (
            {"batch_size": 10**9},
            "relay.batch_size = 1000000000 in the overrides is wrong: expected 1000000 or less.",
        ),
        ({"shards": 0}, "relay.shards = 0 in the overrides is wrong: expected 1 or more."),
        ({"group": 5}, "relay.group = 5 in the overrides is wrong: expected text."),
    ],
)
def test_a_wrong_value_names_key_value_place_and_what_is_expected(relay: dict[str, Any], expected: str) -> None:
    assert refused(relay=relay) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("table", "out box"),
        ("table", "a.b.c"),
        ("table", 'outbox"; DROP TABLE users; --'),
        ("table", "1outbox"),
        ("table", ""),
        ("table", "outbox\n"),
        ("group", "größe"),
        ("group", "a b"),
        ("group", ""),
        ("group", "x" * 201),
    ],
)
def test_names_that_could_break_a_statement_or_a_topic_are_refused(field: str, value: str) -> None:
    assert f"relay.{field} = {value!r} in the overrides is wrong: expected" in refused(relay={field: value})


def test_all_wrong_values_are_told_at_once(write: Write) -> None:
    write("[relay]\nbatch_size = 0\nmax_attempts = 'x'\n")
    first, second = refused().splitlines()
    assert first.startswith("relay.batch_size = 0 in ./inorder.toml")
    assert second.startswith("relay.max_attempts = 'x' in ./inorder.toml")


def test_a_wrong_variable_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INORDER_RELAY__BATCH_SIZE", "many")
    message = refused()
    assert message == ("relay.batch_size = 'many' in INORDER_RELAY__BATCH_SIZE is wrong: expected a whole number.")


@pytest.mark.parametrize(("name", "text"), [("INORDER_TOPICS", "{"), ("INORDER_PIPELINE__UPSERT__FIELDS", "x")])
def test_a_table_in_a_variable_must_be_json(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    assert f"in {name} must be a JSON object" in refused()


@pytest.mark.parametrize("overrides", [{"relay": 5}, {"kafka": "broker:1"}, {"topics": {"orders": 1}}])
def test_a_value_where_a_table_belongs_is_refused(overrides: dict[str, Any]) -> None:
    assert "is a value, but it must be a table of settings" in refused(**overrides)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"data": "blob"}, "pipeline.upsert.fields.data = 'blob' in the overrides is wrong: expected one of"),
        ({}, "pipeline.upsert.fields = {} in the overrides is wrong: expected at least one entry."),
        (["data"], "pipeline.upsert.fields = ['data'] in the overrides is wrong: expected a table."),
    ],
)
def test_wrong_fields_are_refused(fields: Any, expected: str) -> None:
    assert refused(pipeline={"upsert": {"fields": fields}}).startswith(expected)


def test_broken_toml_names_file_and_line(write: Write) -> None:
    write('[relay]\ngroup = "x"\nbatch_size = \n')
    message = refused()
    assert message.startswith("./inorder.toml is not valid TOML:")
    assert "line 3" in message


def test_a_file_that_is_not_text_is_refused(write: Write) -> None:
    write("").write_bytes(b"\xff\xfe\x00")
    assert refused().startswith("./inorder.toml cannot be read")


def test_a_folder_is_no_file(write: Write) -> None:
    file = write("")
    file.unlink()
    file.mkdir()
    assert refused().startswith("./inorder.toml cannot be read")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("transactional.id", 'kafka."transactional.id"'),
        ("group.id", 'kafka."group.id"'),
        ("isolation.level", 'kafka."isolation.level"'),
        ("enable.auto.commit", 'kafka."enable.auto.commit"'),
        ("partitioner", "kafka.partitioner"),
    ],
)
def test_kafka_properties_that_inorder_sets_itself_are_refused(write: Write, name: str, key: str) -> None:
    write(f'[kafka]\n"{name}" = "x"\n')
    assert refused().startswith(f"{key} in ./inorder.toml is set by inorder itself")


def test_a_kafka_property_must_be_a_plain_value() -> None:
    assert "must be text, a number or a boolean" in refused(kafka={"acks": ["all"]})


def test_a_topic_needs_a_name_that_kafka_takes() -> None:
    assert "topics" in refused(topics={"not a topic": {"partitioner": "murmur2"}})


def test_a_layout_without_a_place_for_marks_is_refused_naming_both_keys() -> None:
    message = refused(relay={"layout": "debezium", "strategy": "mark-purge"})
    assert "relay.layout = 'debezium'" in message
    assert "relay.strategy = 'mark-purge'" in message


def test_published_rows_are_kept_only_where_they_can_be() -> None:
    assert "relay.layout = 'native'" in refused(relay={"layout": "goharvest", "retention_days": 3})
    message = refused(relay={"retention_days": 3}, database={"url": "mysql+pymysql://u@h/d"})
    assert "PostgreSQL in database.url" in message


@pytest.mark.parametrize("shards", [0, 1001])
def test_shards_have_bounds(shards: int) -> None:
    assert "relay.shards" in refused(relay={"shards": shards})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("plugin.library.paths", "monitoring-interceptor", "loads code into the process"),
        ("ssl.engine.location", "/tmp/engine.so", "loads code into the process"),
        ("ssl.providers", "default,tpm2", "loads code into the process"),
        ("sasl.kerberos.kinit.cmd", "kinit -R", "runs a command in a shell"),
    ],
)
def test_a_property_that_brings_code_needs_a_variable_of_the_process(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = rf"kafka\.\"{re.escape(name)}\".* {why}; set INORDER_ALLOW_PLUGINS=1"
    with pytest.raises(ConfigurationError, match=wanted):
        Settings.load(kafka={name: value})
    with pytest.raises(ConfigurationError, match=wanted.removeprefix("kafka")):
        Settings.load(pipeline={"kafka_java": {name: value}})
    monkeypatch.setenv("INORDER_ALLOW_PLUGINS", "1")
    assert Settings.load(kafka={name: value}).kafka.properties[name] == value


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5_000, "kafka.a" + ".a" * 500 + " = 1", "relay.group = " + "[" * 80 + "]" * 80]
)
def test_a_file_that_is_nested_too_deeply_is_refused_with_its_name(write: Write, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"inorder\.toml is nested more than 32 levels deep") as caught:
        Settings.load(write(text))
    assert (caught.value.exit_code, bool(caught.value.hint)) == (3, True)


def test_a_variable_that_opens_thousands_of_objects_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INORDER_KAFKA", '{"a":' * 5_000)  # Python 3.12 and newer read it to its end
    with pytest.raises(ConfigurationError, match=r"INORDER_KAFKA (is nested more than 32|must be a JSON object)"):
        Settings.load()


@pytest.mark.parametrize("levels", [5_000, 500])
def test_a_variable_that_is_nested_too_deeply_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch, levels: int
) -> None:
    monkeypatch.setenv("INORDER_KAFKA", '{"a":' * levels + "1" + "}" * levels)
    with pytest.raises(ConfigurationError, match="INORDER_KAFKA is nested more than 32 levels deep"):
        Settings.load()


def test_a_number_of_thousands_of_digits_is_no_valid_toml(write: Write) -> None:
    with pytest.raises(ConfigurationError, match="is not valid TOML"):
        Settings.load(write("relay.shards = " + "9" * 5_000))


def test_a_credentials_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    for text in ('{"user":' + "[" * 5_000, "user = " + "[" * 5_000):
        (tmp_path / "login").write_text(text)
        message = refused(database={"credentials_file": tmp_path / "login"})
        assert "is neither TOML nor JSON" in message


def test_a_refusal_of_very_many_or_very_long_values_is_short() -> None:
    assert len(refused(relay={"group": "x" * 5_000})) < 1_000
    assert len(refused(relay={"x" * 5_000: 1})) < 1_000
    assert "There are 488 more errors." in refused(journal={"topic_prefixes": [[]] * 500})
