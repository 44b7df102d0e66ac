"""On SQLite ids appear in order, a busy file is waited for, and a row may hold whatever its writer put there."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.message import Message
from inorder.model.partitioning import Shard, shard_of
from inorder.outbox import Outbox
from inorder.relay.stores.ports import Scan
from inorder.relay.stores.sqlite_outbox import SQLiteOutboxStore
from tests.contract.outbox_store.making import MAKERS, SqlPlace


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    with ExitStack() as stack:
        yield MAKERS["sqlite"](request, "native", stack)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'outbox.db'}"


@pytest.fixture
def store(url: str) -> Iterator[SQLiteOutboxStore]:
    with closing(SQLiteOutboxStore(url, "outbox")) as found:
        yield found


def test_no_transaction_can_hold_an_id_below_one_that_is_visible(place: SqlPlace, store: SQLiteOutboxStore) -> None:
    place.insert("open", "a")
    hasty = place.writer("hasty")
    hasty.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        place.insert("hasty", "b")
    assert store.holders() == frozenset()
    assert store.read(Scan(0), 10).rows == []
    place.end("open")
    place.write("c")
    assert place.values(store.read(Scan(0), 10).rows) == ["a", "c"]


def test_rows_are_read_while_somebody_writes(place: SqlPlace, store: SQLiteOutboxStore) -> None:
    place.write("a")
    place.insert("open", "b")
    assert place.values(store.read(Scan(0), 10).rows) == ["a"]


def test_a_file_that_stays_busy_is_an_error_of_the_environment(
    place: SqlPlace, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inorder.database.sqlite.BUSY_TIMEOUT_SECONDS", 0.05)
    place.write("a")
    with closing(SQLiteOutboxStore(url, "outbox")) as store:
        place.insert("open", "b")
        with pytest.raises(TransientError, match="SQLITE_BUSY"):
            store.purge([1])
        place.end("open")
        assert store.purge([1]) == 1


def test_a_missing_table_is_named_with_the_command_that_makes_it(url: str) -> None:
    with closing(SQLiteOutboxStore(url, "nowhere")) as store, pytest.raises(ConfigurationError) as caught:
        store.read(Scan(0), 1)
    assert "nowhere" in caught.value.message
    assert "inorder schema install" in caught.value.hint


def test_the_shard_of_any_row_is_that_of_the_rule_in_python(place: SqlPlace, url: str) -> None:
    chance = random.Random(4)
    keys = [None, b"", b"\0", b"\xff\xfe", *(chance.randbytes(chance.randint(0, 60)) for _ in range(200))]
    writer = place.writer("writer")
    Outbox().publish_list(writer, [Message(f"t.{n % 5}", key=key, value="x") for n, key in enumerate(keys)])
    writer.commit()
    for count in (2, 7):
        pages = []
        for index in range(count):
            with closing(SQLiteOutboxStore(url, "outbox", shard=Shard(index, count))) as store:
                pages.append(store.read(Scan(0, walk=True), 1000))
        assert sum(len(page.rows) for page in pages) == len(keys)
        for index, page in enumerate(pages):
            assert all(shard_of(row.topic, row.key, row.id, count) == index for row in page.rows)


def test_text_that_is_no_text_makes_a_flaw_in_one_shard_only(place: SqlPlace, url: str) -> None:
    place.run("INSERT INTO outbox (topic, \"key\") VALUES (CAST(x'ff' AS TEXT), 'k')")
    flaws = []
    for index in range(3):
        with closing(SQLiteOutboxStore(url, "outbox", shard=Shard(index, 3))) as store:
            flaws += [row.flaw for row in store.read(Scan(0), 10).rows]
    assert len(flaws) == 1
    assert "UTF-8" in flaws[0]


def test_twenty_thousand_single_ids_are_asked_for_in_one_statement(place: SqlPlace, store: SQLiteOutboxStore) -> None:
    place.write("a", "b")
    page = store.read(Scan(2, probes=(1, *range(1000, 21_000))), 10)
    assert place.values(page.rows) == ["a"]
    assert store.purge(range(1, 21_000)) == 2


def test_a_closed_store_opens_again(place: SqlPlace, store: SQLiteOutboxStore) -> None:
    place.write("a")
    store.read(Scan(0), 1)
    store.close()
    store.close()
    assert len(store.read(Scan(0), 1).rows) == 1
