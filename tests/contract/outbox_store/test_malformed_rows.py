"""A row that was written incorrectly comes back with its flaw; the rows around it come back as they are."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from inorder.model.message import OutboxRow
from inorder.outbox.layouts import layout
from inorder.relay.stores.ports import Scan
from tests.contract.outbox_store.making import TOPICS, Place, SqlPlace


def damaged(place: SqlPlace, change: str, parameters: dict[str, Any] | None = None) -> OutboxRow:
    """Writes three rows, changes the second, and returns it as the store reads it."""
    store = place.store()
    place.write("before", "guilty", "after")
    guilty = store.read(Scan(0), 10).rows[1].id
    id = layout(place.layout, place.dialect or "").id
    place.run(f"UPDATE outbox SET {change} WHERE {id} = {guilty}", parameters)
    rows = store.read(Scan(0), 10).rows
    assert [bool(row.flaw) for row in rows] == [False, True, False]
    assert place.values([rows[0], rows[2]]) == ["before", "after"]
    return rows[1]


def array(place: Place, items: list[str | None]) -> Any:
    """An array as the goharvest layout keeps it."""
    return items if place.dialect == "postgres" else json.dumps(items)


def test_a_row_with_an_empty_topic(sql_place: SqlPlace) -> None:
    row = damaged(sql_place, f"{TOPICS[sql_place.layout]} = ''")
    assert row.flaw == f"{TOPICS[sql_place.layout]} is empty"
    assert row.topic == ""
    assert sql_place.values([row]) == ["guilty"], "what can be read is there for operators"


def test_a_row_with_a_null_topic(any_on_postgres: SqlPlace) -> None:
    column = TOPICS[any_on_postgres.layout]
    any_on_postgres.run(f"ALTER TABLE outbox ALTER COLUMN {column} DROP NOT NULL")
    row = damaged(any_on_postgres, f"{column} = NULL")
    assert (row.topic, row.flaw) == ("", f"{column} is null")


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": "b"}', '["a"]', '[["a", 1]]', '[[null, "b"]]', '[["a", {"base64": "%"}]]', "null"]
)
def test_headers_that_our_publisher_does_not_write(native: SqlPlace, text: str) -> None:
    row = damaged(native, "headers = %(text)s", {"text": text})
    assert "headers are damaged" in row.flaw
    assert row.headers == ()


@pytest.mark.parametrize(
    ("keys", "values", "flaw"),
    [
        (["a", "b"], ["1"], "kafka_header_keys has 2 items and kafka_header_values 1"),
        ([], ["1"], "kafka_header_keys has 0 items and kafka_header_values 1"),
        (["a", None], ["1", "2"], "kafka_header_keys has a null at position 1"),
    ],
)
def test_header_arrays_that_do_not_match(
    goharvest: SqlPlace, keys: list[str | None], values: list[str | None], flaw: str
) -> None:
    change = "kafka_header_keys = %(keys)s, kafka_header_values = %(values)s"
    row = damaged(goharvest, change, {"keys": array(goharvest, keys), "values": array(goharvest, values)})
    assert row.flaw == flaw
    assert row.headers == ()


def test_header_arrays_that_match_are_headers(goharvest: SqlPlace) -> None:
    goharvest.write("x")
    arrays = {"keys": array(goharvest, ["a", "ä", "a"]), "values": array(goharvest, ["1", None, "€"])}
    goharvest.run("UPDATE outbox SET kafka_header_keys = %(keys)s, kafka_header_values = %(values)s", arrays)
    [row] = goharvest.store().read(Scan(0), 1).rows
    assert row.headers == (("a", b"1"), ("ä", None), ("a", "€".encode()))
    assert row.flaw == ""


@pytest.mark.parametrize(
    ("header", "flaw"),
    [
        ("{", "header is not a JSON object ("),
        ('["a", "b"]', "header is not a JSON object"),
        ('{"a": {"b": "c"}}', "header is not a flat JSON object"),
    ],
)
def test_a_header_column_that_is_no_object_of_texts(trendyol: SqlPlace, header: str, flaw: str) -> None:
    row = damaged(trendyol, "header = %(header)s", {"header": header})
    assert row.flaw.startswith(flaw)
    assert row.headers == ()


def test_a_header_column_is_headers(trendyol: SqlPlace) -> None:
    trendyol.write("x")
    trendyol.run("UPDATE outbox SET header = %(text)s", {"text": '{"trace": "ä", "none": null, "n": 1.50, "b": true}'})
    [row] = trendyol.store().read(Scan(0), 1).rows
    assert row.headers == (("trace", "ä".encode()), ("none", None), ("n", b"1.50"), ("b", b"true"))
    assert (row.flaw, row.timestamp_ms, row.partition) == ("", None, None)


@pytest.mark.parametrize(
    ("column_type", "stored", "sent"),
    [
        ("jsonb", '{"b": 1,  "a": [2]}', b'{"a": [2], "b": 1}'),
        ("json", '{"b": 1,  "a": [2]}', b'{"b": 1,  "a": [2]}'),
        ("text", "plain \\x41", b"plain \\x41"),
        ("varchar(100)", "ü", "ü".encode()),
        ("bytea", "\\x00ff5c", b"\x00\xff\\"),
        ("jsonb", None, None),
        ("bytea", None, None),
    ],
)
def test_a_payload_of_any_type_is_sent_as_its_bytes(
    debezium_on_postgres: SqlPlace, column_type: str, stored: str | None, sent: bytes | None
) -> None:
    id = uuid4()
    debezium_on_postgres.run("SET bytea_output = escape")
    debezium_on_postgres.run("ALTER TABLE outbox DROP COLUMN payload")
    debezium_on_postgres.run(f"ALTER TABLE outbox ADD COLUMN payload {column_type}")
    insert = "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (%(id)s, 'order', '1', 'X', "
    debezium_on_postgres.run(f"{insert} CAST(%(payload)s AS {column_type}))", {"id": id, "payload": stored})
    [row] = debezium_on_postgres.store().read(Scan(0), 1).rows
    assert (row.value, row.flaw) == (sent, "")
    assert row.headers == (("id", str(id).encode()),)
    assert (row.topic, row.key) == ("outbox.event.order", b"1")
