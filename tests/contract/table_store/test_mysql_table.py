"""What MySQL and MariaDB add: sessions that end, packets, collations, servers that are not strict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inorder.database.mysql import Connection, connect, mysql_errors
from inorder.embedded import MariaDB
from inorder.engines.slice_work import SliceOutcome
from inorder.model.errors import ConfigurationError, RejectedError, TransientError
from inorder.pipeline.slice import REFUSED, apply_slice
from inorder.pipeline.stores.mysql_table import MySQLTableStore
from inorder.pipeline.stores.ports import DeadLetter, FoldedRow, SliceCounters
from inorder.pipeline.stores.table import SqlTableStores
from tests.contract.table_store.places import MAPPING, Sql
from tests.fakes.table_store import message, slice_of

BATCH = slice_of((0, message(1, data="a")), (1, b"garbage"), (2, message(2, data="b")))
APPLIED = SliceOutcome("upsert", 0, next_offset=3, read=3, applied=2, rejected=1)


@pytest.fixture
def place(mariadb_url: str) -> Iterator[Sql]:
    with closing(Sql(mariadb_url)) as opened:
        yield opened


@pytest.fixture
def direct(mariadb_url: str) -> Iterator[Connection]:
    """A session of our own beside the store's."""
    with closing(connect(mariadb_url, "test", autocommit=True)) as connection:
        yield connection


def ask(direct: Connection, statement: str) -> list[tuple[Any, ...]]:
    with direct.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def end_sessions(direct: Connection) -> None:
    """Ends all sessions of this database but ours."""
    others = "db = DATABASE() AND id <> CONNECTION_ID()"
    for (session,) in ask(direct, f"SELECT id FROM information_schema.processlist WHERE {others}"):
        ask(direct, f"KILL {session}")


def test_a_session_that_ended_between_two_slices_is_opened_again_unseen(place: Sql, direct: Connection) -> None:
    store = place.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a"))))
    end_sessions(direct)
    assert apply_slice(store, MAPPING, slice_of((1, message(1, data="b")))).applied == 1


def test_a_session_that_ends_within_a_slice_leaves_nothing_and_the_retry_applies_once(
    place: Sql, direct: Connection
) -> None:
    store = place.open()
    with pytest.raises(TransientError), store.slice_transaction("upsert", 0) as transaction:  # noqa: PT012 the block is the transaction
        transaction.lock_pointer()
        transaction.upsert([FoldedRow(1, (None, "lost"), 0, 1)], 0)
        end_sessions(direct)
        transaction.move_pointer(1, SliceCounters())
    assert ask(direct, "SELECT COUNT(*) FROM messages") == [(0,)]
    assert apply_slice(store, MAPPING, BATCH) == APPLIED
    assert ask(direct, "SELECT records_applied, records_rejected FROM inorder_pointer") == [(2, 1)]


@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_commit_whose_answer_is_lost_is_settled_by_the_pointer(
    place: Sql, direct: Connection, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    store = place.open()
    commit = type(direct).commit
    lost = iter([True])

    def commit_and_lose_the_answer(connection: Connection) -> None:
        if next(lost, False):
            if takes_effect:
                commit(connection)
            end_sessions(direct)
        commit(connection)

    monkeypatch.setattr(type(direct), "commit", commit_and_lose_the_answer)
    assert apply_slice(store, MAPPING, BATCH) == APPLIED
    assert ask(direct, "SELECT records_applied, records_rejected FROM inorder_pointer") == [(2, 1)]


@pytest.fixture
def own_url(tmp_path: Path) -> Iterator[str]:
    """A server of the test's own, because settings of a whole server reach everybody."""
    with MariaDB(tmp_path) as server:
        yield server.create_database("shop")


def test_a_text_that_is_too_long_is_refused_though_the_server_would_cut_it(own_url: str) -> None:
    with closing(Sql(own_url)) as place, closing(connect(own_url, "test", autocommit=True)) as direct:
        store = place.open()
        ask(direct, "ALTER TABLE messages MODIFY data VARCHAR(3)")
        ask(direct, "SET GLOBAL sql_mode = ''")
        store.close()
        outcome = apply_slice(store, MAPPING, slice_of((0, message(1, data="abcd")), (1, message(2, data="abc"))))
        assert (outcome.applied, outcome.rejected) == (1, 1)
        assert [letter[:2] for letter in place.letters()] == [(0, REFUSED)]


def test_a_statement_that_no_packet_holds_is_refused_before_it_is_sent(place: Sql, direct: Connection) -> None:
    [(limit,)] = ask(direct, "SELECT @@max_allowed_packet")
    store = place.open()
    with store.slice_transaction("upsert", 0) as transaction:
        transaction.lock_pointer()
        with pytest.raises(RejectedError, match="max_allowed_packet"), transaction.savepoint():
            transaction.upsert([FoldedRow(1, (None, "x" * limit), 0, 1)], 0)
        transaction.bury([DeadLetter(0, REFUSED, "Too large.", b"1", b"x" * limit, None)])
        transaction.move_pointer(1, SliceCounters(rejected=1))
    assert [letter[:4] for letter in place.letters()] == [(0, REFUSED, b"1", None)]
    [(detail,)] = ask(direct, "SELECT detail FROM inorder_dead_letter")
    assert f"Its {limit} bytes are not stored" in detail


def test_a_key_that_compares_otherwise_than_byte_by_byte_is_refused(place: Sql, direct: Connection) -> None:
    named = replace(MAPPING, key="name", key_type="text", fields=(("data", "text"),))
    columns = "data TEXT, version_generation INT NOT NULL, version_offset BIGINT NOT NULL, updated_at DATETIME(6)"
    ask(direct, f"CREATE TABLE messages (name VARCHAR(100) PRIMARY KEY, {columns}) COLLATE utf8mb4_general_ci")
    with pytest.raises(ConfigurationError, match="'name' of table 'messages' is not unique"):
        place.open(named)


def test_a_value_that_differs_in_case_alone_is_written_whatever_the_collation(place: Sql, direct: Connection) -> None:
    store = place.open()
    ask(direct, "ALTER TABLE messages MODIFY data VARCHAR(20) COLLATE utf8mb4_general_ci")
    for offset, text in enumerate(["a", "A", "A "]):
        assert apply_slice(store, MAPPING, slice_of((offset, message(1, data=text)))).applied == 1
        assert place.rows() == {1: (None, text, offset)}


def test_a_factory_shows_no_password_and_is_equal_by_value() -> None:
    one, other = (SqlTableStores("mysql+pymysql://user:secret@host/db", MAPPING) for _ in range(2))
    assert "secret" not in repr(one)
    assert one == other
    assert hash(one) == hash(other)


def test_a_server_that_is_not_there_is_a_fault_of_the_environment() -> None:
    store = MySQLTableStore("mysql+pymysql://nobody@127.0.0.1:1/none", MAPPING)
    with pytest.raises(TransientError), mysql_errors():
        store.pointers("upsert")
