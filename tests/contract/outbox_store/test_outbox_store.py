"""Every outbox store shows committed rows only, in id order, and names whoever may hold ids not visible yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from inorder.model.errors import UnreachableError
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.ports.outbox_store import OutboxStore, Scan
from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.outbox import PostgresOutboxStore
from inorder.testing.memory_outbox import MemoryOutbox
from tests.conftest import Eventually


@dataclass(frozen=True)
class Case:
    """One implementation, and a way to write beside it: insert in a named transaction, then end it."""

    store: OutboxStore
    insert: Callable[[str, str], None]
    end: Callable[[str, bool], None]

    def write(self, *values: str) -> None:
        for value in values:
            self.insert("writer", value)
        self.end("writer", True)

    def values(self, scan: Scan, limit: int = 100) -> list[str]:
        return [(row.value or b"").decode() for row in self.store.read(scan, limit)]

    def ids(self) -> list[int]:
        return [row.id for row in self.store.read(Scan(0), 100)]


@pytest.fixture(params=["memory", "postgres"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param == "memory":
        memory = MemoryOutbox()
        yield Case(
            memory,
            lambda name, value: void(memory.insert(name, "t", b"k", value.encode())),
            lambda name, commit: memory.end(name, commit=commit),
        )
        return
    with ExitStack() as stack:
        yield postgres_case(request.getfixturevalue("postgres_url"), stack)


def void(_: object) -> None:
    """For callables whose result nobody wants."""


def postgres_case(url: str, stack: ExitStack) -> Case:
    with connect(url, "test") as connection:
        for statement in install_statements("native", "postgresql", "outbox"):
            connection.execute(statement)
    open_connections: dict[str, psycopg.Connection[Any]] = {}

    def insert(name: str, value: str) -> None:
        if name not in open_connections:
            open_connections[name] = stack.enter_context(connect(url, name))
        Outbox().publish(open_connections[name], Message("t", key="k", value=value))

    def end(name: str, commit: bool) -> None:
        connection = open_connections[name]
        connection.commit() if commit else connection.rollback()

    store = PostgresOutboxStore(url, "outbox")
    stack.callback(store.close)
    return Case(store, insert, end)


def test_rows_come_in_id_order_and_no_more_than_asked_for(case: Case) -> None:
    case.write("a", "b", "c", "d")
    assert case.values(Scan(0), limit=3) == ["a", "b", "c"]


def test_rows_of_an_open_or_rolled_back_transaction_are_not_seen(case: Case) -> None:
    case.insert("open", "hidden")
    case.insert("undone", "gone")
    case.end("undone", False)
    case.write("seen")
    assert case.values(Scan(0)) == ["seen"]


def test_missing_ids_and_what_is_above_the_last_come_in_one_look(case: Case) -> None:
    case.insert("late", "first id")
    case.write("a", "b")
    last = case.ids()[-1]
    case.end("late", True)
    case.write("c")
    missing = tuple(range(1, last))
    assert case.values(Scan(above=last, probes=missing))[0] == "first id"
    assert case.values(Scan(above=last, probes=missing))[-1] == "c"
    assert case.values(Scan(above=last)) == ["c"]


def test_whoever_may_hold_an_id_is_named_until_it_ends(case: Case) -> None:
    assert case.store.holders() == frozenset()
    case.insert("one", "x")
    one = case.store.holders()
    case.insert("two", "y")
    both = case.store.holders()
    assert one is not None
    assert both is not None
    assert len(one) == 1
    assert one < both
    case.end("one", True)
    assert case.store.holders() == both - one
    case.end("two", False)
    assert case.store.holders() == frozenset()


def test_purging_counts_what_was_there_and_forgives_what_was_not(case: Case) -> None:
    case.write("a", "b", "c")
    first, second, _ = case.ids()
    assert case.store.purge([first, second]) == 2
    assert case.store.purge([first, second, 10_000]) == 0
    assert case.store.purge([]) == 0
    assert case.values(Scan(0)) == ["c"]


@pytest.fixture
def on_postgres(postgres_url: str) -> Iterator[Case]:
    with ExitStack() as stack:
        yield postgres_case(postgres_url, stack)


def test_a_publisher_wakes_a_sleeping_relay(on_postgres: Case) -> None:
    assert on_postgres.store.begin_sleep()
    on_postgres.write("x")
    on_postgres.store.wait(60)  # returns at once, or the test runs into its own time limit
    on_postgres.store.end_sleep()
    assert on_postgres.values(Scan(0)) == ["x"]


def test_a_relay_cannot_fall_asleep_while_a_publisher_that_did_not_notify_is_about_to_commit(on_postgres: Case) -> None:
    on_postgres.insert("awake", "x")
    assert not on_postgres.store.begin_sleep()
    on_postgres.end("awake", True)
    assert on_postgres.store.begin_sleep()
    on_postgres.store.end_sleep()


def test_a_lost_connection_is_opened_again(on_postgres: Case, postgres_url: str, eventually: Eventually) -> None:
    on_postgres.write("a")
    assert on_postgres.values(Scan(0)) == ["a"]
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'inorder relay%'"
    with connect(postgres_url, "test", autocommit=True) as connection:
        connection.execute(kill)

    def answers() -> bool:
        try:
            return on_postgres.values(Scan(0)) == ["a"]
        except UnreachableError:
            return False

    assert eventually(answers)
    assert on_postgres.store.purge(on_postgres.ids()) == 1
