"""The member table of a database holds who is there, and not for ever who was."""

from __future__ import annotations

from inorder.database.database import Database
from inorder.relay.leadership.share import MemberRank
from inorder.relay.stores.sql_lease import SqlMembership, members_of, membership_tables
from tests.contract.conftest import Databases


def names(database: Database) -> list[str]:
    with database.transaction() as transaction:
        return [name for (name,) in transaction.execute("SELECT instance FROM inorder_member ORDER BY 1").rows]


def test_who_has_been_gone_for_an_hour_is_removed_when_somebody_joins(databases: Databases) -> None:
    database = databases()
    for name, seconds in (("long gone", -3700.0), ("just gone", -10.0)):
        SqlMembership(databases(), group="g", instance=name, seconds=seconds).beat()
    SqlMembership(databases(), group="other", instance="stranger", seconds=-3700.0).beat()
    newcomer = SqlMembership(databases(), group="g", instance="newcomer")
    assert newcomer.beat() == MemberRank(1, 0)
    assert names(database) == ["just gone", "newcomer", "stranger"], "other groups look after themselves"


def test_the_members_are_those_that_are_alive(databases: Databases) -> None:
    database = databases()
    assert members_of(database, "g") == [], "not even the table is there"
    for group, name, seconds in (("g", "b", 60.0), ("g", "a", 60.0), ("g", "gone", -1.0), ("other", "c", 60.0)):
        SqlMembership(databases(), group=group, instance=name, seconds=seconds).beat()
    assert members_of(database, "g") == ["a", "b"]


def test_leaving_removes_the_row(databases: Databases) -> None:
    database = databases()
    member = SqlMembership(databases(), group="g", instance="a")
    member.beat()
    assert names(database) == ["a"]
    member.leave()
    assert names(database) == []


def test_the_table_may_be_installed_beforehand_and_again(databases: Databases) -> None:
    database = databases()
    for _ in range(2):
        database.install(membership_tables(database.dialect))
    assert SqlMembership(databases(), group="g", instance="a").beat() == MemberRank(1, 0)
