"""Servers without ids in order, or with locks that each node has for itself, are refused by name."""

from __future__ import annotations

import pytest

from inorder.database.database import Dialect
from inorder.relay.stores.server import Facts, judge

DISTRIBUTED: list[tuple[Dialect, str, str]] = [
    ("mysql", "8.0.11-TiDB-v8.1.0", "TiDB"),
    ("mysql", "8.0.30-Vitess", "Vitess"),
    ("mysql", "5.7.25-OceanBase_CE-v4.3.2.1", "OceanBase"),
    ("postgres", "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu)", "CockroachDB"),
    ("postgres", "PostgreSQL 11.2-YB-2.21.0.0-b0 on x86_64-pc-linux-gnu", "YugabyteDB"),
    ("postgres", "PostgreSQL 8.0.2 on i686-pc-linux-gnu, Redshift 1.0.56754", "Amazon Redshift"),
]


@pytest.mark.parametrize(("dialect", "version", "name"), DISTRIBUTED)
def test_distributed_servers_are_always_refused(dialect: Dialect, version: str, name: str) -> None:
    found = judge(dialect, {"version": version})
    assert found is not None
    assert found.name == name
    assert found.is_refused(single_writer_node=True)


SEVERAL_PRIMARIES: list[tuple[Dialect, Facts, str]] = [
    ("mysql", {"version": "11.4.5-MariaDB", "wsrep_on": "ON", "auto_increment_increment": "3"}, "Galera Cluster"),
    (
        "mysql",
        {"version": "8.4.0", "group_replication_group_name": "a-b", "group_replication_single_primary_mode": "OFF"},
        "Group Replication in multi-primary mode",
    ),
    ("postgres", {"version": "PostgreSQL 16.3", "extension bdr": "5.5"}, "EDB Postgres Distributed (BDR)"),
]


@pytest.mark.parametrize(("dialect", "facts", "name"), SEVERAL_PRIMARIES)
def test_several_primaries_are_refused_unless_one_node_is_used(dialect: Dialect, facts: Facts, name: str) -> None:
    found = judge(dialect, facts)
    assert found is not None
    assert found.name == name
    assert found.is_refused(single_writer_node=False)
    assert not found.is_refused(single_writer_node=True)
    assert "single_writer_node" in found.hint


@pytest.mark.parametrize(
    ("dialect", "facts"),
    [
        ("mysql", {"version": "8.4.0", "auto_increment_increment": "2"}),
        ("postgres", {"version": "PostgreSQL 16.3", "extension citus": "12.1"}),
    ],
)
def test_what_may_be_in_order_is_warned_of(dialect: Dialect, facts: Facts) -> None:
    found = judge(dialect, facts)
    assert found is not None
    assert not found.is_refused(single_writer_node=False)


@pytest.mark.parametrize(
    ("dialect", "facts"),
    [
        ("mysql", {"version": "11.4.5-MariaDB-log", "wsrep_on": "OFF", "auto_increment_increment": "1"}),
        (
            "mysql",
            {"version": "8.4.0", "group_replication_group_name": "a", "group_replication_single_primary_mode": "ON"},
        ),
        ("postgres", {"version": "PostgreSQL 18.0 on x86_64-pc-linux-gnu, compiled by gcc"}),
        ("sqlite", {}),
    ],
)
def test_servers_with_one_primary_are_suited(dialect: Dialect, facts: Facts) -> None:
    assert judge(dialect, facts) is None
