"""What PostgreSQL adds: sessions that die at every step, the user's own constraints, tables that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from sqlalchemy.engine import make_url

from inorder.database.postgres import classify
from inorder.engines.slice_work import Pointer, SliceOutcome
from inorder.model.errors import (
    ConfigurationError,
    InorderError,
    LockConflictError,
    MassRefusalError,
    ReadOnlyServerError,
    RejectedError,
    TransientError,
    UnreachableError,
)
from inorder.pipeline.brake import Brake
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import REFUSED, apply_slice
from inorder.pipeline.stores.ports import DeadLetter, FoldedRow, RowKey, SliceCounters, SliceTransaction, WriteCounts
from inorder.pipeline.stores.postgres_table import PostgresTableStore
from inorder.pipeline.stores.table import SqlTableStores, table_sql
from tests.conftest import Eventually
from tests.fakes.table_store import message, slice_of

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

    def savepoint(self) -> AbstractContextManager[None]:
        self._reached("savepoint")
        return self._inner.savepoint()

    def partitions(self) -> int:
        return self._inner.partitions()

    def note_unknown(self, fields: Mapping[str, int]) -> None:
        self._inner.note_unknown(fields)

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        self._reached("upsert")
        return self._inner.upsert(rows, generation)

    def upsert_each(self, rows: Sequence[FoldedRow], generation: int) -> Sequence[WriteCounts | RejectedError] | None:
        self._reached("upsert_each")
        return self._inner.upsert_each(rows, generation)

    def version(self, key: RowKey) -> tuple[int, int] | None:
        return self._inner.version(key)

    def settle(self, offset: int, action: str, reason: str) -> bool:
        return self._inner.settle(offset, action, reason)

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        self._reached("bury")
        self._inner.bury(letters)

    def move_pointer(self, next_offset: int, counters: SliceCounters, leader_epoch: int | None = None) -> None:
        self._reached("move_pointer")
        self._inner.move_pointer(next_offset, counters, leader_epoch)
        self._reached("commit")


class Mortal(PostgresTableStore):
    """A store one of whose transactions, the first or a later one, loses its session at a given verb."""

    def __init__(self, url: str, verb: str, direct: Connection[Any], lives: int = 0) -> None:
        super().__init__(url, MAPPING)
        self._verb = verb
        self._direct = direct
        self._lives = lives

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        with super().slice_transaction(topic, partition) as inner:
            verb = self._verb if self._lives == 0 else "not yet"
            self._lives -= 1
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
        transaction.move_pointer(1, SliceCounters())
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


def test_a_constraint_that_is_checked_at_the_commit_is_found_as_well(
    store: PostgresTableStore, direct: Connection[Any]
) -> None:
    direct.execute("CREATE TABLE owner (name text PRIMARY KEY)")
    direct.execute("INSERT INTO owner VALUES ('anna')")
    direct.execute("ALTER TABLE messages ADD FOREIGN KEY (data) REFERENCES owner DEFERRABLE INITIALLY DEFERRED")
    batch = slice_of((0, message(1, data="anna")), (1, message(2, data="nobody")), (2, message(3, enabled=True)))
    outcome = apply_slice(store, MAPPING, batch)
    assert (outcome.applied, outcome.rejected) == (2, 1)
    assert direct.execute("SELECT id FROM messages ORDER BY id").fetchall() == [(1,), (3,)]
    letter = direct.execute('SELECT "offset", code, detail FROM inorder_dead_letter').fetchone()
    assert letter is not None
    assert letter[:2] == (1, REFUSED)
    assert "foreign key" in letter[2]


def run_at_commit(direct: Connection[Any], body: str) -> None:
    """Gives the table a trigger that runs when a transaction commits."""
    direct.execute(f"CREATE OR REPLACE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} END$$")
    direct.execute(
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON messages DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION late()"
    )


def test_a_trigger_that_refuses_a_record_at_the_commit_costs_that_record_alone(
    store: PostgresTableStore, direct: Connection[Any]
) -> None:
    run_at_commit(direct, "IF NEW.data = 'bad' THEN RAISE EXCEPTION 'no'; END IF; RETURN NULL;")
    records = [(key, message(key, data="bad" if key in (7, 90) else "ok")) for key in range(200)]
    outcome = apply_slice(store, MAPPING, slice_of(*records), 0, Brake(0.5))
    assert (outcome.applied, outcome.rejected, outcome.next_offset) == (198, 2, 200)
    assert direct.execute('SELECT "offset", code FROM inorder_dead_letter ORDER BY 1').fetchall() == [
        (7, REFUSED),
        (90, REFUSED),
    ]


@pytest.mark.parametrize("fault", ["RAISE EXCEPTION 'no';", "PERFORM 1 FROM gone; RETURN NULL;"])
def test_a_trigger_that_fails_for_all_records_at_the_commit_makes_the_partition_wait(
    fault: str, store: PostgresTableStore, direct: Connection[Any]
) -> None:
    brake, batch = Brake(0.5), slice_of(*((key, message(key, data="ok")) for key in range(20)))
    run_at_commit(direct, fault)
    for _ in range(2):
        with pytest.raises(MassRefusalError, match="waits at offset 0") as found:
            apply_slice(store, MAPPING, batch, 0, brake)
        assert found.value.is_certain
    assert direct.execute("SELECT count(*) FROM inorder_dead_letter").fetchone() == (0,)
    direct.execute("DROP TRIGGER late ON messages")
    assert apply_slice(store, MAPPING, batch, 0, brake).applied == 20


@pytest.mark.parametrize("verb", ["savepoint", "upsert_each", "bury", "move_pointer", "commit"])
def test_a_session_ended_while_records_are_isolated_buries_nothing_that_is_not_refused(
    verb: str, postgres_url: str, store: PostgresTableStore, direct: Connection[Any]
) -> None:
    direct.execute("ALTER TABLE messages ADD CONSTRAINT short CHECK (length(data) < 3)")
    store.close()
    mortal = Mortal(postgres_url, verb, direct, lives=1)
    batch = slice_of((0, message(1, data="ok")), (1, message(2, data="long")), (2, message(3, data="ok")))
    for _ in range(2):
        try:
            outcome = apply_slice(mortal, MAPPING, batch)
            break
        except TransientError:
            assert direct.execute("SELECT count(*) FROM inorder_dead_letter").fetchone() == (0,)
    assert (outcome.applied, outcome.rejected) == (2, 1)
    assert direct.execute('SELECT "offset", code FROM inorder_dead_letter').fetchall() == [(1, REFUSED)]
    mortal.close()


def test_what_a_trigger_did_for_a_row_that_it_kept_out_is_undone(
    store: PostgresTableStore, direct: Connection[Any]
) -> None:
    body = "BEGIN IF NEW.data = 'x' THEN INSERT INTO traces VALUES (NEW.id); RETURN NULL; END IF; RETURN NEW; END"
    direct.execute("CREATE TABLE traces (id bigint)")
    direct.execute(f"CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
    direct.execute("CREATE TRIGGER keeps BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION keeps()")
    batch = slice_of(*((key, message(key, data="x" if key == 7 else "ok")) for key in range(20)))
    outcome = apply_slice(store, MAPPING, batch)
    assert (outcome.applied, outcome.rejected) == (19, 1)
    assert direct.execute("SELECT count(*) FROM traces").fetchone() == (0,)


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
    for statement in table_sql("postgres", TableMapping("demo", "upsert", "public.messages")).install():
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


def test_a_deadlock_costs_the_slice_another_attempt_and_no_error(
    postgres_url: str, store: PostgresTableStore, direct: Connection[Any], eventually: Eventually
) -> None:
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a")), (1, message(2, data="a"))))
    # The other session must not be the one that detects the deadlock and is rolled back.
    direct.execute("SET deadlock_timeout = '10min'")
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'inorder pipeline'"
    with ThreadPoolExecutor(1) as pool:
        with direct.transaction():
            direct.execute("UPDATE messages SET data = 'theirs' WHERE id = 2")
            batch = slice_of((2, message(1, data="b")), (3, message(2, data="b")))
            applied = pool.submit(apply_slice, store, MAPPING, batch)
            with psycopg.connect(direct.info.dsn, password=direct.info.password, autocommit=True) as watcher:
                eventually(lambda: bool(watcher.execute(waiting).fetchall()), 30)
            direct.execute("UPDATE messages SET data = 'theirs' WHERE id = 1")
        assert applied.result(60).applied == 2
    assert direct.execute("SELECT DISTINCT data FROM messages").fetchall() == [("b",)]


@pytest.mark.parametrize(
    ("state", "family"),
    [
        ("08006", UnreachableError),
        ("57P01", UnreachableError),
        ("40P01", LockConflictError),
        ("53100", TransientError),
        ("55P03", LockConflictError),
        ("58030", TransientError),
        ("25006", ReadOnlyServerError),
        ("22001", RejectedError),
        ("23514", RejectedError),
        ("54000", RejectedError),
        ("42P01", ConfigurationError),
        ("28P01", ConfigurationError),
    ],
)
def test_errors_are_classified_by_sqlstate(state: str, family: type[InorderError]) -> None:
    assert type(classify(psycopg.errors.lookup(state)("boom"))) is family


def test_a_factory_shows_no_password_and_is_equal_by_value() -> None:
    one = SqlTableStores("postgresql+psycopg://user:secret@host/db", MAPPING)
    assert "secret" not in repr(one)
    assert one == SqlTableStores("postgresql+psycopg://user:secret@host/db", MAPPING)
    assert hash(one) == hash(SqlTableStores("postgresql+psycopg://user:secret@host/db", MAPPING))
