"""Published rows are kept for some days, replayed on request, and dropped by whole days."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import inorder
from inorder.kafka.readers import read_back
from inorder.model.message import Message
from inorder.outbox.stores.retention import prepare
from tests.conftest import Eventually
from tests.integration.relay.commands import Commands
from tests.integration.relay.conftest import Bench

DAYS: dict[str, Any] = {"leadership": "none", "retention_days": 2}


def kept(bench: Bench) -> list[tuple[str, str, str]]:
    """The partition, key and value of what is kept, oldest first."""
    with bench.connect() as connection:
        found = connection.execute(
            "SELECT CAST(CAST(tableoid AS regclass) AS text), convert_from(key, 'UTF8'), convert_from(value, 'UTF8')"
            " FROM outbox_published ORDER BY id"
        )
        return [(str(partition), str(key), str(value)) for partition, key, value in found]


def partitions(bench: Bench) -> set[str]:
    with bench.connect() as connection:
        found = connection.execute(
            "SELECT CAST(inhrelid AS regclass) FROM pg_inherits WHERE inhparent = to_regclass('outbox_published')"
        )
        return {str(name) for (name,) in found}


def partition(day: date) -> str:
    return f"outbox_published_{day:%Y%m%d}"


@pytest.fixture
def published(bench: Bench, unique: str, eventually: Eventually) -> str:
    """A topic on which three rows of key `k` and one of `other` arrived; they are kept."""
    bench.publish(
        Message(unique, key="k", value="1", headers=[("h", b"\xfe")]),
        Message(unique, key="other", value="x"),
        Message(unique, key="k", value="2"),
        Message(unique, key="k", value="3", timestamp=1_700_000_000_000),
    )
    with inorder.Relay(bench.settings(**DAYS)):
        eventually(lambda: bench.count() == 0)
    return unique


def test_published_rows_are_kept_in_the_partition_of_today(bench: Bench, published: str) -> None:
    today = {partition(datetime.now(UTC).date() - timedelta(days=days)) for days in (0, 1)}  # midnight may have passed
    found = kept(bench)
    assert [(key, value) for _, key, value in found] == [("k", "1"), ("other", "x"), ("k", "2"), ("k", "3")]
    assert {name for name, _, _ in found} <= today


@pytest.mark.full
def test_a_replay_is_published_in_order_behind_what_waits(
    bench: Bench, published: str, eventually: Eventually, tmp_path: Path
) -> None:
    bench.publish(Message(published, key="k", value="4"))
    commands = Commands(bench, tmp_path, **DAYS)
    assert json.loads(commands.run("outbox", "replay", "--key", "k", "--dry-run", "--json").stdout) == {
        "rows": 3,
        "dry_run": True,
    }
    assert bench.count() == 1, "nothing was done"
    ran = commands.run("outbox", "replay", "--key", "k", "--topic", published)
    assert (ran.returncode, ran.stderr) == (0, "3 rows wait to be published again.\n")
    with inorder.Relay(bench.settings(**DAYS)):
        eventually(lambda: bench.count() == 0)
    found = [record for record in read_back(bench.properties, published) if record.key == b"k"]
    assert [record.value for record in found] == [b"1", b"2", b"3", b"4", b"1", b"2", b"3"]
    assert found[4].headers == found[0].headers == (("h", b"\xfe"),)
    assert found[6].timestamp_ms == 1_700_000_000_000


@pytest.mark.full
def test_a_replay_names_what_it_wants_and_a_later_time_finds_nothing(
    bench: Bench, published: str, tmp_path: Path
) -> None:
    commands = Commands(bench, tmp_path, **DAYS)
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")
    earlier = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")
    assert commands.run("outbox", "replay").returncode == 2
    assert "0 rows" in commands.run("outbox", "replay", "--since", later).stderr
    assert "4 rows" in commands.run("outbox", "replay", "--since", earlier, "--dry-run").stderr
    assert "0 rows" in commands.run("outbox", "replay", "--topic", "another").stderr
    assert bench.count() == 0


def test_days_that_are_old_enough_are_dropped_whole(bench: Bench, eventually: Eventually) -> None:
    today = datetime.now(UTC).date()
    with bench.connect() as connection:
        for age in (9, 3, 1):
            prepare(connection, "outbox", today - timedelta(days=age))
    old = {partition(today - timedelta(days=age)) for age in (9, 8, 3)}
    assert old <= partitions(bench)
    with inorder.Relay(bench.settings(**DAYS)):
        eventually(lambda: not old & partitions(bench))
    assert {partition(today - timedelta(days=1)), partition(today)} <= partitions(bench)
