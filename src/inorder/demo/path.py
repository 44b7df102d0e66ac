"""The whole path on one machine: servers, tables, topic, relay and pipeline, and eyes on each hop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from inorder.demo import writers
from inorder.embedded import Stack
from inorder.embedded.service import Service
from inorder.kafka.read_back import ReadRecord, read_back
from inorder.kafka.topics import ensure_topic
from inorder.settings import Settings
from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.outbox import waiting
from inorder.wiring import install_schema

TOPIC = "upsert"
PARTITIONS = 4

_CONFIG = """\
[kafka]
"bootstrap.servers" = "{kafka}"
[database]
url = "{postgres}"
[relay]
group = "demo"
# Quicker than the default to give a killed relay's work to the next one: 3 s against a session of 6 s.
leadership = "database"
[topics.{topic}]
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


class DemoPath:
    """Everything between a transaction and a row, as a context manager. `folder` keeps its logs."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.settings: Settings
        self.url: str
        self.relay: Service
        self.pipeline: Service
        self._watching: psycopg.Connection[Any]

    def __enter__(self) -> Self:
        self._stack.start()
        try:
            self._prepare(self._stack.folder)
        except BaseException:
            self._stack.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._watching.close()
            self.relay.stop()
            self.pipeline.stop()
        finally:
            self._stack.stop()

    @property
    def folder(self) -> Path:
        """Where the servers and services keep their logs."""
        return self._stack.folder

    def position(self) -> Position:
        """Looks at the outbox and at the pointers."""
        count, _ = waiting(self._watching, self.settings.relay.table)
        row = self._watching.execute(_FIGURES).fetchone()
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
        found = self._watching.execute("SELECT id, enabled, data FROM messages")
        return {id: {"enabled": enabled, "data": data} for id, enabled, data in found}

    def _prepare(self, folder: Path) -> None:
        addresses = self._stack.addresses()
        config = folder / "inorder.toml"
        config.write_text(_CONFIG.format(topic=TOPIC, **addresses))
        self.settings = Settings.load(config)
        self.url = addresses["postgres"]
        for layout in ("native", "table"):
            install_schema(self.settings, layout)
        writers.install(self.url)
        ensure_topic(self.settings.kafka.properties, TOPIC, PARTITIONS)
        self._watching = connect(self.url, "inorder demo (watch)", autocommit=True)
        self.relay = Service("relay", ["relay", "run", "--config", str(config)], folder)
        self.pipeline = Service("pipeline", ["pipeline", "run", "upsert", "--config", str(config)], folder)


_FIGURES = """
SELECT coalesce(sum(records_applied + records_identical + records_stale + records_ignored), 0)::bigint,
       coalesce(sum(records_rejected), 0)::bigint
FROM inorder_pointer
"""
