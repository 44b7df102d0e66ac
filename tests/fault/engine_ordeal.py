"""A topic under load, engines that apply it, and a witness that compares table and pointers in one snapshot.

Every round sends one record of each key, every value new, keys of a partition always in the same order. So the offset
of a record identifies it, and a pointer determines which version each row must have: that of the last record
of its key below the pointer. An older version means that the pointer passed a record; a newer one, that a row was
written without its pointer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import KafkaError, Message, Producer
from psycopg import Connection, IsolationLevel
from sqlalchemy.engine import make_url

from inorder.engines.running import Engine
from tests.conftest import Eventually
from tests.fakes.table_store import message
from tests.fault.processes import kill, python_workers
from tests.injections import injects, recovers
from tests.integration.pipeline.engines import SPARK_WAIT

PARTITIONS = 2
KEYS = 20
PER_PARTITION = KEYS // PARTITIONS
TOPIC_PAUSE_SECONDS = 0.02

_SETTINGS = """\
[kafka]
"bootstrap.servers" = "{bootstrap}"
[database]
url = "{url}"
[pipeline]
engine = "{engine}"
master = "{master}"
[pipeline.upsert]
topic = "{topic}"
{more}
"""
_VERSIONS = "SELECT id, version_offset, data FROM messages"
_POINTERS = 'SELECT "partition", next_offset FROM inorder_pointer'
_FIGURES = """
SELECT coalesce(sum(records_applied), 0)::int,
       coalesce(sum(records_identical + records_stale + records_rejected), 0)::int
FROM inorder_pointer
"""


@dataclass
class Stage:
    """One topic and one database."""

    bootstrap: str
    topic: str
    url: str
    eventually: Eventually
    more: str = ""
    """Further settings, in TOML."""
    rounds: int = 0
    findings: list[str] = field(default_factory=list)
    looks: int = 0

    def settings(self, folder: Path, engine: str = "micro-batch", master: str = "local[2,4]") -> Path:
        """Writes the settings file of a service that fills the table."""
        config = folder / "inorder.toml"
        words = {"bootstrap": self.bootstrap, "url": self.url, "topic": self.topic, "more": self.more}
        config.write_text(_SETTINGS.format(engine=engine, master=master, **words))
        return config

    def send(self, rounds: int, producer: Producer | None = None) -> None:
        """Sends the given number of records of each key."""
        producer, lost = producer or self._producer(), list[str]()

        def report(error: KafkaError | None, _record: Message) -> None:
            if error is not None:
                lost.append(error.str())

        for number in range(self.rounds, self.rounds + rounds):
            for key in range(KEYS):
                value, partition = message(key, data=f"{number}"), key % PARTITIONS
                producer.produce(self.topic, value, str(key), partition, on_delivery=report)
        assert producer.flush(60) == 0
        assert not lost, f"the test's own records did not arrive: {lost[:3]}"
        self.rounds += rounds

    @contextmanager
    def load(self) -> Iterator[None]:
        """Sends rounds with short pauses for the duration of the block."""
        stop, producer = threading.Event(), self._producer()

        def send_rounds() -> None:
            while not stop.wait(TOPIC_PAUSE_SECONDS):
                self.send(1, producer)

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send_rounds)
            try:
                yield
            finally:
                stop.set()
            sending.result()

    @contextmanager
    def witness(self) -> Iterator[None]:
        """Checks the table for the duration of the block; a difference fails the test."""
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(self._look_on, stop)
            try:
                yield
            finally:
                stop.set()
            looking.result()
        assert not self.findings, self.findings[:5]
        assert self.looks > 0

    def connect(self) -> Connection[Any]:
        """A database session for the test itself."""
        url = make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.connect(url, autocommit=True)

    def applied(self) -> tuple[int, int]:
        """Records applied, and records with any other outcome, by the counters in the pointer rows."""
        with self.connect() as connection:
            row = connection.execute(_FIGURES).fetchone()
        return (row[0], row[1]) if row else (0, 0)

    def pointers(self) -> dict[int, int]:
        """The pointer of each partition."""
        with self.connect() as connection:
            return dict(connection.execute(_POINTERS).fetchall())

    def wait_for_beginning(self) -> None:
        """Waits until something has been applied, perhaps before the call."""
        self.eventually(lambda: self.applied()[0] > 0, SPARK_WAIT)

    @recovers
    def wait_for_progress(self, records: int = 1) -> None:
        """Waits until the given number more have been applied; needs a running load."""
        before = self.applied()[0]
        self.eventually(lambda: self.applied()[0] >= before + records, SPARK_WAIT)

    @recovers
    def verify(self) -> None:
        """Waits until everything that was sent is applied, and compares: each record once, each row the newest."""
        self.eventually(lambda: self.applied()[0] >= KEYS * self.rounds, SPARK_WAIT)
        assert self.applied() == (KEYS * self.rounds, 0)
        with self.connect() as connection:
            rows = connection.execute("SELECT id, data FROM messages ORDER BY id").fetchall()
        assert rows == [(key, f"{self.rounds - 1}") for key in range(KEYS)]

    @injects("database sessions ended by the server")
    def end_sessions(self) -> None:
        """Terminates every database session of the pipeline, in the middle of its work."""
        with self.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'inorder pipeline' AND datname = current_database()"
            )

    def sessions(self) -> int:
        """How many database sessions the pipeline has."""
        with self.connect() as connection:
            row = connection.execute(
                "SELECT count(*)::int FROM pg_stat_activity"
                " WHERE application_name = 'inorder pipeline' AND datname = current_database()"
            ).fetchone()
        return row[0] if row else 0

    def _producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})

    def _look_on(self, stop: threading.Event) -> None:
        with self.connect() as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            while not stop.wait(0.01):
                with connection.transaction():
                    pointers = dict(connection.execute(_POINTERS).fetchall())
                    rows = connection.execute(_VERSIONS).fetchall()
                self.findings += disagreements(pointers, rows)
                self.looks += 1


def disagreements(pointers: dict[int, int], rows: Sequence[tuple[int, int, str]]) -> list[str]:
    """The rows that differ from the fold of the records below the pointers."""
    found = {key: (offset, data) for key, offset, data in rows}
    wrong = []
    for key in range(KEYS):
        pointer = pointers.get(key % PARTITIONS, 0)
        place = key // PARTITIONS
        rounds = (pointer - place + PER_PARTITION - 1) // PER_PARTITION
        expected = None if rounds <= 0 else ((rounds - 1) * PER_PARTITION + place, f"{rounds - 1}")
        if found.get(key) != expected:
            wrong.append(f"key {key}: {found.get(key)} with the pointer at {pointer}, not {expected}")
    return wrong


@contextmanager
def running(*engines: Engine) -> Iterator[list[Future[None]]]:
    """Runs engines for the duration of the block; the future of each has its result."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(engines)) as pool:
        futures = [pool.submit(engine.run, stop) for engine in engines]
        try:
            yield futures
        finally:
            stop.set()


def kill_worker(jvm: int, number: int) -> bool:
    """Kills one of Spark's Python workers with SIGKILL; returns whether there was one."""
    workers = python_workers(jvm)
    if workers:
        kill(workers[number % len(workers)])
    return bool(workers)
