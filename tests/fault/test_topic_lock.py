"""Topic workers in several processes: killed with SIGKILL in turn, or frozen until another has their lock."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from inorder.database.postgres import connect
from inorder.embedded.stack import Service
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import ReadRecord, read_back
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.settings import Settings
from inorder.testing.checker import Event, check_delivery, check_placement
from tests.conftest import Eventually
from tests.injections import injects, recovers
from tests.operating import exceeded_rows, install_schema

PARTITIONS = 3
WRITERS = 3
KEYS = 4
PROGRESS_SECONDS = 60

_SETTINGS = """\
[kafka]
"bootstrap.servers" = "{bootstrap}"
[database]
url = "{url}"
[relay]
group = "{group}"
strategy = "topic-lock"
layout = "deimos"
batch_size = {batch_size}
io_back_off_ms = 100
[relay.topic_lock]
workers = {workers}
lock_seconds = {lock_seconds}
"""

# Records the time of every delete; the record is kept only if the delete commits.
_DELETED = """
CREATE TABLE deleted (topic text, key bytea, message bytea, at timestamptz);
CREATE FUNCTION note_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO deleted VALUES (OLD.topic, OLD.key, OLD.message, clock_timestamp());
  RETURN NULL;
END $$;
CREATE TRIGGER note_deleted AFTER DELETE ON kafka_messages FOR EACH ROW EXECUTE FUNCTION note_deleted();
"""

Named = tuple[str, bytes, bytes]
"""A message by its topic, key and value."""


@dataclass
class Crew:
    """Processes with workers, writers that continue through all faults, and their results."""

    url: str
    bootstrap: str
    name: str
    folder: Path
    eventually: Eventually
    topics: int = 8
    workers: int = 4
    lock_seconds: int = 2
    batch_size: int = 50
    processes: list[Service] = field(default_factory=list)
    committed: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = self.folder / f"{self.name}.toml"
        words = {name: getattr(self, name) for name in ("url", "bootstrap", "workers", "lock_seconds", "batch_size")}
        self.config.write_text(_SETTINGS.format(group=self.name, **words))
        self.settings = Settings.load(self.config)
        self.names = [f"{self.name}.{number}" for number in range(self.topics)]
        install_schema(self.settings, "deimos")
        with connect(self.url, "test") as connection:
            connection.execute(_DELETED)
        for topic in self.names:
            ensure_topic(self.settings.kafka.properties, topic, PARTITIONS)

    def start(self, count: int) -> None:
        for _ in range(count):
            name = f"{self.name}-{len(self.processes)}"
            self.processes.append(Service(name, ["relay", "run", "--config", str(self.config)], self.folder))
            self.processes[-1].start()

    def stop(self) -> None:
        for process in self.processes:
            process.resume()
            process.stop()

    @contextmanager
    def load(self) -> Iterator[None]:
        """Runs writers for the duration of the block, each with its own keys."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._write, args=(number, stop)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    @recovers
    def wait_for_progress(self) -> None:
        """Waits until all rows that are in the table now are published."""
        newest = self.ask("SELECT coalesce(max(id), 0) FROM kafka_messages")
        left = f"SELECT count(*) FROM kafka_messages WHERE id <= {newest}"
        self.eventually(lambda: not self.ask(left), PROGRESS_SECONDS)

    def ask(self, statement: str) -> int:
        with connect(self.url, "test") as connection:
            row = connection.execute(statement).fetchone()
        assert row is not None
        return int(row[0])

    def records(self) -> list[ReadRecord]:
        return [record for topic in self.names for record in read_back(self.settings.kafka.properties, topic)]

    def check(self, records: list[ReadRecord]) -> int:
        """Checks that nothing is lost, reordered or sent after its delete; returns the number of repeats."""
        sent = [((record.topic, record.key), int(record.value or b"0")) for record in records]
        verdict = check_delivery(self.committed, sent)
        verdict += check_placement(((record.topic, record.key), record.partition) for record in records)
        assert (verdict.lost, verdict.out_of_order, verdict.phantom) == (0, 0, 0), verdict
        deleted_ms = self._deleted_ms()
        late = [record for record in records if record.timestamp_ms > deleted_ms[_named(record)]]
        assert late == [], "a message whose delete had committed was sent again"
        copies = Counter(_named(record) for record in records)
        repeats = sum(count - 1 for count in copies.values())
        assert verdict.duplicated == repeats
        return repeats

    def _deleted_ms(self) -> dict[Named, float]:
        with connect(self.url, "test") as connection:
            rows: list[tuple[str, bytes, bytes, datetime]] = connection.execute("TABLE deleted").fetchall()
        return {(topic, bytes(key), bytes(message)): at.timestamp() * 1000 for topic, key, message, at in rows}

    def _write(self, writer: int, stop: threading.Event) -> None:
        chance, places = random.Random(writer), defaultdict[tuple[str, bytes], int](int)
        outbox = Outbox("kafka_messages", layout="deimos")
        with connect(self.url, "test") as connection:
            while not stop.wait(chance.uniform(0, 0.03)):
                keys = [(topic, b"%d.%d" % (writer, chance.randrange(KEYS))) for topic in self.names]
                for each in keys:
                    places[each] += 1
                outbox.publish_list(
                    connection, [Message(topic, key=key, value=str(places[topic, key])) for topic, key in keys]
                )
                connection.commit()
                self.committed += [(each, places[each]) for each in keys]


def _named(record: ReadRecord) -> Named:
    return record.topic, record.key or b"", record.value or b""


NewCrew = Callable[..., Crew]


@pytest.fixture
def new_crew(
    postgres_url: str, kafka_bootstrap: str, unique: str, tmp_path: Path, eventually: Eventually
) -> Iterator[NewCrew]:
    """Creates the processes on the session's servers, and stops them after the test."""
    crews: list[Crew] = []

    def set_up(**options: Any) -> Crew:
        crews.append(Crew(postgres_url, kafka_bootstrap, unique, tmp_path, eventually, **options))
        return crews[-1]

    yield set_up
    for crew in crews:
        crew.stop()


def kill_in_turn(crew: Crew, processes: int, rounds: int) -> None:
    crew.start(processes)
    with crew.load():
        crew.wait_for_progress()
        for _ in range(rounds):
            for process in crew.processes:
                process.kill()
                crew.wait_for_progress()
                process.start()
        crew.wait_for_progress()
    crew.wait_for_progress()
    crew.stop()
    repeats = crew.check(crew.records())
    most = rounds * processes * crew.workers * crew.batch_size
    assert repeats <= most, "a killed worker repeats the batch that it had in hand, and no more"
    print(f"\n{len(crew.committed)} committed, {rounds * processes} kills, {repeats} repeats")  # noqa: T201
    assert exceeded_rows(crew.settings) == []


@pytest.mark.timeout(150)
def test_killed_processes_lose_nothing_and_repeat_only_what_they_had_not_deleted(new_crew: NewCrew) -> None:
    kill_in_turn(new_crew(), processes=4, rounds=1)


@pytest.mark.fault
@pytest.mark.timeout(600)
def test_the_same_five_times_over(new_crew: NewCrew) -> None:
    kill_in_turn(new_crew(), processes=4, rounds=5)


@injects("SIGSTOP of a relay or a job, beyond its time-outs")
def freeze(crew: Crew, seconds: float) -> None:
    """Freezes the first process with a batch in hand, for longer than its lock holds, until another takes over."""
    first = crew.processes[0]
    stamped = "SELECT count(*) FROM kafka_messages WHERE session_id IS NOT NULL"

    def frozen_with_a_batch() -> bool:
        first.pause()
        # A statement that it sent just before has ended by the next check.
        if crew.ask(stamped) and not threading.Event().wait(0.3) and crew.ask(stamped):
            return True
        first.resume()
        return False

    crew.eventually(frozen_with_a_batch, PROGRESS_SECONDS)
    threading.Event().wait(seconds)
    crew.start(1)
    crew.wait_for_progress()
    first.resume()


def survive_a_freeze(crew: Crew, seconds: float) -> None:
    crew.start(1)
    with crew.load():
        crew.wait_for_progress()
        freeze(crew, seconds)
        crew.eventually(lambda: "relay.fenced" in crew.processes[0].log_path.read_text(), PROGRESS_SECONDS)
        crew.wait_for_progress()
    crew.wait_for_progress()
    crew.stop()
    records = crew.records()
    verdict = check_delivery(
        crew.committed, [((record.topic, record.key), int(record.value or b"0")) for record in records]
    )
    assert (verdict.lost, verdict.out_of_order, verdict.phantom) == (0, 0, 0), verdict
    assert verdict.duplicated <= crew.workers * crew.batch_size


@pytest.mark.timeout(150)
def test_a_frozen_process_whose_lock_was_stolen_notices_when_it_wakes(new_crew: NewCrew) -> None:
    survive_a_freeze(new_crew(topics=1, workers=1), 3)


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_the_same_with_a_lock_of_a_minute(new_crew: NewCrew) -> None:
    survive_a_freeze(new_crew(topics=1, workers=1, lock_seconds=60), 70)
