"""The peer `raw-copy`: the least code that could do it, without any guarantee.

It keeps no pointer and would lose or repeat records with its first crash. It is the floor of what must be paid, so the
ratio says what order, exactly-once and Spark cost, or, with many cores, bring.
"""

from __future__ import annotations

import time

from inorder.bench.checking import check_table
from inorder.bench.figures import Look, drain_of
from inorder.bench.load import Load
from inorder.bench.options import DRAIN_CAP_SECONDS, PipelineOptions
from inorder.bench.pipeline import Checks, half_of, live_latency, stored_rows
from inorder.bench.place import LIVE_TOPIC, TOPIC, BenchPlace
from inorder.bench.raw_copy import INSTALL
from inorder.bench.report import Side
from inorder.sql import quoted

NAME = "raw-copy"
TABLE = "bench_raw_copy"


def measure(place: BenchPlace, options: PipelineOptions, load: Load, checks: Checks) -> Side:
    """Cold and live; it ends with its backlog, so there is no warm one."""
    cold = half_of(load)
    place.say(f"Catching up with {NAME} …")
    place.watching.execute(INSTALL.format(table=quoted(TABLE)))
    task = {"kafka": place.kafka, "url": place.url, "table": TABLE}
    started = time.monotonic()
    with place.worker(NAME, **task, topic=TOPIC, total=cold.rows) as copier:
        looks = [Look(at, count) for at, count in copier.result(DRAIN_CAP_SECONDS)["looks"]]
    checks["peer"] = check_table(cold, stored_rows(place, TABLE), looks[-1].count)
    topic = place.topic(f"{LIVE_TOPIC}-{NAME}")
    with place.worker(NAME, **task, topic=topic, total=options.schedule.total):
        latency, checks["peer_live"] = live_latency(place, options, topic, TABLE)
    return Side(drain_of(looks, cold.rows, started), latency, {})
