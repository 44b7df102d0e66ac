"""The peer `librdkafka`: a producer that has every record in memory, with neither database nor transaction.

It is the ceiling of the machine and no rival: the ratio says which part of it is left after reading rows, publishing
them with a guarantee and deleting them.
"""

from __future__ import annotations

import time

from inorder.bench.checking import check_values
from inorder.bench.contender import Peer, live_trial
from inorder.bench.figures import sent_of
from inorder.bench.load import Load
from inorder.bench.options import DRAIN_CAP_SECONDS, FILL_CAP_SECONDS, RelayOptions
from inorder.bench.place import BenchPlace
from inorder.bench.trial import Cpu, DrainTrial, LiveTrial
from inorder.bench.watching import see_records
from inorder.kafka.read_back import read_back


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
