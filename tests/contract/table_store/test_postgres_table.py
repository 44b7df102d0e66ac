"""What PostgreSQL adds: sessions that die at every step, the user's own constraints, tables that exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from sqlalchemy.engine import make_url

from inorder.model.errors import (
    ConfigurationError,
    InorderError,
    RejectedError,
    TransientError,
    UnreachableError,
)
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import SliceOutcome, apply_slice
from inorder.ports.table_store import DeadLetter, FoldedRow, Pointer, SliceTransaction, Tally, Written
from inorder.stores.postgres.sqlstate import classified
from inorder.stores.postgres.table import PostgresTableStore, PostgresTableStores, install_statements
from inorder.testing.slices import message, slice_of

MAPPING = TableMapping("demo", "upsert", "messages")
VALUES = "enabled boolean, data text, updated_at timestamptz"
BATCH = slice_of((0, message(1, data="a")), (1, b"garbage"), (2, message(2, data="b")))


@pytest.fixture
def direct(postgres_url: str) -> Iterator[Connection[Any]]:
    """A session of our own beside the store's."""
    conninfo = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        yield connection


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresTableStore]:
    opened = PostgresTableStore(postgres_url, MAPPING)
    opened.install()
    yield opened
    opened.close()


def end_sessions(direct: Connection[Any]) -> None:
    """Ends the store's sessions as a fail-over would, and waits until they are gone."""
    direct.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE application_name = 'inorder pipeline' AND datname = current_database()"
    )


class EndedBefore:
    """A slice transaction whose session is ended just before one of its verbs."""

    def __init__(self, inner: SliceTransaction, verb: str, direct: Connection[Any]) -> None:
        self._inner = inner
        self._verb = verb
        self._direct = direct

    def _reached(self, verb: str) -> None:
        if verb == self._verb:
            end_sessions(self._direct)

    def lock_pointer(self) -> Pointer:
        self._reached("lock_pointer")
        return self._inner.lock_pointer()

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> Written:
        self._reached("upsert")
        return self._inner.upsert(rows, generation)

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        self._reached("bury")
        self._inner.bury(letters)

    def move_pointer(self, next_offset: int, tally: Tally) -> None:
        self._reached("move_pointer")
        self._inner.move_pointer(next_offset, tally)
        self._reached("commit")


class Mortal(PostgresTableStore):
    """A store whose first session is ended at a given verb."""

    def __init__(self, url: str, verb: str, direct: Connection[Any]) -> None:
        super().__init__(url, MAPPING)
        self._verb = verb
        self._direct = direct

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        with super().slice_transaction(topic, partition) as inner:
            verb, self._verb = self._verb, "never again"
            yield EndedBefore(inner, verb, self._direct)


@pytest.mark.parametrize("verb", ["lock_pointer", "upsert", "bury", "move_pointer"])
def test_a_session_ended_between_statements_leaves_nothing_and_the_retry_applies_once(
    verb: str, postgres_url: str, store: PostgresTableStore, direct: Connection[Any]
) -> None:
    store.close()
    mortal = Mortal(postgres_url, verb, direct)
    with pytest.raises(TransientError):
        apply_slice(mortal, MAPPING, BATCH)
    counts = "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM inorder_dead_letter)"
    assert direct.execute(counts).fetchone() == (0, 0)
    assert apply_slice(mortal, MAPPING, BATCH).applied == 2
    assert direct.execute(counts).fetchone() == (2, 1)
    mortal.close()


def test_a_session_ended_at_commit_is_settled_by_the_pointer(
    postgres_url: str, store: PostgresTableStore, direct: Connection[Any]
) -> None:
    mortal = Mortal(postgres_url, "commit", direct)
    outcome = apply_slice(mortal, MAPPING, BATCH)
    assert outcome == SliceOutcome("upsert", 0, next_offset=3, read=3, applied=2, rejected=1)
    assert direct.execute("SELECT records_applied, records_rejected FROM inorder_pointer").fetchone() == (
        2,
        1,
    )
    mortal.close()


def test_a_commit_that_took_effect_but_was_not_answered_is_not_applied_again(
    postgres_url: str, store: PostgresTableStore, direct: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Connection.commit
    lost = iter([True])

    def commit_and_lose_the_answer(connection: Connection[Any]) -> None:
        commit(connection)
        if next(lost, False):
            connection.close()
            raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(Connection, "commit", commit_and_lose_the_answer)
    outcome = apply_slice(store, MAPPING, BATCH)
    assert outcome == SliceOutcome("upsert", 0, next_offset=3, read=3, applied=2, rejected=1)
    assert direct.execute("SELECT records_applied, records_rejected FROM inorder_pointer").fetchone() == (
        2,
        1,
    )


def test_a_zombie_paused_in_its_transaction_loses_its_session_and_its_work(
    postgres_url: str, store: PostgresTableStore, direct: Connection[Any]
) -> None:
    zombie = PostgresTableStore(postgres_url, MAPPING)
    with pytest.raises(TransientError), zombie.slice_transaction("upsert", 0) as transaction:  # noqa: PT012 the block is the transaction
        pointer = transaction.lock_pointer()
        transaction.upsert([FoldedRow(1, (None, "zombie"), 0, 1)], pointer.generation)
        end_sessions(direct)
        assert apply_slice(store_after(store), MAPPING, BATCH).applied == 2
        transaction.move_pointer(1, Tally())
    zombie.close()
    assert direct.execute("SELECT data FROM messages WHERE id = 1").fetchone() == ("a",)


def store_after(store: PostgresTableStore) -> PostgresTableStore:
    """The store on a fresh session, as its old one was ended with the zombie's."""
    store.close()
    return store


def test_a_replay_touches_no_row_at_all(store: PostgresTableStore, direct: Connection[Any]) -> None:
    physical = "SELECT id, ctid::text, xmin::text, updated_at FROM messages ORDER BY id"
    apply_slice(store, MAPPING, BATCH)
    before = direct.execute(physical).fetchall()
    apply_slice(store, MAPPING, BATCH)
    direct.execute("DELETE FROM inorder_pointer")
    apply_slice(store, MAPPING, BATCH)
    apply_slice(store, MAPPING, slice_of((3, message(1, data="a"))))
    assert direct.execute(physical).fetchall() == before


def test_every_column_type_is_stored_as_it_came(postgres_url: str, direct: Connection[Any]) -> None:
    fields = (
        ("flag", "boolean"),
        ("small", "integer"),
        ("large", "bigint"),
        ("real", "double"),
        ("words", "text"),
    )
    mapping = TableMapping("types", "upsert", "things", key="name", key_type="text", fields=fields)
    store = PostgresTableStore(postgres_url, mapping)
    store.install()
    records = [
        b'{"name":"z","flag":false,"small":-2147483648,"large":9223372036854775807,"real":3,"words":"\\u00e4"}',
        b'{"name":"a","real":0.1}',
        b'{"name":"b","real":1.7976931348623157e308}',
    ]
    apply_slice(store, mapping, slice_of(*enumerate(records)))
    store.close()
    stored = direct.execute("SELECT name, flag, small, large, real, words FROM things ORDER BY version_offset")
    assert stored.fetchall() == [
        ("z", False, -2147483648, 9223372036854775807, 3.0, "ä"),
        ("a", None, None, None, 0.1, None),
        ("b", None, None, None, 1.7976931348623157e308, None),
    ]


def test_a_constraint_of_the_users_stops_the_slice_loudly_and_names_it(
    store: PostgresTableStore, direct: Connection[Any]
) -> None:
    direct.execute("ALTER TABLE messages ADD CONSTRAINT short CHECK (length(data) < 3)")
    with pytest.raises(RejectedError) as caught:
        apply_slice(store, MAPPING, slice_of((0, message(1, data="ok")), (7, message(2, data="long"))))
    assert "upsert[0] offsets 0 to 7" in caught.value.message
    assert "short" in caught.value.message
    assert direct.execute("SELECT count(*) FROM messages").fetchone() == (0,)
    assert store.pointers("upsert") == {}


def test_install_twice_and_a_table_with_more_columns_are_fine(
    store: PostgresTableStore, direct: Connection[Any]
) -> None:
    direct.execute("ALTER TABLE messages ADD COLUMN note text DEFAULT 'n'")
    store.install()
    apply_slice(store, MAPPING, BATCH)
    assert direct.execute("SELECT DISTINCT note FROM messages").fetchall() == [("n",)]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (
            "id bigint PRIMARY KEY, data text",
            "lacks: enabled, version_generation, version_offset, updated_at",
        ),
        (
            f"id bigint, {VALUES}, version_generation int NOT NULL, version_offset bigint NOT NULL",
            "'id' of table 'messages' is not unique",
        ),
        (
            f"id bigint PRIMARY KEY, {VALUES}, version_generation int, version_offset bigint",
            "allows nulls in: version_generation, version_offset",
        ),
    ],
)
def test_a_table_that_cannot_take_the_rows_is_refused_at_install(
    columns: str, named: str, postgres_url: str, direct: Connection[Any]
) -> None:
    direct.execute(f"CREATE TABLE messages ({columns})")
    store = PostgresTableStore(postgres_url, MAPPING)
    with pytest.raises(ConfigurationError, match=named):
        store.install()
    store.close()


def test_install_statements_can_be_printed_and_run_by_hand(direct: Connection[Any]) -> None:
    for statement in install_statements(TableMapping("demo", "upsert", "public.messages")):
        direct.execute(statement)
    assert direct.execute("SELECT to_regclass('public.messages')::text").fetchone() == ("messages",)


def test_a_missing_table_is_a_configuration_error_that_names_the_next_command(postgres_url: str) -> None:
    store = PostgresTableStore(postgres_url, MAPPING)
    with pytest.raises(ConfigurationError, match="inorder schema install"):
        store.pointers("upsert")
    store.close()


def test_a_server_that_is_not_there_is_unreachable(postgres_url: str) -> None:
    store = PostgresTableStore("postgresql+psycopg://nobody@127.0.0.1:1/none", MAPPING)
    with pytest.raises(UnreachableError):
        store.pointers("upsert")


def test_a_lock_that_is_held_too_long_is_transient(
    postgres_url: str, store: PostgresTableStore, direct: Connection[Any]
) -> None:
    apply_slice(store, MAPPING, BATCH)
    impatient = PostgresTableStore(postgres_url, MAPPING, lock_timeout_seconds=0.05)
    with direct.transaction():
        direct.execute("SELECT FROM inorder_pointer FOR UPDATE")
        with pytest.raises(TransientError, match="55P03"):
            apply_slice(impatient, MAPPING, BATCH)
    assert impatient.pointers("upsert") == {0: Pointer(3)}
    impatient.close()


@pytest.mark.parametrize(
    ("state", "family"),
    [
        ("08006", UnreachableError),
        ("57P01", UnreachableError),
        ("40P01", TransientError),
        ("53100", TransientError),
        ("55P03", TransientError),
        ("58030", TransientError),
        ("25006", TransientError),
        ("22001", RejectedError),
        ("23514", RejectedError),
        ("54000", RejectedError),
        ("42P01", ConfigurationError),
        ("28P01", ConfigurationError),
    ],
)
def test_errors_are_classified_by_sqlstate(state: str, family: type[InorderError]) -> None:
    assert type(classified(psycopg.errors.lookup(state)("boom"))) is family


def test_a_factory_shows_no_password_and_is_equal_by_value() -> None:
    one = PostgresTableStores("postgresql+psycopg://user:secret@host/db", MAPPING)
    assert "secret" not in repr(one)
    assert one == PostgresTableStores("postgresql+psycopg://user:secret@host/db", MAPPING)
    assert hash(one) == hash(PostgresTableStores("postgresql+psycopg://user:secret@host/db", MAPPING))
