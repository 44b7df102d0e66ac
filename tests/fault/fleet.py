"""Several instances of one relay in separate processes, and the faults that tests inject into them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from inorder.database.postgres import connect
from inorder.embedded.stack import Program
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import ReadRecord, read_back
from inorder.settings import Settings
from inorder.testing.checker import Verdict, check_delivery, check_placement
from tests.conftest import Eventually
from tests.fault import faulty_relay
from tests.fault.load import Load
from tests.injections import injects, recovers
from tests.operating import exceeded_rows, install_schema

PARTITIONS = 4
PROGRESS_SECONDS = 90

_SETTINGS = """\
[kafka]
"bootstrap.servers" = "{bootstrap}"
"session.timeout.ms" = {session_ms}
[database]
url = "{url}"
[relay]
group = "{group}"
strategy = "{strategy}"
layout = "{layout}"
delivery = "{delivery}"
leadership = "{leadership}"
shards = {shards}
batch_size = 200
io_back_off_ms = 100
stop_seconds = 20
{more}
"""

_UNPUBLISHED = """\
(id > (SELECT "offset" FROM outbox_offsets) OR id IN (SELECT id FROM missing_outbox_events))
"""


@dataclass(frozen=True, slots=True)
class Way:
    """The settings of the relay; the defaults are those of the program."""

    strategy: str = "drain"
    layout: str = "native"
    delivery: str = "exactly-once"
    leadership: str = "kafka"
    shards: int = 1
    session_ms: int = 6000
    error_rate: float = 0.0
    more: str = ""
    """More settings, as TOML."""
    is_tagged: bool = False
    """Whether records carry a header with the instance and the term that sent them."""

    def __str__(self) -> str:
        words = [self.strategy, self.layout, self.delivery, self.leadership, f"{self.shards} shards"]
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Place:
    """The servers of a fleet; the relay connects to `relay_url`, the test to `url`."""

    url: str
    bootstrap: str
    folder: Path
    name: str
    relay_url: str = ""


@dataclass
class Fleet:
    """Instances by number, their load, and the history of faults."""

    place: Place
    way: Way
    eventually: Eventually
    seed: int = 1
    topics: Sequence[str] = ()
    instances: list[Program] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topics = self.topics or (f"{self.place.name}.a", f"{self.place.name}.b")
        self.config = self.place.folder / f"{self.place.name}.toml"
        words = {name: getattr(self.way, name) for name in self.way.__dataclass_fields__}
        text = _SETTINGS.format(bootstrap=self.place.bootstrap, url=self.place.url, group=self.place.name, **words)
        self.config.write_text(text)
        self.settings = Settings.load(self.config)
        install_schema(self.settings, self.way.layout)
        if self.place.relay_url:
            self.config.write_text(text.replace(self.place.url, self.place.relay_url))
        for topic in self.topics:
            ensure_topic(self.settings.kafka.properties, topic, PARTITIONS)
        self.load = Load(self.place.url, self.topics, self.way.layout, self.seed)

    def start_one(self) -> Program:
        """Starts one more instance."""
        command = ["relay", "run", "--config", str(self.config)]
        tags = [faulty_relay.TAGGED] if self.way.is_tagged else []
        argv = [sys.executable, faulty_relay.__file__, str(self.way.error_rate), *tags, *command]
        instance = Program(f"{self.place.name}-{len(self.instances)}", argv, self.place.folder)
        instance.start()
        self.instances.append(instance)
        return instance

    def stop_all(self) -> None:
        """Stops those that still run."""
        for instance in self.instances:
            if not instance.has_ended():
                instance.resume()
            instance.stop()

    def start_staggered(self, count: int, seconds: float) -> None:
        """Starts the given number of instances with a pause between them."""
        for _ in range(count):
            self.start_one()
            threading.Event().wait(seconds)

    def stop_in_order(self) -> None:
        """Stops all but the last in the order of their starts; the others must continue each time."""
        for instance in self.instances[:-1]:
            instance.stop()
            self.wait_for_progress()

    def leader(self) -> Program:
        """The running instance that took over a shard last."""
        return max(self.running(), key=_taken_over_at)

    def running(self) -> list[Program]:
        """The instances that run."""
        return [each for each in self.instances if not each.has_ended()]

    def kill_leader(self) -> None:
        """Kills the leader with SIGKILL, and restarts it after others have published, or at once."""
        leader = self._chosen("killed")
        leader.kill()
        if self.running():
            self.wait_for_progress()
        leader.start()
        self.wait_for_progress()

    @injects("SIGSTOP of a relay or a job, beyond its time-outs")
    def freeze_leader(self, seconds: float) -> None:
        """Stops the leader with SIGSTOP for longer than its session or lease, and resumes it beside its successor."""
        leader = self._chosen(f"frozen for {seconds} s")
        leader.pause()
        threading.Event().wait(seconds)
        if len(self.running()) > 1:
            self.wait_for_progress()
        leader.resume()
        self.wait_for_progress()

    @recovers
    def wait_for_progress(self, which: str = "true", seconds: float = PROGRESS_SECONDS) -> None:
        """Waits until all rows that are in the outbox now are published; `which` selects some of them."""
        newest = self._ask(f"SELECT coalesce(max(id), 0) FROM {self.settings.relay.table}")
        self.eventually(lambda: self._all_run() and not self.waiting(f"id <= {newest} AND {which}"), seconds)

    def wait_for_errors(self) -> None:
        """Waits until the clients have injected one: a fast machine needs few calls, which may all succeed."""
        self.eventually(lambda: self._all_run() and self.injected() > 0, PROGRESS_SECONDS)

    def _all_run(self) -> bool:
        for instance in self.instances:
            instance.check()
        return True

    @recovers
    def verdict(self) -> Verdict:
        """Waits until the outbox is empty, stops all instances, and compares; repeats are errors unless allowed."""
        self.eventually(lambda: not self.waiting(), PROGRESS_SECONDS)
        self.stop_all()
        records = self.records()
        committed = self.load.committed()
        found = check_delivery(committed, [(record.key, int(record.value or b"0")) for record in records])
        found += check_placement((record.key, record.partition) for record in records)
        self.history.append(f"{len(committed)} committed, {len(records)} records, {self.injected()} errors injected")
        assert exceeded_rows(self.settings) == [], "no error here is one of a record"
        if self.way.delivery == "at-least-once":
            return replace(found, duplicated=0)
        return found

    def waiting(self, which: str = "true") -> int:
        """How many rows of the outbox are not published."""
        unpublished = _UNPUBLISHED if self.way.strategy == "polling" else "true"
        return self._ask(f"SELECT count(*) FROM {self.settings.relay.table} WHERE {unpublished} AND {which}")

    def records(self) -> list[ReadRecord]:
        """Every committed record of all topics."""
        return [record for topic in self.topics for record in read_back(self.settings.kafka.properties, topic)]

    def injected(self) -> int:
        """How many errors the instances' clients injected."""
        return self.said(faulty_relay.INJECTED)

    def said(self, words: str) -> int:
        """How often the instances' logs contain this text."""
        return sum(instance.log_path.read_text().count(words) for instance in self.instances)

    def _chosen(self, fate: str) -> Program:
        leader = self.leader()
        self.history.append(f"{leader.name} {fate} with {self.waiting()} rows waiting")
        return leader

    def _ask(self, statement: str) -> int:
        with connect(self.place.url, "fleet") as connection:
            row = connection.execute(statement).fetchone()
        assert row is not None
        return int(row[0])


def _taken_over_at(instance: Program) -> str:
    lines = [line for line in instance.log_path.read_text().splitlines() if '"relay.taken_over"' in line]
    return lines[-1].partition('"timestamp": "')[2] if lines else ""


class NewFleet(Protocol):
    """Creates a fleet; servers that are not given are the session's."""

    def __call__(
        self, way: Way, *, seed: int = 1, url: str = "", relay_url: str = "", bootstrap: str = ""
    ) -> Fleet: ...
