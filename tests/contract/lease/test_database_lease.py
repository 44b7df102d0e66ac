"""The lease row counts terms, and names the holder."""

from __future__ import annotations

from inorder.database.database import Database
from inorder.relay.stores.sql_lease import SqlLease, lease_of
from tests.conftest import Eventually
from tests.contract.conftest import Databases


def test_each_change_of_holder_is_a_new_term(databases: Databases) -> None:
    first, second = (SqlLease(databases(), name="group.0", owner=owner, seconds=60) for owner in ("first", "second"))
    first.acquire()
    first.acquire()
    assert first.term == 1
    first.release()
    second.acquire()
    assert second.term == 2
    second.release()


def test_a_lease_that_ran_out_begins_a_new_term_for_another_holder_only(
    databases: Databases, eventually: Eventually
) -> None:
    first = SqlLease(databases(), name="group.0", owner="first", seconds=0.05)
    second = SqlLease(databases(), name="group.0", owner="second", seconds=60)
    first.acquire()
    eventually(lambda: lease_of(databases(), "group.0")[0] is None)
    assert (first.acquire(), first.term) == (True, 1), "no other had it meanwhile"
    assert eventually(second.acquire)
    assert (first.acquire(), first.term, second.term) == (False, 0, 2)


def test_the_holder_is_told_and_nobody_where_there_is_none(database: Database, databases: Databases) -> None:
    assert lease_of(database, "group.0") == (None, 0), "not even the table is there"
    lease = SqlLease(databases(), name="group.0", owner="first", seconds=60)
    lease.acquire()
    assert lease_of(database, "group.0") == ("first", 1)
    assert lease_of(database, "group.1") == (None, 0)
    lease.release()
    assert lease_of(database, "group.0") == (None, 1)


def test_a_lease_that_ran_out_has_no_holder(databases: Databases, eventually: Eventually) -> None:
    lease = SqlLease(databases(), name="group.0", owner="first", seconds=0.05)
    lease.acquire()
    assert eventually(lambda: lease_of(databases(), "group.0") == (None, 1))


def test_names_of_owners_compare_letter_by_letter(databases: Databases) -> None:
    assert SqlLease(databases(), name="group.0", owner="host", seconds=60).acquire()
    assert not SqlLease(databases(), name="group.0", owner="HOST", seconds=60).acquire()
    assert SqlLease(databases(), name="GROUP.0", owner="HOST", seconds=60).acquire()


def test_leases_may_share_one_database(database: Database) -> None:
    leases = [SqlLease(database, name=f"group.{shard}", owner="first", seconds=60) for shard in range(4)]
    assert all(lease.acquire() for lease in leases)
    leases[0].release()
    assert all(lease.acquire() for lease in leases)
