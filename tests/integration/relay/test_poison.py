"""Rows that would end a careless relay, written beside the publisher: each is set aside, and all others arrive."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

import inorder
from inorder.database.database import Database, open_database
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.outbox.layouts import install_statements
from tests.conftest import Eventually
from tests.operating import exceeded_rows
from tests.selection import few

NESTED = '{"a": ' + "[" * 1000 + "]" * 1000 + "}"


def poisons(name: str, layout: str, topic: str) -> list[dict[str, Any]]:
    """Rows as their columns, each of a key of its own."""
    found: list[dict[str, Any]]
    if layout == "trendyol":
        found = [{"topic": "t" * 513}, {"topic": topic, "header": NESTED}]
    else:
        found = [
            {"topic": "t" * 200 + " " * 49},
            {"topic": topic, "headers": NESTED},
            {"topic": topic, "partition": -5},
            {"topic": topic, "partition": 999},
            {"topic": topic, "timestamp": -1},
            {"topic": topic, "timestamp": 2**62},
        ]
    if name != "postgres":  # where a text cannot hold it
        found.append({"topic": f"{topic}\0"})
    return [{"key": f"poison {number}", "value": "x", **columns} for number, columns in enumerate(found)]


def insert(database: Database, table: str, row: dict[str, Any]) -> None:
    quote = "`" if database.dialect == "mysql" else '"'
    names = ", ".join(f"{quote}{name}{quote}" for name in row)
    values = ", ".join(f"%({name})s" for name in row)
    with database.transaction() as transaction:
        transaction.execute(f"INSERT INTO {table} ({names}) VALUES ({values})", row)


def good(settings: inorder.Settings, topic: str) -> list[bytes | None]:
    return [each.value for each in read_back(settings.kafka.properties, topic) if each.key == b"good"]


CASES = [f"{database} {layout}" for database in ("postgres", "mariadb") for layout in ("native", "trendyol")]


@pytest.mark.full
@pytest.mark.parametrize("case", few(CASES, "postgres trendyol", "mariadb native"))
@pytest.mark.parametrize("delivery", few(["exactly-once", "at-least-once"], "exactly-once"))
def test_poison_rows_are_set_aside_and_all_others_arrive(
    request: pytest.FixtureRequest,
    kafka_bootstrap: str,
    unique: str,
    eventually: Eventually,
    case: str,
    delivery: str,
) -> None:
    name, layout = case.split()
    url = request.getfixturevalue(f"{name}_url")
    table = "outbox" if layout == "native" else "outbox_events"
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 2)
    with closing(open_database(url, "test")) as database:
        database.install(install_statements(layout, database.dialect, table))
        bad = poisons(name, layout, unique)
        for number, row in enumerate(bad):
            insert(database, table, {"topic": unique, "key": "good", "value": str(number)})
            insert(database, table, row if layout == "trendyol" else row | {"key": row["key"].encode()})
            insert(database, table, {"topic": unique, "key": f"poison {number}", "value": "behind"})
    relay = {"group": unique, "leadership": "none", "layout": layout, "table": table, "max_attempts": 2}
    settings = inorder.Settings.load(
        kafka={"bootstrap.servers": kafka_bootstrap}, database={"url": url}, relay={**relay, "delivery": delivery}
    )
    with inorder.Relay(settings):
        eventually(lambda: len(exceeded_rows(settings)) == len(bad))
        eventually(lambda: len(good(settings, unique)) >= len(bad))
    assert good(settings, unique) == [b"%d" % number for number in range(len(bad))]
    assert all(each.parks and each.reason for each in exceeded_rows(settings))
