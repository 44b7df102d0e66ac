"""The whole path on one machine: servers, tables, topic, relay and pipeline; and whether each guarantee held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from inorder.demo import load
from inorder.demo.load import Committed
from inorder.embedded import Stack
from inorder.embedded.stack import Service
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import ReadRecord, read_back
from inorder.outbox.stores.table import backlog
from inorder.playground import Playground
from inorder.testing.checker import Event, Verdict, check_delivery, check_placement, check_rows, fold_updates

TOPIC = "upsert"
PARTITIONS = 4

_SETTINGS = f"""\
[relay]
group = "demo"
# Quicker than the default to give a killed relay's work to the next one: 3 s against a session of 6 s.
leadership = "database"
[topics.{TOPIC}]
partitioner = "id-modulo"
[web]
# The pages of `--keep`, wherever there is room.
listen = "127.0.0.1:0"
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
        """Creates the business table and the topic; relay and pipeline are ready to start."""
        load.install(self.url)
        ensure_topic(self.settings.kafka.properties, TOPIC, PARTITIONS)
        self.relay = self.service("relay", "relay", "run")
        self.pipeline = self.service("pipeline", "pipeline", "run", "upsert")

    def finish(self) -> None:
        """Stops relay and pipeline if they run."""
        self.relay.stop()
        self.pipeline.stop()

    def position(self) -> Position:
        """Reads the outbox and the pointers."""
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


# The summary: figures, and whether each guarantee held.


class RunResult(Protocol):
    """What can be read after a run."""

    def records(self) -> list[ReadRecord]:
        """Every committed record of the topic."""

    def rows(self) -> dict[int, dict[str, object]]:
        """The target table."""

    def position(self) -> Position:
        """The pipeline's own figures."""


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """The object that `--json` prints."""

    committed: int
    published: int
    applied: int
    rejected: int
    verdict: Verdict
    seconds: Mapping[str, float]

    @property
    def holds(self) -> bool:
        """Whether every guarantee held."""
        return self.verdict.holds

    def as_dict(self) -> dict[str, Any]:
        return {
            "committed": self.committed,
            "published": self.published,
            "applied": self.applied,
            "rejected": self.rejected,
            "lost": self.verdict.lost,
            "duplicated": self.verdict.duplicated,
            "out_of_order": self.verdict.out_of_order,
            "seconds": {name: round(value, 2) for name, value in self.seconds.items()},
        }


def summarise(path: RunResult, entries: Sequence[Committed], seconds: Mapping[str, float]) -> DemoSummary:
    """Reads topic and table back and compares them with what the writers committed."""
    records = path.records()
    position = path.position()
    committed = [_event(entry) for entry in entries]
    verdict = check_delivery(committed, (_event_of(record) for record in records))
    verdict += check_placement((record.key, record.partition) for record in records)
    verdict += check_rows(_expected_rows(entries), path.rows())
    verdict += _check_figures(len(records), position.processed, position.rejected, entries)
    return DemoSummary(len(entries), len(records), position.applied, position.rejected, verdict, seconds)


def _event(entry: Committed) -> Event:
    return entry.key, entry.place


def _event_of(record: ReadRecord) -> Event:
    value = orjson.loads(record.value or b"{}")
    return value["id"], value["place"]


def _expected_rows(entries: Sequence[Committed]) -> dict[int, dict[str, object]]:
    histories: dict[int, list[tuple[int, dict[str, object]]]] = defaultdict(list)
    for entry in entries:
        if entry.is_valid:
            histories[entry.key].append((entry.place, entry.fields))
    nothing = {"enabled": None, "data": None}
    return {key: nothing | fold_updates(history) for key, history in histories.items()}


def _check_figures(published: int, processed: int, rejected: int, entries: Sequence[Committed]) -> Verdict:
    """The counters of the pipeline move in its commits, so their sums show records applied twice or not at all."""
    invalid = sum(not entry.is_valid for entry in entries)
    examples = []
    if processed != published:
        examples.append(f"{processed} records were applied or rejected of {published} published")
    if rejected != invalid:
        examples.append(f"{rejected} records were rejected and {invalid} were invalid")
    return Verdict(
        lost=max(0, published - processed) + max(0, rejected - invalid),
        duplicated=max(0, processed - published),
        phantom=max(0, invalid - rejected),
        examples=tuple(examples),
    )
