"""The peer Debezium JDBC sink: its upsert mode, in one Kafka Connect worker.

Set as we found it best: for backlogs with two tasks, large batches, its reduction buffer and multi-row inserts; for
live messages as it comes, which is quicker there. Its messages carry their schema and are always whole: a partial
message has another schema, which would make it flush its batch.
"""

from __future__ import annotations

import time
import tomllib
from importlib.resources import files

from inorder.bench.figures import DrainRate
from inorder.bench.load import Load
from inorder.bench.options import DRAIN_CAP_SECONDS, START_CAP_SECONDS, PipelineOptions
from inorder.bench.peers.debezium import connect_worker
from inorder.bench.pipeline import INSTALL, Checks, backlog_task, fill, half_of, live_latency, stored_rows, warm_drain
from inorder.bench.place import LIVE_TOPIC, PARTITIONS, BenchPlace
from inorder.bench.report import Side, check_table
from inorder.bench.watching import watch
from inorder.database.sql import quoted
from inorder.embedded.jars import JarSet, fetch_set
from inorder.embedded.stack import Program

NAME = "debezium-jdbc"
TABLE = "bench_debezium_jdbc"
TOPIC = "bench-debezium-jdbc"
ENDS_FIRST = 2_000_000_000
"""Rows from here up say that a partition has been read to the end of a backlog."""
TUNED = {
    "tasks.max": "2",
    "batch.size": "5000",
    "use.reduction.buffer": "true",
    "consumer.override.max.poll.records": "5000",
    "consumer.override.fetch.min.bytes": "1",
    "consumer.override.max.partition.fetch.bytes": "8388608",
}
_REWRITES = "?reWriteBatchedInserts=true"


def measure(place: BenchPlace, options: PipelineOptions, load: Load, checks: Checks) -> Side:
    """Cold and warm by a tuned worker, live by one as it comes."""
    whole = Load(load.rows, load.keys)
    place.watching.execute(INSTALL.format(table=quoted(TABLE)))
    place.topic(TOPIC)
    with_ends = {"has_schema": True, "ends": _ends(0)}
    fill(place, TOPIC, whole, 0, whole.rows // 2, **with_ends)
    with place.running(sink_worker(place, TOPIC, tuned=True)) as worker:
        cold = _cold(place, worker, whole, checks)
        warm = _warm(place, worker, whole, checks)
    topic = place.topic(f"{LIVE_TOPIC}-{NAME}")
    fill(place, topic, Load(1, 1), 0, 1, has_schema=True, ends=_ends(2))
    with place.running(sink_worker(place, topic, tuned=False)) as worker:
        watch(lambda: _seen_ends(place, 2), lambda found: found >= PARTITIONS, worker.check, START_CAP_SECONDS)
        latency, checks["peer_live"] = live_latency(place, options, topic, TABLE, has_schema=True)
    return Side(cold, latency, {"warm": warm.as_dict()})


def _cold(place: BenchPlace, worker: Program, whole: Load, checks: Checks) -> DrainRate:
    place.say(f"Catching up with {NAME} …")
    started, rows = time.monotonic(), whole.rows // 2
    first = watch(lambda: _rows(place), lambda found: found > 0, worker.check, START_CAP_SECONDS)[-1].at
    last = watch(lambda: _seen_ends(place, 0), lambda found: found >= PARTITIONS, worker.check, DRAIN_CAP_SECONDS)[
        -1
    ].at
    checks["peer"] = check_table(half_of(whole), stored_rows(place, TABLE), rows)
    return DrainRate(rows / (last - first) if last > first else None, last - first, first - started)


def _warm(place: BenchPlace, worker: Program, whole: Load, checks: Checks) -> DrainRate:
    rows = whole.rows // 2
    task = backlog_task(place, TOPIC, whole, rows, rows, has_schema=True, at_once=True, ends=_ends(1))
    drain = warm_drain(place, task, rows, lambda: _seen_ends(place, 1), PARTITIONS, worker.check)
    checks["peer_warm"] = check_table(whole, stored_rows(place, TABLE), whole.rows)
    return drain


def sink_worker(place: BenchPlace, topic: str, *, tuned: bool) -> Program:
    """A worker of the sink on one topic; not started yet."""
    host, port = place.database_address
    text = "org.apache.kafka.connect.json.JsonConverter"
    connector = {
        "name": "sink",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": topic,
        "connection.url": f"jdbc:postgresql://{host}:{port}/postgres{_REWRITES if tuned else ''}",
        "connection.username": "postgres",
        "connection.password": place.database_password,
        "insert.mode": "upsert",
        "primary.key.mode": "record_value",
        "primary.key.fields": "id",
        "schema.evolution": "none",
        "collection.name.format": TABLE,
        "delete.enabled": "false",
        "value.converter": text,
        "value.converter.schemas.enable": "true",
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.isolation.level": "read_committed",
        "consumer.override.group.id": topic,
    }
    return connect_worker(place, NAME, fetch_set(jars()), connector | (TUNED if tuned else {}))


def _ends(backlog: int) -> list[int]:
    return [ENDS_FIRST + PARTITIONS * backlog + partition for partition in range(PARTITIONS)]


def _seen_ends(place: BenchPlace, backlog: int) -> int:
    statement = f"SELECT count(*) FROM {quoted(TABLE)} WHERE id = ANY(%s)"  # noqa: S608 - quoted
    row = place.watching.execute(statement, (_ends(backlog),)).fetchone()
    return int(row[0]) if row else 0


def _rows(place: BenchPlace) -> int:
    return 0 if place.is_empty(TABLE) else 1


def jars() -> JarSet:
    """What it consists of."""
    entries = tomllib.loads(files("inorder.bench.peers").joinpath("jars.toml").read_text("utf-8"))
    return JarSet.parse(NAME, entries[NAME])
