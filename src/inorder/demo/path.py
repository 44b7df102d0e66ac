"""The whole path on one machine: servers, tables, topic, relay and pipeline, and eyes on each hop."""

from __future__ import annotations

from dataclasses import dataclass

from inorder.demo import writers
from inorder.embedded import Stack
from inorder.embedded.service import Service
from inorder.kafka.read_back import ReadRecord, read_back
from inorder.kafka.topics import ensure_topic
from inorder.playground import Playground
from inorder.stores.backlog import backlog

TOPIC = "upsert"
PARTITIONS = 4

_SETTINGS = f"""\
[relay]
group = "demo"
# Quicker than the default to give a killed relay's work to the next one: 3 s against a session of 6 s.
leadership = "database"
[topics.{TOPIC}]
partitioner = "id-modulo"
"""


@dataclass(frozen=True, slots=True)
class Position:
    """How far the path has come, in records; the pipeline's figures move in the commits that they count."""

    waiting: int
    applied: int
    rejected: int

    @property
    def processed(self) -> int:
        return self.applied + self.rejected


class DemoPath(Playground):
    """Everything between a transaction and a row."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, _SETTINGS)
        self.relay: Service
        self.pipeline: Service

    def prepare(self) -> None:
        """Makes the business table and the topic; relay and pipeline are there to be started."""
        writers.install(self.url)
        ensure_topic(self.settings.kafka.properties, TOPIC, PARTITIONS)
        self.relay = self.service("relay", "relay", "run")
        self.pipeline = self.service("pipeline", "pipeline", "run", "upsert")

    def finish(self) -> None:
        """Stops both where they run."""
        self.relay.stop()
        self.pipeline.stop()

    def position(self) -> Position:
        """Looks at the outbox and at the pointers."""
        count = backlog(self.database, self.settings.relay.table).rows
        row = self.watching.execute(_FIGURES).fetchone()
        applied, rejected = row if row else (0, 0)
        return Position(count, applied, rejected)

    def kill_broker(self) -> None:
        """Ends Kafka as `kill -9` does."""
        self._stack.servers["kafka"].kill()

    def start_broker(self) -> None:
        """Starts Kafka again, on the same data and port."""
        self._stack.servers["kafka"].start()

    def records(self) -> list[ReadRecord]:
        """Every committed record of the topic."""
        return list(read_back(self.settings.kafka.properties, TOPIC))

    def rows(self) -> dict[int, dict[str, object]]:
        """The target table."""
        found = self.watching.execute("SELECT id, enabled, data FROM messages")
        return {id: {"enabled": enabled, "data": data} for id, enabled, data in found}

    def service(self, name: str, *command: str) -> Service:
        """An `inorder` command of this path, under a name of its own."""
        return Service(name, [*command, "--config", str(self.config)], self.folder)


_FIGURES = """
SELECT coalesce(sum(records_applied + records_identical + records_stale + records_ignored), 0)::bigint,
       coalesce(sum(records_rejected), 0)::bigint
FROM inorder_pointer
"""
