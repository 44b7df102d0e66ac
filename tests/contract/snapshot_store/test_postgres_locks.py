"""In PostgreSQL a purge waits for savers that have read the life of their journal, and they wait for a purge."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from inorder.database.postgres import connect
from inorder.journal.snapshots import place_snapshot
from inorder.journal.stores import postgres as postgres_module
from inorder.journal.stores.postgres import PostgresJournal, PostgresSnapshots
from inorder.model.errors import JournalChangedError
from inorder.model.journal import Key
from tests.conftest import Eventually
from tests.contract.snapshot_store.conftest import Store
from tests.contract.snapshot_store.stored import Stored

FIRST_VERSION = """
    CREATE TABLE snapshot (
        id text, topic text, buffer_idx integer, seq_nr bigint, "timestamp" timestamptz, origin text, version text,
        metadata text, payload_type text, payload_txt text, payload_bin bytea, PRIMARY KEY (topic, id, buffer_idx)
    )
"""


@pytest.fixture
def stored(postgres_snapshots: Store, unique: str) -> Stored:
    return Stored(*postgres_snapshots, unique, 2)


@pytest.fixture
def look_on(postgres_snapshots_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with closing(connect(postgres_snapshots_url, "looking on", autocommit=True)) as connection:
        yield connection


def test_a_purge_that_comes_while_one_is_saved_finds_it(
    stored: Stored,
    look_on: psycopg.Connection[tuple[object, ...]],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    """The saver has read that its life continues and has not written yet; then the purge is replicated."""
    stored.append(1)
    stored.replicate()
    purging = threading.Thread(target=stored.replicate, daemon=True)

    def is_waiting() -> bool:
        row = look_on.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).fetchone()
        return row is not None and row[0] == 1

    def interrupted(*arguments: object) -> object:
        stored.journal.purge()
        purging.start()
        eventually(is_waiting)
        return place_snapshot(*arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(postgres_module, "place_snapshot", interrupted)
    stored.save(1)
    purging.join(60)
    assert (stored.kept(), stored.saved()) == ([], [])


def test_a_saver_who_comes_after_a_purge_is_told(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.append(1)
    snapshots = stored.journal._snapshots
    settled = snapshots._settled(1, stored.with_ring(1).deadline("saving"))
    monkeypatch.setattr(type(snapshots), "_settled", lambda *_: settled)
    stored.journal.purge()
    stored.append(1)
    stored.replicate()
    with pytest.raises(JournalChangedError, match=f"{stored.key} was purged while a snapshot of it was saved"):
        stored.save(1)
    assert stored.kept() == []


def test_tables_of_the_first_version_get_their_columns(postgres_url: str) -> None:
    with closing(connect(postgres_url, "old", autocommit=True)) as old:
        old.execute(FIRST_VERSION)
    with closing(PostgresJournal(postgres_url)) as store, closing(PostgresSnapshots(postgres_url)) as snapshots:
        store.install()
        store.install()
        assert snapshots.rows(Key("a", "b")) == []
