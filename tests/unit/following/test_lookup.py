"""What the lookup of a key reads in the outbox and of pauses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

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
    _Carrier,
    _Tracing,
    key_bytes,
    key_text,
    pauses_of,
    rows_written,
    waiting_rows,
)
from inorder.operate.key_timeline import timeline
from inorder.operate.key_trace import KeyTrace, TableHop, TopicHop
from inorder.settings import Settings
from inorder.topics.pauses import Pause, PauseKind, Pauses
from tests.selection import examples


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
    parts: Any = SimpleNamespace(id_header="")
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


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("42", b"42"),
        ("hex:00ff", b"\0\xff"),
        ("hex:FF", b"\xff"),
        ("hex:3432", b"42"),
        ("hex:", b"hex:"),
        ("hex:day", b"hex:day"),
        ("hex:f", b"hex:f"),
        ("hex:f f0", b"hex:f f0"),
        ("hex:6865783a6666", b"hex:ff"),
    ],
)
def test_a_key_that_is_not_text_is_given_in_hexadecimal_digits(text: str, key: bytes) -> None:
    assert key_bytes(text) == key
    assert key_bytes(key_text(key)) == key


@given(st.binary())
@examples(300)
def test_every_key_has_a_text_that_means_it(key: bytes) -> None:
    assert key_bytes(key_text(key)) == key


@pytest.mark.parametrize(("asked", "shown"), [("hex:3432", "42"), ("hex:ff", "hex:ff")])
def test_a_key_is_looked_up_by_its_bytes_and_shown_as_text_where_it_is(asked: str, shown: str) -> None:
    parts: Any = SimpleNamespace()
    tracing = _Tracing(parts, asked, None, False, None)
    assert (tracing._bytes, tracing._key) == (bytes.fromhex(asked[4:]), shown)
    topics: Any = [(TopicHop("journal", 0, 0, 0, 1), _Carrier("journal", "journal", 0, is_journal=True))]
    if shown == asked:
        assert list(tracing._journals(topics)) == [], "the id of a journal is text"


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


def test_the_pause_of_the_shard_that_sends_a_key_is_its_pause_too() -> None:
    rows = tuple(pause(PauseKind.SHARD, name) for name in "012")
    assert pauses_of(Pauses(rows), "k", {"orders"}, [], [1]) == rows[1:2]


@pytest.mark.parametrize(
    ("strategy", "shards"),
    [("drain", {"bills": 1, "orders": 0}), ("mark-purge", {"bills": 1, "orders": 0}), ("polling", {})],
)
def test_the_outbox_says_which_shard_sends_the_rows_of_a_key(
    database: Database, strategy: str, shards: dict[str, int]
) -> None:
    relay = SimpleNamespace(table="outbox", layout="native", strategy=strategy, shards=4)
    polling = SimpleNamespace(state=lambda: SimpleNamespace(offset=0))
    stored: Any = SimpleNamespace(
        database=database,
        relay=SimpleNamespace(relay=relay, polling_store=lambda _database: polling),
        admin=SimpleNamespace(exceeded_rows=lambda **_: []),
    )
    parts: Any = SimpleNamespace()
    assert _Tracing(parts, "k", None, False, None)._outbox(stored).shards == shards
