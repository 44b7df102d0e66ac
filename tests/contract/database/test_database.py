"""Every database begins, commits, rolls back, binds and reconnects alike."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from inorder.database.database import Database, InstallingDatabase
from inorder.model.errors import ConfigurationError, RejectedError
from tests.contract.conftest import Databases

BINARY = {"postgres": "bytea", "mysql": "longblob", "sqlite": "blob"}
INSTANCES = 8


@pytest.fixture
def filled(database: Database) -> Database:
    """A database with a table that holds one row."""
    binary = BINARY[database.dialect]
    database.install([f"CREATE TABLE IF NOT EXISTS things (id integer PRIMARY KEY, name text, body {binary})"])
    with database.transaction() as transaction:
        transaction.execute("INSERT INTO things (id, name) VALUES (1, 'one')")
    return database


def names(database: Database) -> list[str]:
    with database.transaction() as transaction:
        return [row[0] for row in transaction.execute("SELECT name FROM things ORDER BY id").rows]


def test_leaving_the_block_commits(filled: Database, databases: Databases) -> None:
    assert names(databases()) == ["one"]


def test_a_single_statement_commits_by_itself(filled: Database, databases: Databases) -> None:
    assert filled.execute("UPDATE things SET name = %(name)s WHERE id = 1", {"name": "two"}).count == 1
    assert databases().execute("SELECT name FROM things").rows == [("two",)]


def test_a_single_statement_that_fails_leaves_nothing_open(filled: Database, databases: Databases) -> None:
    with pytest.raises(RejectedError):
        filled.execute("INSERT INTO things (id, name) VALUES (1, 'again')")
    assert databases().execute("UPDATE things SET name = 'two'").count == 1, "nothing is locked"


def test_an_exception_rolls_back_and_is_raised_as_it_is(filled: Database, databases: Databases) -> None:
    def work() -> None:
        with filled.transaction() as transaction:
            transaction.execute("UPDATE things SET name = 'two'")
            raise KeyError("a mistake of the caller")

    with pytest.raises(KeyError):
        work()
    assert names(databases()) == ["one"]
    assert names(filled) == ["one"]


def test_others_see_nothing_before_the_commit(filled: Database, databases: Databases) -> None:
    with filled.transaction() as transaction:
        transaction.execute("UPDATE things SET name = 'two'")
        if filled.dialect != "sqlite":  # where nobody may begin meanwhile
            assert names(databases()) == ["one"]
    assert names(databases()) == ["two"]


def test_values_are_bound_whatever_they_hold(filled: Database) -> None:
    values = {"name": "O'Neill; -- %s %(x)s :id 日本 🎈", "body": bytes(range(256)), "id": 2}
    with filled.transaction() as transaction:
        transaction.execute("INSERT INTO things VALUES (%(id)s, %(name)s, %(body)s)", values)
        found = transaction.execute("SELECT name, body, %(id)s FROM things WHERE id = %(id)s", values).rows
    assert [(name, bytes(body), id) for name, body, id in found] == [(values["name"], values["body"], 2)]


def test_a_percent_sign_of_its_own_is_doubled_in_every_dialect(filled: Database) -> None:
    with filled.transaction() as transaction:
        assert transaction.execute("SELECT 7 %% 4, id FROM things WHERE name LIKE 'o%%'").rows == [(3, 1)]


def test_ddl_may_hold_a_percent_sign(database: Database) -> None:
    database.install(["CREATE TABLE signs (id integer, sign varchar(10) DEFAULT '50%')"])
    with database.transaction() as transaction:
        transaction.execute("INSERT INTO signs (id) VALUES (1)")
        assert transaction.execute("SELECT sign FROM signs").rows == [("50%",)]


def test_an_update_counts_the_rows_it_found_even_where_it_changed_nothing(filled: Database) -> None:
    with filled.transaction() as transaction:
        assert transaction.execute("UPDATE things SET name = 'one' WHERE id = 1").count == 1
        assert transaction.execute("UPDATE things SET name = 'one' WHERE id = 2").count == 0
        assert transaction.execute("SELECT id FROM things").count == 1


def test_a_refused_row_is_rejected_and_the_transaction_undone(filled: Database) -> None:
    def work() -> None:
        with filled.transaction() as transaction:
            transaction.execute("INSERT INTO things (id, name) VALUES (2, 'two')")
            transaction.execute("INSERT INTO things (id, name) VALUES (1, 'again')")

    with pytest.raises(RejectedError) as refused:
        work()
    assert refused.value.__cause__ is not None
    assert names(filled) == ["one"]


def test_a_missing_table_is_for_people_to_make(database: Database) -> None:
    with pytest.raises(ConfigurationError, match="no_such") as refused, database.transaction() as transaction:
        transaction.execute("SELECT * FROM no_such")
    assert "inorder schema install" in refused.value.hint


def test_any_number_of_instances_may_install_at_once(databases: Databases) -> None:
    together = threading.Barrier(INSTANCES)

    def install(database: Database) -> None:
        together.wait()
        database.install(["CREATE TABLE IF NOT EXISTS one (id integer)", "CREATE TABLE IF NOT EXISTS two (id integer)"])

    with ThreadPoolExecutor(INSTANCES) as pool:
        list(pool.map(install, [databases() for _ in range(INSTANCES)]))


def test_an_install_that_fails_lets_the_next_one_in(database: Database, databases: Databases) -> None:
    with pytest.raises(ConfigurationError):
        database.install(["CREATE TABLE one (id no_such_type (", "CREATE TABLE two (id integer)"])
    databases().install(["CREATE TABLE one (id integer)"])
    database.install(["CREATE TABLE three (id integer)"])


def test_threads_that_share_a_database_take_turns(filled: Database) -> None:
    def count(_: int) -> None:
        with filled.transaction() as transaction:
            (id,) = transaction.execute("SELECT max(id) FROM things").rows[0]
            transaction.execute("INSERT INTO things (id, name) VALUES (%(id)s, 'next')", {"id": id + 1})

    with ThreadPoolExecutor(INSTANCES) as pool:
        list(pool.map(count, range(40)))
    assert len(names(filled)) == 41


def test_a_closed_database_opens_again(filled: Database) -> None:
    filled.close()
    filled.close()
    assert names(filled) == ["one"]


def test_a_store_works_on_tables_that_it_may_not_make(filled: Database) -> None:
    """What somebody else has made must do; `CREATE … IF NOT EXISTS` is refused to users without the right."""
    store = InstallingDatabase(filled, ["CREATE TABLE IF NOT EXISTS others (id integer", "CREATE TABEL things"])
    assert store.execute("SELECT name FROM things").rows == [("one",)]
    with pytest.raises(ConfigurationError):
        store.execute("SELECT name FROM nothing_of_that_name")


def test_a_store_runs_no_ddl_where_nothing_is_missing(filled: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Servers refuse `CREATE … IF NOT EXISTS` to users without the right, and DDL waits for locks that others hold."""
    store = InstallingDatabase(filled, ["CREATE TABLE IF NOT EXISTS things (this is refused"])
    with caplog.at_level("INFO", "inorder.stores"):
        assert store.execute("SELECT name FROM things").rows == [("one",)]
    assert "database.not_installed" not in caplog.messages
