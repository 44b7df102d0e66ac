"""The lease row counts terms, and tells who holds it."""

from __future__ import annotations

from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.lease import PostgresLease, lease_of


def test_each_change_of_holder_is_a_new_term(postgres_url: str) -> None:
    first, second = (PostgresLease(postgres_url, name="group.0", owner=owner) for owner in ("first", "second"))
    first.acquire()
    first.acquire()
    assert first.term == 1
    first.release()
    second.acquire()
    assert second.term == 2
    second.release()


def test_the_holder_is_told_and_nobody_where_there_is_none(postgres_url: str) -> None:
    with connect(postgres_url, "test", autocommit=True) as connection:
        assert lease_of(connection, "group.0") == (None, 0)
        lease = PostgresLease(postgres_url, name="group.0", owner="first")
        lease.acquire()
        assert lease_of(connection, "group.0") == ("first", 1)
        lease.release()
        assert lease_of(connection, "group.0")[0] is None
