"""One statement in a file, every spelling and size from it."""

from __future__ import annotations

import asyncio
import gc
import re
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from inorder.model.errors import ConfigurationError, ValidationError
from inorder.model.message import Message, Record
from inorder.outbox import Outbox
from inorder.outbox.append import OutboxTable, PublishCall, append_statement, split_batches
from inorder.outbox.layouts import install_statements

COLUMNS = {"topic", "key", "value", "headers", "partition", "timestamp"}
WRITES = {
    "native": COLUMNS,
    "deimos": {"topic", "key", "value"},
    "trendyol": {"topic", "text_key", "text_value", "header"},
}


def record(value: bytes | None = None, key: bytes | None = None) -> Record:
    return Record("orders", key, value, (("a", b"b"),), 1, 2)


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "mariadb", "sqlite"])
@pytest.mark.parametrize("layout", WRITES)
def test_both_spellings_bind_the_same_columns(layout: str, dialect: str) -> None:
    append = append_statement("outbox", dialect, layout)
    assert set(re.findall(r"%\((\w+)\)s", append.pyformat)) == WRITES[layout]
    assert "%" not in re.sub(r"%\(\w+\)s|%%", "", append.pyformat)
    assert "%(" not in append.named
    assert set(text(append.named)._bindparams) == WRITES[layout]


def test_a_layout_that_others_write_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="'goharvest'") as refusal:
        OutboxTable("outbox", "goharvest")
    assert refusal.value.hint == "Its own writers fill it. inorder writes: native, deimos, trendyol."


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message("t", headers={"a": "b"}), "headers"),
        (Message("t", partition=0), "partition"),
        (Message("t", timestamp=1), "timestamp"),
    ],
)
def test_what_a_layout_has_no_column_for_is_refused_and_never_dropped(message: Message, field: str) -> None:
    outbox = Outbox("messages", layout="deimos")
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(
            ValidationError, match="'deimos' of table 'messages' cannot hold it: there is no column"
        ) as caught:
            outbox.publish(connection, message)
        assert caught.value.field == field
        with pytest.raises(ValidationError) as caught:
            outbox.publish_list(connection, [Message("t"), message])
        assert caught.value.field == f"messages[1].{field}"


GOOD = Message("t", key="k" * 200, value="v", headers={"a": "b"})


@pytest.mark.parametrize(
    ("message", "field", "reason"),
    [
        (Message("t", value="v", partition=0), "partition", "there is no column for it"),
        (Message("t", value="v", timestamp=1), "timestamp", "there is no column for it"),
        (Message("t", key="ü" * 201, value="v"), "key", "holds 200 characters"),
        (Message("t", key=b"\xff", value="v"), "key", "not UTF-8 (invalid start byte at byte 0)"),
        (Message("t", key="a\0b", value="v"), "key", "cannot contain null characters"),
        (Message("t"), "value", "no tombstones"),
        (Message("t", value=b"\xff"), "value", "not UTF-8"),
        (Message("t", value="v\0"), "value", "cannot contain null characters"),
        (Message("t", value="v", headers={"a": None}), "headers", "'a' has no value"),
        (Message("t", value="v", headers={"a": b"\xff"}), "headers", "'a': its column holds text"),
        (Message("t", value="v", headers=[("a", "1"), ("a", "2")]), "headers", "a name occurs twice"),
    ],
)
def test_what_the_trendyol_columns_cannot_hold_is_refused_before_anything_is_written(
    message: Message, field: str, reason: str
) -> None:
    outbox = Outbox("outbox_events", layout="trendyol")
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(ValidationError, match=re.escape(reason)) as caught:
            outbox.publish(connection, message)
        assert caught.value.field == field
        with pytest.raises(ValidationError) as caught:
            outbox.publish_list(connection, [GOOD, message])
        assert caught.value.field == f"messages[1].{field}"


@pytest.mark.parametrize(
    ("dialect", "quoted"),
    [("postgresql", '"app"."outbox"'), ("mysql", "`app`.`outbox`"), ("sqlite", '"app"."outbox"')],
)
def test_the_table_is_quoted_as_its_database_quotes(dialect: str, quoted: str) -> None:
    assert f"INSERT INTO {quoted} (" in append_statement("app.outbox", dialect).pyformat
    assert f"IF NOT EXISTS {quoted} (" in install_statements("native", dialect, "app.outbox")[0]


def test_postgres_takes_a_list_a_column_and_the_others_a_list_of_rows() -> None:
    records = [record(b"1"), record(b"2")]
    arrays = append_statement("outbox", "postgresql").parameters(records)
    assert arrays["value"] == [b"1", b"2"]
    assert arrays["headers"] == ['[["a","b"]]'] * 2
    rows = append_statement("outbox", "sqlite").parameters(records)
    assert [row["value"] for row in rows] == [b"1", b"2"]
    assert set(arrays) == set(rows[0]) == COLUMNS


@given(st.lists(st.integers(0, 3_000_000), max_size=30))
def test_batches_keep_all_records_in_order_and_stay_within_4_mib(sizes: list[int]) -> None:
    block = bytes(3_000_000)
    records = [record(block[:size]) for size in sizes]
    parts = list(split_batches(records))
    assert [each for part in parts for each in part] == records
    for part in parts:
        assert len(part) == 1 or sum(len(each.value or b"") for each in part) <= 4 * 1024 * 1024


def test_batches_have_at_most_ten_thousand_records() -> None:
    assert [len(part) for part in split_batches([record()] * 25_000)] == [10_000, 10_000, 5_000]


def test_keys_and_headers_weigh_too() -> None:
    heavy = Record("orders", bytes(1_500_000), None, (("a", bytes(1_500_000)),), None, None)
    assert [len(part) for part in split_batches([heavy] * 2)] == [1, 1]


def test_nothing_is_no_batch() -> None:
    assert list(split_batches([])) == []


def test_a_forgotten_await_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def write() -> None:
        """Writes nothing."""

    def forget() -> None:
        PublishCall(write(), ["orders", "orders"])
        gc.collect()

    with pytest.warns(RuntimeWarning, match="never awaited"):
        forget()
    [record] = caplog.records
    assert (record.getMessage(), record.levelname) == ("publisher.not_awaited", "ERROR")
    assert record.topics == ["orders"]  # type: ignore[attr-defined]


def test_an_awaited_publish_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def write() -> None:
        await asyncio.sleep(0)

    async def call() -> None:
        await PublishCall(write(), ["orders"])
        await asyncio.create_task(PublishCall(write(), ["orders"]))
        PublishCall(write(), ["orders"]).close()

    asyncio.run(call())
    gc.collect()
    assert caplog.records == []
