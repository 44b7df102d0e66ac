"""A message that the pipeline of its topic would reject is refused before anything is written or sent."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import inorder
from inorder.outbox.layouts import install_statements

SCHEMA = '{"type": "object", "properties": {"price": {"minimum": 0}}}'

GOOD = inorder.Message("upsert", key=1, value={"id": 1, "enabled": True})
WRONG = inorder.Message("upsert", key=2, value={"id": 2, "enabled": "yes"})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings with a table and a schema, in a folder of their own."""
    (tmp_path / "orders.json").write_text(SCHEMA)
    file = tmp_path / "inorder.toml"
    file.write_text('[publisher]\nbackend = "memory"\n[topics.orders]\njson_schema = "orders.json"\n')
    return file


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    found = sqlite3.connect(":memory:")
    for statement in install_statements("native", "sqlite", "outbox"):
        found.execute(statement)
    yield found
    found.close()


def publisher(config: Path, **sections: Any) -> inorder.Publisher:
    return inorder.Publisher(inorder.Settings.load(config, **sections))


def test_a_refusal_names_the_field_the_value_and_the_rule(config: Path) -> None:
    with publisher(config) as found, pytest.raises(inorder.ValidationError) as caught:
        found.publish(WRONG)
    assert caught.value.field == "value"
    assert caught.value.rule == "wrong-type"
    assert caught.value.message == ("value: The field 'enabled' is a JSON string, not boolean: 'yes'. (wrong-type)")


def test_one_bad_message_refuses_the_list_and_is_named_by_its_place(config: Path) -> None:
    with publisher(config) as found:
        with pytest.raises(inorder.ValidationError) as caught:
            found.publish_list([GOOD, WRONG])
        assert (caught.value.field, caught.value.rule) == ("messages[1].value", "wrong-type")
        assert found.published.messages() == []


def test_a_refusal_survives_pickling(config: Path) -> None:
    with publisher(config) as found, pytest.raises(inorder.ValidationError) as caught:
        found.publish(WRONG)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own error
    assert (copy.field, copy.rule, str(copy)) == (caught.value.field, "wrong-type", str(caught.value))


def test_a_topic_with_a_schema_is_held_against_it(config: Path) -> None:
    with publisher(config) as found:
        found.publish(inorder.Message("orders", key="a", value={"price": 1}))
        with pytest.raises(inorder.ValidationError, match="'price' breaks the rule 'minimum'") as caught:
            found.publish(inorder.Message("orders", key="a", value={"price": -1}))
        assert caught.value.rule == "schema-mismatch"
        assert len(found.published.messages()) == 1


def test_the_schema_of_a_table_s_topic_holds_beside_the_mapping(config: Path) -> None:
    (config.parent / "upsert.json").write_text('{"properties": {"data": {"maxLength": 2}}}')
    with publisher(config, topics={"upsert": {"json_schema": str(config.parent / "upsert.json")}}) as found:
        found.publish(GOOD)
        with pytest.raises(inorder.ValidationError, match="maxLength"):
            found.publish(inorder.Message("upsert", key=1, value={"id": 1, "data": "long"}))
        with pytest.raises(inorder.ValidationError, match="not boolean"):
            found.publish(WRONG)


def test_each_of_several_tables_has_its_own_rules(config: Path) -> None:
    seats = {"topic": "seats", "table": "seats", "key": ["flight", "seat"], "key_type": ["bigint", "text"]}
    orders = {"topic": "orders", "table": "orders", "fields": {"price": "numeric"}}
    with publisher(config, pipeline={"tables": [seats, orders]}) as found:
        found.publish(inorder.Message("seats", key='[7,"12A"]', value={"flight": 7, "seat": "12A", "enabled": True}))
        found.publish(inorder.Message("orders", key=1, value={"id": 1, "price": "9.90"}))
        found.publish(inorder.Message("upsert", value=b"feeds no table any more"))
        with pytest.raises(inorder.ValidationError, match="key-mismatch"):
            found.publish(inorder.Message("seats", key="7", value={"flight": 7, "seat": "12A", "enabled": True}))
        with pytest.raises(inorder.ValidationError, match="'price' breaks the rule 'minimum'"):
            found.publish(inorder.Message("orders", key=1, value={"id": 1, "price": -1}))
        with pytest.raises(inorder.ValidationError, match="'price' is a JSON boolean, not numeric: True"):
            found.publish(inorder.Message("orders", key=1, value={"id": 1, "price": True}))


def test_other_topics_take_everything(config: Path) -> None:
    with publisher(config) as found:
        found.publish(inorder.Message("elsewhere", value=b"\xff"))
        assert len(found.published.messages()) == 1


def test_the_checks_can_be_turned_off(config: Path) -> None:
    with publisher(config, publisher={"checks_messages": False}) as found:
        found.publish(WRONG)
        assert found.published.messages() == [WRONG]


def test_an_outbox_takes_the_same_checks(config: Path, connection: sqlite3.Connection) -> None:
    outbox = inorder.Outbox("outbox", checks=inorder.message_checks(inorder.Settings.load(config)))
    with pytest.raises(inorder.ValidationError, match="not boolean"):
        outbox.publish(connection, WRONG)
    with pytest.raises(inorder.ValidationError, match=r"messages\[1\]\.value"):
        outbox.publish_list(connection, [GOOD, WRONG])
    assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
    outbox.publish(connection, GOOD)
    inorder.Outbox("outbox").publish(connection, WRONG)
    assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (2,)


def test_a_schema_that_is_not_there_is_refused_when_the_publisher_is_made(config: Path) -> None:
    with pytest.raises(inorder.ConfigurationError, match=r"topics\.orders\.json_schema names .*nowhere\.json"):
        publisher(config, topics={"orders": {"json_schema": "nowhere.json"}})


def test_a_schema_is_looked_for_beside_the_settings_file_that_names_it(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert inorder.Settings.load(config).schema_file("orders") == config.parent / "orders.json"
    monkeypatch.setenv("INORDER_TOPICS__ORDERS__JSON_SCHEMA", "here.json")
    assert inorder.Settings.load(config).schema_file("orders") == Path("here.json")
    assert inorder.Settings.load(config).schema_file("another") is None


SEATS = {"topic": "seats", "table": "seats", "key": ["flight", "seat"], "key_type": ["bigint", "text"]}


@pytest.mark.parametrize(
    ("table", "value", "key"),
    [
        ({"topic": "t", "table": "t"}, {"id": 7, "data": "a"}, b"7"),
        ({"topic": "t", "table": "t"}, {"id": 7}, b"7"),
        ({"topic": "t", "table": "t", "keyless": "apply"}, {"id": 7, "data": "a"}, None),
        (SEATS, {"flight": 7, "seat": "12A", "data": "a"}, b'[7,"12A"]'),
    ],
)
def test_a_message_without_a_key_gets_that_of_its_row(
    config: Path, connection: sqlite3.Connection, table: dict[str, Any], value: dict[str, Any], key: bytes | None
) -> None:
    settings = inorder.Settings.load(config, pipeline={"tables": [table]})
    outbox = inorder.Outbox("outbox", checks=inorder.message_checks(settings))
    outbox.publish(connection, inorder.Message(table["topic"], value=value))
    [(found,)] = connection.execute("SELECT key FROM outbox").fetchall()
    assert found == key


def test_a_message_without_a_key_that_names_no_row_is_refused(config: Path) -> None:
    with publisher(config) as found:
        for value in ({"data": "a"}, None):
            with pytest.raises(inorder.ValidationError, match=r"missing-key|null-value"):
                found.publish(inorder.Message("upsert", value=value))
