"""`inorder bench pipeline`: a topic caught up with by the job `upsert`, and by the least code that could do it.

The peer `raw-copy` keeps no pointer and would lose or repeat records with its first crash. It is the floor of what must
be paid, so the ratio says what order, exactly-once and Spark cost, or, with many cores, bring.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from inorder.bench.checking import check_live, check_table
from inorder.bench.figures import Drain, Look, drain_of, latency_of
from inorder.bench.load import LIVE_FIRST, Load
from inorder.bench.options import DRAIN_CAP_SECONDS, FILL_CAP_SECONDS, Options
from inorder.bench.place import LIVE_TOPIC, TOPIC, BenchPlace
from inorder.bench.raw_copy import INSTALL
from inorder.bench.report import Check, Side
from inorder.bench.watching import counted_of, see_rows, watch
from inorder.sql import quoted
from inorder.testing.checker import Row

KEYS = 10_000
PEER = "raw-copy"
PEER_TABLE = "bench_raw_copy"

Checks = dict[str, Check]

_MOVED = "SELECT coalesce(sum(next_offset), 0)::bigint FROM inorder_pointer"
_COUNTED = """
SELECT coalesce(sum(records_applied + records_identical + records_stale + records_ignored), 0)::bigint
       + coalesce(sum(records_rejected), 0)::bigint
FROM inorder_pointer
"""


def bench_pipeline(place: BenchPlace, options: Options) -> tuple[Side, Side, Checks]:
    """Runs both sides one after the other on the same servers: ours, the peer, and what was read back."""
    load = Load(options.rows, KEYS)
    checks: Checks = {}
    _fill(place, load)
    # The peer goes first: our live messages will stand behind the backlog, in the topic that both must find the same.
    peer = _peer(place, options, load, checks)
    return _ours(place, options, load, checks), peer, checks


def _ours(place: BenchPlace, options: Options, load: Load, checks: Checks) -> Side:
    with place.running(place.service("pipeline", "run", "upsert")) as pipeline:
        started = time.monotonic()
        place.say("Catching up with the job upsert on Spark …")
        looks = watch(
            lambda: _number(place, _MOVED), lambda moved: moved >= load.rows, pipeline.check, DRAIN_CAP_SECONDS
        )
        table = place.settings.pipeline.upsert.table
        checks["ours"] = check_table(load, _rows(place, table), _number(place, _COUNTED))
        return _live(place, options, drain_of(looks, load.rows, started), checks)


def _live(place: BenchPlace, options: Options, drain: Drain, checks: Checks) -> Side:
    schedule = options.schedule
    place.say(f"Sending {schedule.rate} messages a second for {schedule.lasts:.0f} s …")
    with place.worker("send-live", kafka=place.kafka, topic=TOPIC, **options.live_task):
        seen = see_rows(place.watching, place.settings.pipeline.upsert.table, schedule.total, options.live_cap)
    checks["ours_live"] = check_live(schedule.total, [one.number for one in seen])
    return Side(drain, latency_of([one.milliseconds for one in counted_of(seen, schedule.warm)]), {})


def _peer(place: BenchPlace, options: Options, load: Load, checks: Checks) -> Side:
    place.say(f"Catching up with {PEER} …")
    place.watching.execute(INSTALL.format(table=quoted(PEER_TABLE)))
    task = {"kafka": place.kafka, "url": place.url, "table": PEER_TABLE}
    started = time.monotonic()
    with place.worker(PEER, **task, topic=TOPIC, total=load.rows) as copier:
        looks = [Look(at, count) for at, count in copier.result(DRAIN_CAP_SECONDS)["looks"]]
    checks["peer"] = check_table(load, _rows(place, PEER_TABLE), looks[-1].count)
    return _peer_live(place, options, drain_of(looks, load.rows, started), task, checks)


def _peer_live(place: BenchPlace, options: Options, drain: Drain, task: Mapping[str, Any], checks: Checks) -> Side:
    schedule, topic = options.schedule, place.topic(f"{LIVE_TOPIC}-{PEER}")
    place.say(f"Sending {schedule.rate} messages a second for {schedule.lasts:.0f} s …")
    place.watching.execute(f"TRUNCATE {quoted(PEER_TABLE)}")
    with (
        place.worker(PEER, **task, topic=topic, total=schedule.total),
        place.worker("send-live", kafka=place.kafka, topic=topic, **options.live_task),
    ):
        seen = see_rows(place.watching, PEER_TABLE, schedule.total, options.live_cap)
    checks["peer_live"] = check_live(schedule.total, [one.number for one in seen])
    return Side(drain, latency_of([one.milliseconds for one in counted_of(seen, schedule.warm)]), {})


def _fill(place: BenchPlace, load: Load) -> None:
    place.say(f"Filling the topic with {load.rows:,} messages of {KEYS:,} keys …")
    topic = place.topic(TOPIC)
    with place.worker("send-all", kafka=place.kafka, topic=topic, rows=load.rows, keys=load.keys) as sender:
        sender.result(FILL_CAP_SECONDS)
    place.watching.execute("CHECKPOINT")


def _number(place: BenchPlace, statement: str) -> int:
    row = place.watching.execute(statement).fetchone()
    return int(row[0]) if row else 0


def _rows(place: BenchPlace, table: str) -> dict[int, Row]:
    statement = f"SELECT id, enabled, data FROM {quoted(table)} WHERE id < %s"  # noqa: S608 - quoted
    found = place.watching.execute(statement, (LIVE_FIRST,))
    return {id: {"enabled": enabled, "data": data} for id, enabled, data in found}
