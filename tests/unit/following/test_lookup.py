"""What the lookup of a key reads in the outbox and of pauses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import inorder
from inorder.app import App
from inorder.database.database import Database, open_database
from inorder.journal.stores.ports import LogRecord, Window
from inorder.model.deadline import Deadline
from inorder.model.errors import ConfigurationError
from inorder.model.partitioning import Extent
from inorder.operate.fields import trace_fields
from inorder.operate.key_lookup import (
    NEWEST,
    Before,
    KeyLookup,
    _Carrier,
    _Tracing,
    pauses_of,
    rows_written,
    waiting_rows,
)
from inorder.operate.key_timeline import timeline
from inorder.operate.key_trace import KeyTrace, TableHop, TopicHop
from inorder.settings import Settings
from inorder.topics.pauses import Pause, PauseKind, Pauses


@pytest.fixture
def database(tmp_path: Path, empty_place: None) -> Iterator[Database]:
    """An outbox with rows of one key in two topics."""
    url = f"sqlite:///{tmp_path / 'test.db'}"
    with App(Settings.load(database={"url": url})) as app:
        app.install_schema("native")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        messages = [inorder.Message(topic, key="k", value="v") for topic in ("orders", "orders", "bills")]
        inorder.Outbox().publish_list(connection, messages)
    engine.dispose()
    with closing(open_database(url, "test")) as found:
        yield found


def test_only_rows_of_the_topic_that_was_asked_for_are_counted(database: Database) -> None:
    count, first = waiting_rows(database, "outbox", "native", b"k", topic="bills")
    assert (count, [row.topic for row in first]) == (1, ["bills"])
    count, first = waiting_rows(database, "outbox", "native", b"k")
    assert (count, [row.topic for row in first]) == (3, ["orders", "orders", "bills"])


def test_rows_whose_records_are_shown_have_their_time_while_they_are_in_the_outbox(database: Database) -> None:
    found = rows_written(database, "outbox", "native", b"k", {"1", "3", "9", None, "chosen-by-its-writer", "9" * 30})
    assert list(found) == ["1", "3"]
    assert all(found.values())
    assert rows_written(database, "outbox", "native", b"another", {"1"}) == {}
    assert rows_written(database, "outbox", "native", b"k", set()) == {}


class MemoryLog:
    """A partition whose records have the key at even offsets."""

    def records(self, window: Window, key: bytes, _deadline: Deadline) -> Iterator[LogRecord]:
        return (
            LogRecord(offset, 1, key, b"%d" % offset, ())
            for offset in range(window.first, window.last + 1)
            if offset % 2 == 0
        )


def in_partition(end: int, before: Before | None) -> TopicHop:
    parts: Any = KeyLookup(None, *[None] * 6)  # type: ignore[arg-type] # only the log is read
    log: Any = MemoryLog()
    carrier = _Carrier("orders", "orders.g1", 1, is_journal=False)
    return _Tracing(parts, "k", None, False, before)._in_partition(log, carrier, 3, Extent(0, end))


def test_older_records_come_page_by_page_and_the_newest_decides_what_has_arrived() -> None:
    hop = in_partition(2 * (2 * NEWEST + 1), None)
    assert (hop.records, len(hop.shown), hop.older) == (2 * NEWEST + 1, NEWEST, NEWEST + 1)
    pages = [hop]
    while (token := trace_fields(KeyTrace("k", topics=(pages[-1],)))["topics"][0]["before"]) is not None:
        pages.append(in_partition(2 * (2 * NEWEST + 1), Before.parse(token)))
        assert (pages[-1].last, pages[-1].records) == (hop.last, hop.records)
    offsets = [event.offset for page in reversed(pages) for event in timeline(KeyTrace("k", topics=(page,)))]
    assert offsets == list(range(0, 2 * (2 * NEWEST + 1), 2))
    assert in_partition(20, Before("orders.g1", 2, 4)).page is None, "of another partition"


@pytest.mark.parametrize("text", ["", "orders", "orders:1", "orders:x:1", "orders:1:-1", ":1:1"])
def test_a_page_before_something_that_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="TOPIC:PARTITION:OFFSET"):
        Before.parse(text)
    assert Before.parse("or:ders:1:2") == ("or:ders", 1, 2)


def pause(kind: PauseKind, name: str) -> Pause:
    return Pause(kind, name, "why", "ann", "now")


def test_the_pauses_of_a_key_are_its_own_and_those_of_its_topics_and_tables() -> None:
    ours = (
        pause(PauseKind.KEY, "orders/k/1"),
        pause(PauseKind.TOPIC, "orders"),
        pause(PauseKind.TABLE, "messages"),
        pause(PauseKind.PIPELINE, "upsert"),
    )
    others = (
        pause(PauseKind.KEY, "orders/k"),
        pause(PauseKind.KEY, "bills/k/1"),
        pause(PauseKind.TOPIC, "bills"),
        pause(PauseKind.TABLE, "accounts"),
        pause(PauseKind.PIPELINE, "replicate"),
        pause(PauseKind.SHARD, "0"),
    )
    tables = [TableHop("messages", "upsert:messages")]
    assert pauses_of(Pauses(others + ours), "k/1", {"orders"}, tables) == ours
