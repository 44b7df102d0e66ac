"""[pipeline.upsert] and [[pipeline.tables]]: the tables of the job `upsert`, and what cannot be said of them."""

from __future__ import annotations

from typing import Any

import pytest

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings
from tests.unit.settings.conftest import Write

ORDERS = {"topic": "orders", "table": "orders", "fields": {"total": "numeric"}}
SEATS = {"topic": "seats", "table": "seats", "key": ["flight", "seat"], "key_type": ["bigint", "text"]}


def refused(**pipeline: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(pipeline=pipeline)
    return caught.value.message


def test_without_tables_the_job_has_the_one_of_the_seed() -> None:
    [target] = Settings.load().pipeline.targets
    assert (target.topic, target.table, target.key, target.key_type) == ("upsert", "messages", ["id"], ["bigint"])
    assert (target.mode, target.deletes, target.nulls, target.max_attempts) == ("upsert", "tombstone", "ignore", 3)


def test_several_tables_are_read_from_the_file(write: Write) -> None:
    write(
        """
        [[pipeline.tables]]
        topic = "orders"
        table = "shop.orders"
        mode = "insert"
        fields = { total = "numeric", placed = "timestamp" }
        [[pipeline.tables]]
        topic = "seats"
        table = "seats"
        key = ["flight", "seat"]
        key_type = ["bigint", "text"]
        deletes = "reject"
        """
    )
    orders, seats = Settings.load().pipeline.targets
    assert (orders.topic, orders.table, orders.mode, orders.key) == ("orders", "shop.orders", "insert", ["id"])
    assert orders.fields == {"total": "numeric", "placed": "timestamp"}
    assert (seats.key, seats.key_type, seats.deletes) == (["flight", "seat"], ["bigint", "text"], "reject")


def test_a_variable_holds_the_tables_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INORDER_PIPELINE__TABLES", '[{"topic": "orders", "table": "orders"}]')
    assert [target.topic for target in Settings.load().pipeline.targets] == ["orders"]
    monkeypatch.setenv("INORDER_PIPELINE__TABLES", "orders")
    with pytest.raises(ConfigurationError, match="INORDER_PIPELINE__TABLES must be"):
        Settings.load()


@pytest.mark.parametrize(
    ("given", "key"), [("a", ["a"]), ("a,b", ["a", "b"]), ("a, b", ["a", "b"]), (["a", "b"], ["a", "b"])]
)
def test_a_key_is_a_name_or_a_list_of_them(given: object, key: list[str]) -> None:
    assert Settings.load(pipeline={"upsert": {"key": given}}).pipeline.upsert.key == key


def test_every_key_of_a_table_is_shown_with_where_it_came_from(write: Write) -> None:
    write("[[pipeline.tables]]\ntopic = 'orders'\ntable = 'orders'\n")
    rows = {row.key: row for row in Settings.load().describe()}
    assert rows["pipeline.tables.0.topic"].value == "orders"
    assert rows["pipeline.tables.0.topic"].source == "file"
    assert rows["pipeline.engine"].source == "default"


@pytest.mark.parametrize(
    ("pipeline", "named"),
    [
        ({"tables": [{"topic": "a"}]}, "pipeline.tables.0.table"),
        ({"tables": [{**ORDERS, "tpic": "x"}]}, "pipeline.tables.0.tpic = 'x'"),
        ({"tables": [{**ORDERS, "mode": "replace"}]}, "pipeline.tables.0.mode = 'replace'"),
        ({"tables": [{**ORDERS, "key": "no column"}]}, "pipeline.tables.0.key"),
        ({"tables": "orders"}, "pipeline.tables"),
        ({"upsert": {"key": []}}, "pipeline.upsert.key"),
        ({"upsert": {"key_type": "json"}}, "pipeline.upsert.key_type"),
        ({"upsert": {"max_attempts": 0}}, "pipeline.upsert.max_attempts"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(pipeline: dict[str, Any], named: str) -> None:
    message = refused(**pipeline)
    assert named in message
    assert "in the overrides" in message


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        ({"upsert": {"topic": "x"}, "tables": [ORDERS]}, ("pipeline.upsert", "pipeline.tables")),
        ({"tables": [ORDERS, {**SEATS, "topic": "orders"}]}, ("pipeline.tables", "topic 'orders' 2 times")),
        ({"tables": [ORDERS, {**SEATS, "table": "orders"}]}, ("pipeline.tables", "table 'orders' 2 times")),
        ({"tables": [{**ORDERS, "table": "outbox"}]}, ("pipeline.tables.0.table", "relay.table")),
        ({"tables": [{**SEATS, "key_type": ["text", "text", "text"]}]}, ("key names 2 columns", "key_type 3 types")),
        ({"tables": [{**SEATS, "key": ["flight", "flight"]}]}, ("pipeline.tables.0.key = 'flight'", "twice")),
        ({"tables": [{**SEATS, "key": ["flight", "data"]}]}, ("pipeline.tables.0.key = 'data'", "fields")),
        ({"upsert": {"mode": "insert", "deletes": "tombstone"}}, ("pipeline.upsert.deletes", "pipeline.upsert.mode")),
    ],
)
def test_a_contradiction_names_both_keys(pipeline: dict[str, Any], words: tuple[str, str]) -> None:
    message = refused(**pipeline)
    assert all(word in message for word in words)


def test_mode_insert_alone_needs_no_word_about_deletes() -> None:
    assert Settings.load(pipeline={"upsert": {"mode": "insert"}}).pipeline.upsert.mode == "insert"
