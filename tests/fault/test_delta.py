"""A Delta table whose driver is killed again and again holds the same rows as a table of PostgreSQL."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import SparkSession

from inorder.embedded.stack import Program
from inorder.kafka.admin import ensure_topic
from inorder.pipeline.stores.delta_table import delta_rows
from tests.conftest import Eventually

PARTITIONS = 4
KEYS = 5_000
WAIT_SECONDS = 600.0
INORDER = (sys.executable, "-m", "inorder.cli")

_SETTINGS = """\
[kafka]
"bootstrap.servers" = "{bootstrap}"
[database]
url = "{url}"
[pipeline]
master = "local[2,4]"
create_tables = true
[pipeline.upsert]
topic = "{topic}"
table = "{table}"
nulls = "write"
{target}
"""


def messages(count: int) -> Iterator[tuple[int, bytes | None]]:
    """Partial updates, nulls and deletes of some thousand keys, and a little garbage."""
    chance = random.Random(7)
    for number in range(count):
        key = chance.randrange(KEYS)
        kind = chance.random()
        if kind < 0.05:
            yield key, None
        elif kind < 0.051:
            yield key, b"{"
        else:
            fields: dict[str, Any] = {"id": key}
            if kind < 0.7:
                fields["data"] = f"{number}"
            if kind > 0.4:
                fields["enabled"] = chance.choice([True, False, None])
            yield key, orjson.dumps(fields)


class DeltaService:
    """The job `upsert` as a command with one table, in processes of its own."""

    def __init__(self, folder: Path, name: str, **words: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.table = self.folder / "table"
        config = self.folder / "inorder.toml"
        target = "" if name == "in_sql" else f'target = "delta:{self.table}"'
        config.write_text(_SETTINGS.format(table=name, target=target, **words))
        self._command = [*INORDER, "pipeline", "run", "upsert", "--config", str(config)]
        self.program = Program("driver", self._command, self.folder)

    def commits(self) -> int:
        return len(list((self.table / "_delta_log").glob("*.json")))

    def files(self) -> int:
        """Files of rows, committed or not."""
        return len(list(self.table.glob("*.parquet")))

    def run_once(self) -> None:
        """To the end of the topic."""
        done = subprocess.run([*self._command, "--once"], cwd=self.folder, capture_output=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.fault
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("count", "kills"), [(50_000, 3), (1_000_000, 5)])
def test_a_driver_that_is_killed_leaves_the_rows_of_postgresql_and_so_does_a_replay_from_nothing(
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    direct: Connection[Any],
    unique: str,
    tmp_path: Path,
    eventually: Eventually,
    count: int,
    kills: int,
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, PARTITIONS)
    words = {"bootstrap": kafka_bootstrap, "url": postgres_url, "topic": unique}
    killed = DeltaService(tmp_path, "killed", **words)
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "enable.idempotence": True})
    sent = messages(count)

    def send(number: int) -> None:
        for _ in range(number):
            key, value = next(sent)
            while len(producer) > 50_000:
                producer.poll(0.1)
            producer.produce(unique, value, str(key), key % PARTITIONS)
        assert producer.flush(120) == 0

    # A kill follows a commit at once, before Spark and the database know of it; the next one a file without its commit.
    signals: list[Callable[[], int]] = [killed.commits, killed.files]
    share = count // (kills + 1)
    for number in range(kills):
        seen = signals[number % 2]
        before = seen()
        send(share)
        killed.program.start()
        # All that was sent is one batch, so one commit. The very first commit only creates the table.
        eventually(lambda seen=seen, before=before: seen() > max(before, 1), WAIT_SECONDS)  # type: ignore[misc]
        killed.program.kill()
    send(count - kills * share)
    killed.run_once()
    again, in_sql = DeltaService(tmp_path, "again", **words), DeltaService(tmp_path, "in_sql", **words)
    again.run_once()
    in_sql.run_once()

    expected = {row[0]: row[1:] for row in direct.execute("SELECT id, enabled, data FROM in_sql").fetchall()}
    assert len(expected) > KEYS // 2
    for service in (killed, again):
        found = delta_rows(spark, str(service.table)).select("id", "enabled", "data").collect()
        assert len(found) == len(expected)
        assert {row[0]: tuple(row)[1:] for row in found} == expected
