"""`inorder bench pipeline`: a topic caught up with by the job `upsert`, and by a peer, on the same servers.

Three phases a side. *Cold*: the backlog is there when the process starts; its rate counts from the first visible row.
*Warm*: as large a backlog appears at once before a process that has worked and waits, because it was sent in one
transaction; its rate counts from that moment. *Live*: messages at a steady rate, each timed from the moment it was due
to the moment its row was seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from inorder.bench.figures import DrainRate, drain_of, latency_of, memory_megabytes
from inorder.bench.load import LIVE_FIRST, Load
from inorder.bench.options import DRAIN_CAP_SECONDS, FILL_CAP_SECONDS, PipelineOptions
from inorder.bench.place import TOPIC, BenchPlace
from inorder.bench.report import ReadBackCheck, Side, check_live, check_table
from inorder.bench.watching import counted_of, see_rows, watch
from inorder.database.postgres import connect
from inorder.database.sql import quoted
from inorder.embedded.stack import Service
from inorder.kafka.errors import CLIENT_LOG
from inorder.testing.checker import Row

Checks = dict[str, ReadBackCheck]
PeerSide = Callable[[BenchPlace, PipelineOptions, Load, Checks], Side]
"""Measures a peer; the load is both backlogs, of which the first half is the cold one."""

_MOVED = "SELECT coalesce(sum(next_offset), 0)::bigint FROM inorder_pointer"
_COUNTED = """
SELECT coalesce(sum(records_applied + records_identical + records_stale + records_ignored), 0)::bigint
       + coalesce(sum(records_rejected), 0)::bigint
FROM inorder_pointer
"""


def bench_pipeline(place: BenchPlace, options: PipelineOptions, peer: PeerSide) -> tuple[Side, Side, Checks]:
    """Runs both sides one after the other on the same servers: ours, the peer, and what was read back."""
    load = Load(2 * options.rows, options.keys, has_partials=True)
    checks: Checks = {}
    place.topic(TOPIC)
    fill(place, TOPIC, load, 0, load.rows // 2)
    # The peer goes first: our later messages are appended to the backlog, and both must find the same topic.
    measured = peer(place, options, load, checks)
    return _ours(place, options, load, checks), measured, checks


def fill(place: BenchPlace, topic: str, load: Load, first: int, rows: int, **more: Any) -> None:
    """Sends some records of a load to a topic before it is read."""
    place.say(f"Filling the topic {topic} with {rows:,} messages of {load.keys:,} keys …")
    with place.worker("send-backlog", **backlog_task(place, topic, load, first, rows, **more)) as sender:
        sender.result(FILL_CAP_SECONDS)
    place.watching.execute("CHECKPOINT")


def backlog_task(place: BenchPlace, topic: str, load: Load, first: int, rows: int, **more: Any) -> dict[str, Any]:
    """The task of the worker that sends them."""
    sent = {"rows": first + rows, "keys": load.keys, "has_partials": load.has_partials}
    usual = {"has_schema": False, "at_once": False}
    return {"kafka": place.kafka, "topic": topic, "load": sent, "first": first, **usual, **more}


def warm_drain(
    place: BenchPlace, task: dict[str, Any], rows: int, count: Callable[[], int], goal: int, check: Callable[[], None]
) -> DrainRate:
    """Lets a backlog appear at once, and rates how it is caught up with until `count` reaches its goal."""
    place.say(f"Letting {rows:,} messages more appear at once …")
    with place.worker("send-backlog", **task) as sender:
        looks = watch(count, lambda found: found >= goal, check, FILL_CAP_SECONDS + DRAIN_CAP_SECONDS)
        visible = sender.result(FILL_CAP_SECONDS)["visible"]
    seconds = looks[-1].at - visible
    return DrainRate(rows / seconds, seconds, 0.0)


def live_latency(
    place: BenchPlace, options: PipelineOptions, topic: str, table: str, **more: Any
) -> tuple[Any, ReadBackCheck]:
    """Times live messages from due to visible."""
    schedule = options.schedule
    place.say(f"Sending {schedule.rate} messages a second for {schedule.lasts:.0f} s …")
    with place.worker("send-live", kafka=place.kafka, topic=topic, **options.live_task, **more):
        seen = see_rows(place.watching, table, schedule.total, options.live_cap)
    check = check_live(schedule.total, [one.number for one in seen])
    return latency_of([one.milliseconds for one in counted_of(seen, schedule.warm)]), check


def stored_rows(place: BenchPlace, table: str) -> dict[int, Row]:
    """The rows of the backlogs; those of live messages and of markers have ids beyond them."""
    statement = f"SELECT id, enabled, data FROM {quoted(table)} WHERE id < %s"  # noqa: S608 - quoted
    found = place.watching.execute(statement, (LIVE_FIRST,))
    return {id: {"enabled": enabled, "data": data} for id, enabled, data in found}


def half_of(load: Load) -> Load:
    """The cold part of a load."""
    return Load(load.rows // 2, load.keys, has_partials=load.has_partials)


def _ours(place: BenchPlace, options: PipelineOptions, load: Load, checks: Checks) -> Side:
    with place.running(place.service("pipeline", "run", "upsert", "--engine", options.engine)) as pipeline:
        memory: dict[str, dict[str, float]] = {}
        cold, warm = _catch_up(place, pipeline, load, options, checks, memory)
        table = place.settings.pipeline.upsert.table
        latency, checks["ours_live"] = live_latency(place, options, TOPIC, table)
        memory["live"] = memory_megabytes(pipeline.pid)
    return Side(cold, latency, {"engine": options.engine, "warm": warm.as_dict(), "memory_mb": memory})


def _catch_up(
    place: BenchPlace,
    pipeline: Service,
    load: Load,
    options: PipelineOptions,
    checks: Checks,
    memory: dict[str, dict[str, float]],
) -> tuple[DrainRate, DrainRate]:
    started, rows = time.monotonic(), load.rows // 2
    place.say(f"Catching up with the job upsert on Spark, engine {options.engine} …")

    def moved() -> int:
        return _number(place, _MOVED)

    def checked(part: Load) -> ReadBackCheck:
        return check_table(part, stored_rows(place, place.settings.pipeline.upsert.table), _number(place, _COUNTED))

    looks = watch(moved, lambda found: found >= rows, pipeline.check, DRAIN_CAP_SECONDS)
    memory["cold"] = memory_megabytes(pipeline.pid)
    checks["ours"] = checked(half_of(load))
    task = backlog_task(place, TOPIC, load, rows, rows, at_once=True)
    # Offsets have no holes so far, so the pointers say when the last message is applied.
    warm = warm_drain(place, task, rows, moved, load.rows, pipeline.check)
    memory["warm"] = memory_megabytes(pipeline.pid)
    checks["ours_warm"] = checked(load)
    return drain_of(looks, rows, started), warm


def _number(place: BenchPlace, statement: str) -> int:
    row = place.watching.execute(statement).fetchone()
    return int(row[0]) if row else 0


# The peer of the pipeline: the least code that brings a topic into a table, without any guarantee.
#
# It keeps no pointer, checks nothing, and would lose or repeat records with its first crash. What it does per record is
# the least work possible: read, parse, fold to the newest of each key, write in bulk.

CHUNK = 10_000
GATHER_SECONDS = 0.02

INSTALL = "CREATE TABLE IF NOT EXISTS {table} (id bigint PRIMARY KEY, enabled boolean, data text)"
_UPSERT = """
INSERT INTO {table} AS t (id, enabled, data)
SELECT * FROM unnest(%s::bigint[], %s::boolean[], %s::text[])
ON CONFLICT (id) DO UPDATE SET enabled = coalesce(excluded.enabled, t.enabled), data = excluded.data
"""


def raw_copy(kafka: Mapping[str, Any], url: str, topic: str, table: str, total: int) -> dict[str, Any]:
    """Carries the first `total` records of a topic into a table; returns when each commit came back."""
    looks: list[tuple[float, int]] = []
    done = 0
    consumer = _consumer(kafka, topic)
    try:
        with connect(url, "inorder bench (raw-copy)") as connection:
            while done < total:
                messages = consumer.consume(CHUNK, GATHER_SECONDS)
                if not messages:
                    continue
                connection.execute(_UPSERT.format(table=table), _folded(messages))
                connection.commit()
                done += len(messages)
                looks.append((time.monotonic(), done))
    finally:
        consumer.close()
    return {"looks": looks}


def _folded(messages: Sequence[Message]) -> list[list[Any]]:
    newest: dict[int, tuple[int, bool | None, str]] = {}
    for message in messages:
        if error := message.error():
            raise KafkaException(error)
        fields = orjson.loads(message.value() or b"{}")
        key, enabled = fields["id"], fields.get("enabled")
        if enabled is None and key in newest:
            enabled = newest[key][1]
        newest[key] = (key, enabled, fields["data"])
    return [list(column) for column in zip(*newest.values(), strict=True)]


def _consumer(kafka: Mapping[str, Any], topic: str) -> Consumer:
    consumer = Consumer(
        {
            **kafka,
            "group.id": "inorder.bench.raw-copy",
            "enable.auto.commit": False,
            # With its default of a second the client reads a backlog at a quarter of its rate.
            "fetch.queue.backoff.ms": 2,
        },
        logger=CLIENT_LOG,
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    return consumer
