"""The peer `librdkafka`: a producer that has every record in memory, with neither database nor transaction.

It is the ceiling of the machine and no rival: the ratio says which part of it is left after reading rows, publishing
them with a guarantee and deleting them.
"""

from __future__ import annotations

import time

from inorder.bench.contender import Peer, live_trial
from inorder.bench.figures import Sample, drain_of, sent_of
from inorder.bench.load import Load
from inorder.bench.options import DRAIN_CAP_SECONDS, FILL_CAP_SECONDS, PipelineOptions, RelayOptions
from inorder.bench.pipeline import INSTALL, Checks, half_of, live_latency, stored_rows
from inorder.bench.place import LIVE_TOPIC, TOPIC, BenchPlace
from inorder.bench.report import Cpu, DrainTrial, LiveTrial, Side, check_table, check_values
from inorder.bench.watching import see_records
from inorder.database.sql import quoted
from inorder.kafka.readers import read_back


class Librdkafka:
    """Sends; there is no table to drain."""

    name = "librdkafka"

    def __init__(self, place: BenchPlace, options: RelayOptions) -> None:
        self._place = place
        self._options = options

    def drain(self, load: Load, number: int) -> DrainTrial:
        """Rated by its own clock, which takes no core from it."""
        topic = self._place.topic(f"{self.name}-drain-{number}")
        task = {"kafka": self._place.kafka, "topic": topic, "rows": load.rows, "keys": load.keys}
        started = time.monotonic()
        with self._place.worker("send-all", **task, headers=load.headers) as sender:
            result = sender.result(DRAIN_CAP_SECONDS)
        check = check_values(load, (record.value for record in read_back(self._place.kafka, topic)))
        drain = sent_of(load.rows, started, result["began"], result["ended"])
        return DrainTrial(drain, True, Cpu(result["cpu_seconds"], None, load.rows), check)

    def live(self, number: int) -> LiveTrial:
        """Nothing is committed, so latency counts from the moment a record was due."""
        schedule, topic = self._options.schedule, self._place.topic(f"{self.name}-live-{number}")
        with self._place.worker("send-live", kafka=self._place.kafka, topic=topic, **self._options.live_task) as sender:
            seen = see_records(self._place.kafka, topic, schedule, self._options.live_cap)
            cpu = Cpu(sender.result(FILL_CAP_SECONDS)["cpu_seconds"], None, schedule.counted)
        return live_trial(seen, schedule, None, cpu)


PEER = Peer(
    Librdkafka, notes=("librdkafka has every record in memory and reads no database: it is a ceiling, not a rival.",)
)


# The peer `raw-copy`: the least code that could do it, without any guarantee.
#
# It keeps no pointer and would lose or repeat records with its first crash. It is the floor of what must be paid, so
# the ratio says what order, exactly-once and Spark cost, or, with many cores, bring.

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
        looks = [Sample(at, count) for at, count in copier.result(DRAIN_CAP_SECONDS)["looks"]]
    checks["peer"] = check_table(cold, stored_rows(place, TABLE), looks[-1].count)
    topic = place.topic(f"{LIVE_TOPIC}-{NAME}")
    with place.worker(NAME, **task, topic=topic, total=options.schedule.total):
        latency, checks["peer_live"] = live_latency(place, options, topic, TABLE)
    return Side(drain_of(looks, cold.rows, started), latency, {})
