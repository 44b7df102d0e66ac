"""The peer goharvest: mark, publish, purge one row a statement, at most one record of a key in flight.

Its limits are those that were found best for it by a scan of settings on two cores; its connection commits
asynchronously, since a crash could only make it publish again.
"""

from __future__ import annotations

import json
from itertools import count

from inorder.bench.contender import Peer, TableReader
from inorder.bench.load import Load
from inorder.bench.options import RelayOptions
from inorder.bench.peers.go_program import goharvest_program
from inorder.bench.place import BenchPlace
from inorder.bench.tables import LAYOUTS
from inorder.embedded.service import Program
from inorder.kafka.topics import ensure_topic
from inorder.outbox.layouts import install_statements
from inorder.sql import quoted

TABLE = "bench_goharvest"
LEADER_TOPIC = "bench-goharvest-leader"
WINDOW_SECONDS = 10.0
FEW_KEYS = 10
LIMITS = {
    "maxInFlightRecords": 20_000,
    "markQueryRecords": 500,
    "sendConcurrency": 16,
    "sendBuffer": 1_000,
    "markBackoff": "1ms",
}
_starts = count(1)


class Goharvest(TableReader):
    """Each start is a group of its own, so that no election waits for a member that is gone."""

    name = "goharvest"
    window_seconds = WINDOW_SECONDS

    def __init__(self, place: BenchPlace, options: RelayOptions) -> None:
        super().__init__(place, options, LAYOUTS["goharvest"], TABLE)
        ensure_topic(place.kafka, LEADER_TOPIC, 1)

    def empty(self) -> None:
        """Drops the table rather than emptying it: no dead rows of the last trial."""
        self.place.watching.execute(f"DROP TABLE IF EXISTS {quoted(TABLE)}")
        for statement in install_statements("goharvest", "postgresql", TABLE):
            self.place.watching.execute(statement)

    def program(self, load: Load) -> Program:
        """Tuned for the load: with few keys every moment of lingering is lost."""
        number = next(_starts)
        path = self.place.folder / f"goharvest-{number}.yaml"
        # JSON is YAML.
        path.write_text(json.dumps(self._settings(load, number), indent=1), "utf-8")
        return Program("goharvest", [str(goharvest_program()), str(path)], self.place.folder)

    def _settings(self, load: Load, number: int) -> dict[str, object]:
        host, port = self.place.database_address
        return {
            "baseKafkaConfig": self.place.kafka,
            "producerKafkaConfig": {"linger.ms": 0 if load.keys <= FEW_KEYS else 1},
            "leaderTopic": LEADER_TOPIC,
            "leaderGroupID": f"bench-goharvest-{number}",
            "dataSource": (
                f"host={host} port={port} user=postgres dbname=postgres sslmode=disable synchronous_commit=off"
            ),
            "outboxTable": TABLE,
            "limits": LIMITS,
        }


PEER = Peer(
    Goharvest,
    set_up=goharvest_program,
    notes=(
        f"goharvest is rated over the first {WINDOW_SECONDS:.0f} s of a drain: with few keys the whole takes minutes.",
        "goharvest delivers at least once, without transactions.",
    ),
)
