"""Through a pooler that lends sessions by transaction, everything works and nothing is left in a session of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from inorder.database.database import open_database
from inorder.database.postgres import connect
from inorder.journal.stores.postgres import PostgresJournal
from inorder.journal.stores.postgres_replica import PostgresReplica
from inorder.model.message import Message
from inorder.operate.doctor import examine_database
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.stores.table import SqlTableStores
from inorder.relay.stores.exceeded import ExceededFilter, SqlExceededStore
from inorder.relay.stores.ports import Scan
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore
from inorder.relay.stores.sql_lease import SqlLease
from inorder.settings import Settings
from tests.contract.exceeded_store.rows import exceeding
from tests.fakes.table_store import message, slice_of
from tests.transaction_pooler import TransactionPooler

SESSIONS = 3
_SETTINGS = ("enable_seqscan", "jit", "lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
_LEFT = f"""
SELECT pg_backend_pid(), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
       (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()),
       {", ".join(f"current_setting('{name}')" for name in _SETTINGS)}
"""
MORE_THAN_PREPARES = 12
"""psycopg prepares a statement that it has run five times."""


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[TransactionPooler]:
    with closing(TransactionPooler(postgres_url, SESSIONS)) as opened:
        yield opened


@pytest.fixture
def url(pooler: TransactionPooler, postgres_url: str) -> str:
    with connect(postgres_url, "test", autocommit=True) as direct:
        for statement in install_statements("native", "postgres", "outbox"):
            direct.execute(statement)
    return pooler.url


def left_behind(url: str) -> set[tuple[Any, ...]]:
    """What each session of the pooler has of its own."""
    found: dict[int, tuple[Any, ...]] = {}
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True, prepare_threshold=None) as client:
        while len(found) < SESSIONS:
            pid, *state = client.execute(_LEFT).fetchone() or (0,)
            found[pid] = tuple(state)
    return set(found.values())


def test_a_pooler_is_recognised_and_a_server_is_not_one(url: str, postgres_url: str) -> None:
    with connect(url, "test") as pooled, connect(postgres_url, "test") as direct:
        assert (pooled.is_pooled, direct.is_pooled) == (True, False)


@pytest.mark.full
def test_statements_are_not_prepared_for_a_session_that_another_client_has_next(url: str) -> None:
    with closing(open_database(url, "test")) as one, closing(open_database(url, "test")) as other:
        for number in range(MORE_THAN_PREPARES):
            for database in (one, other):
                assert database.execute("SELECT %(number)s::integer", {"number": number}).rows == [(number,)]
                with database.transaction() as transaction:
                    assert transaction.execute("SELECT %(number)s::bigint", {"number": number}).rows == [(number,)]


def test_a_relay_leaves_nothing_in_the_sessions(url: str, postgres_url: str, unique: str) -> None:
    before = left_behind(url)
    lease = SqlLease(open_database(url, "test"), name=unique, owner="me")
    exceeded = SqlExceededStore(open_database(url, "test"), "outbox")
    with closing(PostgresOutboxStore(url, "outbox")) as store, closing(exceeded):
        assert lease.acquire()
        for number in range(1, MORE_THAN_PREPARES):
            with connect(postgres_url, "test") as writer:
                Outbox().publish(writer, Message("t", key=1, value=b"a"))
            assert [row.id for row in store.read(Scan(0), 10).rows] == [number]
            assert store.holders() == frozenset()
            assert not store.begin_sleep(), "nobody could wake it"
            store.purge([number]) if number > 1 else exceeded.exceed(exceeding(number))
        assert len(exceeded.rows(ExceededFilter())) == 1
        lease.release()
    assert left_behind(url) == before


@pytest.mark.full
def test_a_pipeline_and_a_replicator_leave_nothing_in_the_sessions(url: str) -> None:
    before = left_behind(url)
    mapping = TableMapping("demo", "upsert", "messages")
    with closing(SqlTableStores(url, mapping)()) as store:
        store.install()
        for number in range(MORE_THAN_PREPARES):
            assert apply_slice(store, mapping, slice_of((number, message(1, data=str(number))))).applied == 1
    with closing(PostgresJournal(url)) as journal:
        journal.install()
        for _ in range(MORE_THAN_PREPARES):
            assert journal.offset("t", 0) is None
    with closing(PostgresReplica(url)) as replica:
        for _ in range(MORE_THAN_PREPARES):
            with replica.slice("t", 0) as written:
                assert written.lock_offset() is None
    assert left_behind(url) == before


def test_the_doctor_says_so_and_leaves_nothing_either(url: str) -> None:
    before = left_behind(url)
    found = {check.name: check for check in examine_database(Settings.load(database={"url": url}))}
    assert found["database notifications"].status == "warn"
    assert "pooler" in found["database notifications"].detail
    assert left_behind(url) == before
