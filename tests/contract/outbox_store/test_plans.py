"""The relay's statements find their rows by the primary key, however full the table is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from inorder import sql
from inorder.outbox.layouts import install_statements
from inorder.stores.postgres.connect import connect

ROWS = 50_000
STATEMENTS = sql.load("inorder.stores.postgres", "outbox.sql")


@pytest.fixture
def full(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """An outbox with a backlog, as the planner sees it after a vacuum."""
    with connect(postgres_url, "test", autocommit=True) as connection:
        for statement in install_statements("native", "postgresql", "outbox"):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO outbox (topic, key, value)"
            " SELECT 't', 'k', repeat('x', 100)::bytea FROM generate_series(1, %s)",
            (ROWS,),
        )
        connection.execute("VACUUM ANALYZE outbox")
        yield connection


def plan(connection: psycopg.Connection[Any], name: str, parameters: dict[str, object]) -> str:
    statement = STATEMENTS.render(name, table='"outbox"')
    found = connection.execute(f"EXPLAIN {statement}", parameters)
    return "\n".join(row[0] for row in found)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("read", {"above": 0, "limit": 10_000}),
        ("read", {"above": ROWS - 10, "limit": 10_000}),
        ("read_with_probes", {"above": ROWS - 10, "limit": 10_000, "probes": list(range(1, 200))}),
        ("purge", {"ids": list(range(1, 5000))}),
    ],
)
def test_no_statement_of_the_relay_walks_the_table(
    full: psycopg.Connection[Any], name: str, parameters: dict[str, object]
) -> None:
    found = plan(full, name, parameters)
    assert "outbox_pkey" in found, found
    assert "Seq Scan on outbox" not in found, found
