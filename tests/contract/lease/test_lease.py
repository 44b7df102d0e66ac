"""A lease is held by one instance at a time, and comes free by release or by running out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.lease import PostgresLease, lease_of
from tests.conftest import Eventually

Open = Callable[..., PostgresLease]


@pytest.fixture
def open_lease(postgres_url: str) -> Iterator[Open]:
    opened: list[PostgresLease] = []

    def open_one(owner: str, seconds: float = 60.0) -> PostgresLease:
        opened.append(PostgresLease(postgres_url, name="group.0", owner=owner, seconds=seconds))
        return opened[-1]

    yield open_one
    for lease in opened:
        lease.release()


def test_only_one_instance_holds_a_lease(open_lease: Open) -> None:
    first, second = open_lease("first"), open_lease("second")
    assert first.acquire()
    assert not second.acquire()
    assert first.acquire(), "the holder extends it"


def test_a_released_lease_goes_to_whoever_asks_next_in_a_new_term(open_lease: Open) -> None:
    first, second = open_lease("first"), open_lease("second")
    first.acquire()
    assert first.term == 1
    first.release()
    assert second.acquire()
    assert second.term == 2


def test_a_lease_that_ran_out_can_be_won_and_is_lost_to_its_old_holder(
    open_lease: Open, eventually: Eventually
) -> None:
    first, second = open_lease("first", seconds=0.2), open_lease("second")
    first.acquire()
    assert eventually(second.acquire)
    assert not first.acquire()


def test_releasing_what_another_won_meanwhile_frees_nothing(open_lease: Open, eventually: Eventually) -> None:
    first, second, third = open_lease("first", seconds=0.2), open_lease("second"), open_lease("third")
    first.acquire()
    eventually(second.acquire)
    first.release()
    assert not third.acquire()


def test_leases_of_other_shards_are_apart(open_lease: Open, postgres_url: str) -> None:
    other = PostgresLease(postgres_url, name="group.1", owner="other")
    assert open_lease("first").acquire()
    assert other.acquire()
    other.release()


def test_the_holder_is_told_and_nobody_where_there_is_none(open_lease: Open, postgres_url: str) -> None:
    with connect(postgres_url, "test", autocommit=True) as connection:
        assert lease_of(connection, "group.0") == (None, 0)
        lease = open_lease("first")
        lease.acquire()
        assert lease_of(connection, "group.0") == ("first", 1)
        lease.release()
        assert lease_of(connection, "group.0")[0] is None
