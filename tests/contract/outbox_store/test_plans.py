"""The relay's statements find their rows by the index of the id, however full, dead or unknown the table is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from inorder.database.postgres import connect
from inorder.model.partitioning import Shard
from inorder.outbox.layouts import install_statements, layout
from inorder.relay.stores.postgres_outbox import render_statements

ROWS = 50_000
FILLS = {
    "native": "INSERT INTO outbox (topic, key, value) SELECT 't', number::text::bytea, repeat('x', 100)::bytea",
    "goharvest": (
        "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)"
        " SELECT now(), 't', number::text, repeat('x', 100), ARRAY[]::text[], ARRAY[]::text[]"
    ),
    "debezium": (
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)"
        " SELECT gen_random_uuid(), 't', number::text, 'X', '{}'"
    ),
    "trendyol": "INSERT INTO outbox (topic, key, value) SELECT 't', number::text, repeat('x', 100)",
}
INDEXES = {"native": "outbox_pkey", "goharvest": "outbox_pkey", "debezium": "outbox_seq_key", "trendyol": "outbox_pkey"}
SHARDS = [Shard(), Shard(1, 4)]

Connection = psycopg.Connection[Any]


def fill(connection: Connection, layout: str, rows: int) -> None:
    for statement in install_statements(layout, "postgresql", "outbox"):
        connection.execute(statement)
    connection.execute(f"{FILLS[layout]} FROM generate_series(1, {rows}) AS row (number)")


@contextmanager
def filled(url: str, layout: str) -> Iterator[Connection]:
    """An outbox with a backlog, as the planner sees it after a vacuum."""
    with connect(url, "test", autocommit=True) as connection:
        fill(connection, layout, ROWS)
        connection.execute("VACUUM ANALYZE outbox")
        yield connection


def plan(connection: Connection, name: str, layout_name: str, shard: Shard, parameters: dict[str, object]) -> str:
    """The plan of a statement on a connection like the store's."""
    statements = render_statements("outbox", layout(layout_name, "postgresql"), shard)
    connection.execute(statements["plan_by_index"])
    found = connection.execute(f"EXPLAIN {statements[name]}", parameters)
    return "\n".join(row[0] for row in found)


def assert_by_index(found: str, index: str) -> None:
    assert f"using {index} on outbox" in found, found
    assert "Seq Scan on outbox" not in found, found
    assert "Bitmap" not in found, found
    assert "Sort" not in found, found


SCANS: list[tuple[str, dict[str, object]]] = [
    ("read", {"above": 0, "limit": 10_000, "most": 6000}),
    ("read", {"above": ROWS - 10, "limit": 10_000, "most": 6000}),
    ("read_with_probes", {"above": ROWS - 10, "limit": 10_000, "most": 6000, "probes": list(range(1, 200))}),
    ("read_shard", {"above": 0, "limit": 10_000, "most": 6000, "probes": []}),
    ("read_shard", {"above": ROWS - 10, "limit": 10_000, "most": 6000, "probes": list(range(1, 200))}),
    ("walk_shard", {"above": 0, "limit": 10_000, "most": 6000, "others_to": 40_000}),
    ("walk_shard", {"above": ROWS // 2, "limit": 10_000, "most": 6000, "others_to": ROWS}),
    ("sizes", {"probes": list(range(1, 200))}),
    ("purge", {"ids": list(range(1, 5000)), "table": "outbox", "incarnation": None}),
]
MARKS: list[tuple[str, dict[str, object]]] = [
    ("mark", {"leader_id": uuid4(), "limit": 500, "above": 100, "most": 6000}),
    ("mark_again", {"leader_id": uuid4(), "ids": list(range(1, 500)), "most": 6000}),
]


@pytest.mark.parametrize("shard", SHARDS, ids=["whole", "shard"])
@pytest.mark.parametrize("layout_name", INDEXES)
def test_no_statement_of_the_relay_walks_or_sorts_the_table(postgres_url: str, layout_name: str, shard: Shard) -> None:
    with filled(postgres_url, layout_name) as connection:
        for name, parameters in SCANS + (MARKS if layout_name in ("native", "goharvest") else []):
            if name.endswith("_shard") == shard.is_whole and name.startswith(("read", "walk")):
                continue
            assert_by_index(plan(connection, name, layout_name, shard, parameters), INDEXES[layout_name])


@pytest.mark.parametrize("shard", SHARDS, ids=["whole", "shard"])
def test_a_claim_uses_the_index_while_an_old_snapshot_keeps_dead_rows(postgres_url: str, shard: Shard) -> None:
    """The planner's worst case: 200,000 rows came and most went since its last look, and none can be cleaned up."""
    scan = "read" if shard.is_whole else "walk_shard"
    with (
        connect(postgres_url, "test", autocommit=True) as connection,
        connect(postgres_url, "old snapshot") as old,
    ):
        fill(connection, "native", 0)
        connection.execute("ANALYZE outbox")
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM outbox")
        connection.execute(f"{FILLS['native']} FROM generate_series(1, 200000) AS row (number)")
        connection.execute("DELETE FROM outbox WHERE id < 150000")
        found = plan(
            connection, scan, "native", shard, {"above": 0, "limit": 10_000, "most": 6000, "others_to": 40_000}
        )
        assert_by_index(found, "outbox_pkey")
        assert_by_index(plan(connection, "mark", "native", shard, dict(MARKS[0][1])), "outbox_pkey")


def test_a_statement_that_is_prepared_for_any_value_keeps_to_the_index(postgres_url: str) -> None:
    """The driver prepares what runs often, and the server then plans without knowing the limit."""
    statements = render_statements("outbox", layout("native", "postgresql"), Shard(1, 4))
    with filled(postgres_url, "native") as connection:
        connection.execute(statements["plan_by_index"])
        assert connection.execute("SHOW plan_cache_mode").fetchone() == ("force_generic_plan",)
        for name, parameters in (SCANS[0], SCANS[5], MARKS[0]):
            numbered = statements[name]
            for place, parameter in enumerate(parameters, 1):
                numbered = numbered.replace(f"%({parameter})s", f"${place}")
            connection.execute(f"PREPARE {name} AS {numbered}")
            values = ", ".join(f"'{value}'" for value in parameters.values())
            found = connection.execute(f"EXPLAIN EXECUTE {name} ({values})")
            assert_by_index("\n".join(row[0] for row in found), "outbox_pkey")
