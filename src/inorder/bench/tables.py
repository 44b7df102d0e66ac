"""The outbox tables that benchmarks write: one for each layout that a contender reads.

The backlog is written by COPY, a thousand rows a transaction, for every side. Live rows are written as applications do
it: through `Outbox` where it knows the layout, with one INSERT into the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson
import psycopg

from inorder.bench.load import Load, chunks
from inorder.database.postgres import connect
from inorder.database.sql import quoted
from inorder.model.message import Message, to_text
from inorder.outbox import Outbox

ROWS_A_TRANSACTION = 1_000
_CREATED = datetime(2026, 1, 1, tzinfo=UTC)

Headers = Sequence[tuple[str, bytes]]
Row = Callable[[str, bytes, bytes, Headers], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How a record becomes a row."""

    name: str
    columns: tuple[str, ...]
    row: Row
    """From topic, key, value and headers to the values of the columns."""
    topic_prefix: str = ""
    """What the reader of this layout puts before the topic of a row."""

    def fill(self, url: str, table: str, topic: str, load: Load) -> None:
        """Writes a backlog, and leaves the table analyzed and checkpointed."""
        statement = f"COPY {quoted(table)} ({self._columns}) FROM STDIN"
        headers = load.header_pairs
        with connect(url, "inorder bench (fill)") as connection, connection.cursor() as cursor:
            for chunk in chunks(load.records(), ROWS_A_TRANSACTION):
                with cursor.copy(statement) as copy:
                    for key, value in chunk:
                        copy.write_row(self.row(topic, key, value, headers))
                connection.commit()
            connection.autocommit = True
            connection.execute(f"ANALYZE {quoted(table)}")
            connection.execute("CHECKPOINT")

    def publish(self, connection: psycopg.Connection[Any], table: str, topic: str, key: int, value: bytes) -> None:
        """Writes one live row in the transaction of a connection."""
        if self.name in OURS:
            Outbox(table, layout=self.name).publish(connection, Message(topic, key=key, value=value))
            return
        places = ", ".join("%s" for _ in self.columns)
        statement = f"INSERT INTO {quoted(table)} ({self._columns}) VALUES ({places})"  # noqa: S608 - quoted
        connection.execute(statement, self.row(topic, str(key).encode(), value, ()))

    @property
    def _columns(self) -> str:
        return ", ".join(quoted(column) for column in self.columns)


def _native(topic: str, key: bytes, value: bytes, headers: Headers) -> tuple[Any, ...]:
    return topic, key, value, to_text(tuple(headers))


def _deimos(topic: str, key: bytes, value: bytes, _: Headers) -> tuple[Any, ...]:
    return topic, key, value


def _trendyol(topic: str, key: bytes, value: bytes, headers: Headers) -> tuple[Any, ...]:
    header = orjson.dumps({name: value.decode() for name, value in headers}).decode() if headers else None
    return topic, key.decode(), value.decode(), header


def _goharvest(topic: str, key: bytes, value: bytes, headers: Headers) -> tuple[Any, ...]:
    names, values = [name for name, _ in headers], [value.decode() for _, value in headers]
    return _CREATED, topic, key.decode(), value.decode(), names, values


def _debezium(topic: str, key: bytes, value: bytes, _: Headers) -> tuple[Any, ...]:
    # Its topics have a prefix of their own, which the reader adds.
    return uuid4(), topic.removeprefix(DEBEZIUM_PREFIX), key.decode(), "bench", value.decode()


DEBEZIUM_PREFIX = "outbox.event."

OURS = ("native", "deimos", "trendyol")
"""Layouts that `Outbox` writes."""

LAYOUTS: Mapping[str, TableLayout] = {
    layout.name: layout
    for layout in (
        TableLayout("native", ("topic", "key", "value", "headers"), _native),
        TableLayout("deimos", ("topic", "key", "message"), _deimos),
        TableLayout("trendyol", ("topic", "key", "value", "header"), _trendyol),
        TableLayout(
            "goharvest",
            ("create_time", "kafka_topic", "kafka_key", "kafka_value", "kafka_header_keys", "kafka_header_values"),
            _goharvest,
        ),
        TableLayout(
            "debezium",
            ("id", "aggregatetype", "aggregateid", "type", "payload"),
            _debezium,
            topic_prefix=DEBEZIUM_PREFIX,
        ),
    )
}
