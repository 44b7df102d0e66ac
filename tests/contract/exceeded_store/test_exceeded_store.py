"""A row that used up its attempts is in the outbox or set aside, never in both and never in neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.ports.exceeded_store import ExceededStore, Exceeding
from inorder.ports.outbox_store import OutboxStore, Scan
from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.exceeded import Filter, PostgresExceededStore, act_on_exceeded, list_exceeded
from inorder.stores.postgres.outbox import PostgresOutboxStore
from inorder.testing.memory_exceeded import MemoryExceeded
from inorder.testing.memory_outbox import MemoryOutbox


@dataclass(frozen=True)
class Case:
    """One implementation with three rows of key a and one of key b in its outbox, ids 1 to 4."""

    outbox: OutboxStore
    exceeded: ExceededStore
    retry: Callable[[int], object]
    discard: Callable[[int], object]

    def values(self) -> list[bytes | None]:
        return [row.value for row in self.outbox.read(Scan(0), 10)]


@pytest.fixture(params=["memory", "postgres"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param == "memory":
        outbox = MemoryOutbox()
        for key, value in (b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"b", b"4"):
            outbox.insert("t", "t", key, value)
        outbox.end("t")
        memory = MemoryExceeded(outbox)
        yield Case(outbox, memory, memory.retry, memory.discard)
        return
    url = request.getfixturevalue("postgres_url")
    with connect(url, "test") as connection:
        for statement in install_statements("native", "postgresql", "outbox"):
            connection.execute(statement)
        messages = [
            Message("t", key=key, value=value) for key, value in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"))
        ]
        Outbox().publish_list(connection, messages)
    with (
        closing(PostgresOutboxStore(url, "outbox")) as store,
        closing(PostgresExceededStore(url, "outbox")) as exceeded,
    ):
        yield Case(
            store,
            exceeded,
            lambda id: act_on_exceeded(url, "outbox", Filter(id=id), "retry", "repaired"),
            lambda id: act_on_exceeded(url, "outbox", Filter(id=id), "discard", "of no use"),
        )


def exceeding(id: int, *, parks: bool = True) -> Exceeding:
    return Exceeding(id, 5, "RECORD-001", "too large", parks)


def test_an_exceeded_row_leaves_the_outbox_and_parks_its_key(case: Case) -> None:
    case.exceeded.exceed(exceeding(1))
    assert case.values() == [b"2", b"3", b"4"]
    assert case.exceeded.parked() == {("t", b"a"): (1,)}


def test_a_skipped_row_parks_nothing(case: Case) -> None:
    case.exceeded.exceed(exceeding(1, parks=False))
    assert case.exceeded.parked() == {}


def test_setting_a_row_aside_twice_changes_nothing(case: Case) -> None:
    case.exceeded.exceed(exceeding(1))
    case.exceeded.exceed(exceeding(1))
    case.exceeded.exceed(exceeding(99))
    assert case.exceeded.parked() == {("t", b"a"): (1,)}


def test_a_retried_row_is_back_in_its_old_place_and_its_key_free(case: Case) -> None:
    case.exceeded.exceed(exceeding(2))
    case.retry(2)
    assert case.values() == [b"1", b"2", b"3", b"4"]
    assert case.exceeded.parked() == {}


def test_a_discarded_row_is_gone_and_its_key_free(case: Case) -> None:
    case.exceeded.exceed(exceeding(2))
    case.discard(2)
    assert case.values() == [b"1", b"3", b"4"]
    assert case.exceeded.parked() == {}


def test_a_key_waits_for_each_of_its_exceeded_rows(case: Case) -> None:
    case.exceeded.exceed(exceeding(1))
    case.exceeded.exceed(exceeding(3))
    case.retry(1)
    assert case.exceeded.parked() == {("t", b"a"): (3,)}


@pytest.fixture
def url(postgres_url: str) -> str:
    with connect(postgres_url, "test") as connection:
        for statement in install_statements("native", "postgresql", "outbox"):
            connection.execute(statement)
        Outbox().publish(connection, Message("t", key="a", value=b"\xff", headers={"h": "x"}, partition=3, timestamp=7))
        Outbox().publish(connection, Message("u", key="b", value="2"))
    with closing(PostgresExceededStore(postgres_url, "outbox")) as exceeded:
        exceeded.exceed(exceeding(1))
        exceeded.exceed(exceeding(2, parks=False))
    return postgres_url


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (Filter(), [1, 2]),
        (Filter(id=2), [2]),
        (Filter(topic="t"), [1]),
        (Filter(key=b"b"), [2]),
        (Filter(code="RECORD-001"), [1, 2]),
        (Filter(topic="t", key=b"b"), []),
    ],
)
def test_people_find_what_they_look_for(url: str, wanted: Filter, ids: list[int]) -> None:
    assert [row.id for row in list_exceeded(url, "outbox", wanted)] == ids


def test_a_row_comes_back_exactly_as_it_was(url: str) -> None:
    act_on_exceeded(url, "outbox", Filter(id=1), "retry", "limit raised")
    with closing(PostgresOutboxStore(url, "outbox")) as store:
        (row,) = store.read(Scan(0), 10)
    assert row == (1, "t", b"a", b"\xff", (("h", b"x"),), 3, 7)


def test_what_was_done_is_noted_with_its_reason(url: str) -> None:
    act_on_exceeded(url, "outbox", Filter(topic="t"), "retry", "limit raised")
    act_on_exceeded(url, "outbox", Filter(topic="u"), "discard", "a test message")
    with connect(url, "test") as connection:
        found = connection.execute("SELECT id, action, reason FROM inorder_exceeded_action ORDER BY id").fetchall()
    assert found == [(1, "retry", "limit raised"), (2, "discard", "a test message")]
    assert list_exceeded(url, "outbox", Filter()) == []


def test_an_outbox_does_not_see_the_exceeded_rows_of_another(url: str) -> None:
    assert list_exceeded(url, "other_outbox", Filter()) == []
