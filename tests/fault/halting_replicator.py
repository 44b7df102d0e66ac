"""`inorder` whose replicator halts at a given step: `python halting_replicator.py FOLDER pipeline run replicate …`.

A file in FOLDER with the name of a step is a request: the first worker process that reaches that step takes it, leaves
a file with its process id instead and stops itself with SIGSTOP. A test that waits for that file then
knows exactly where the worker is, and kills it, or its driver, or a server, or lets others continue and resumes it.

With `plain CONFIG` in place of a command there is no Spark: one process reads and replicates, as a task of the engine
`resident` does, until it is killed. It starts in a second, so that tests can start many.

Everything else is the unchanged program. Spark pickles the contents of this file by value, because it is the
driver's `__main__`; so it imports nothing of the tests.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import inorder.journal.jobs
from inorder.cli.main import main
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.slice_work import SliceWorker
from inorder.engines.survey import survey
from inorder.journal.replication.job import ReplicateWork
from inorder.journal.replication.store_port import JournalChange, JournalReplica, ReplicaSlice
from inorder.journal.service import journal_topics
from inorder.journal.stores.opening import JournalReplicas
from inorder.kafka.admin import Cluster
from inorder.model.errors import TransientError
from inorder.settings import Settings

STEPS = ("before-events", "after-events", "after-head", "before-pointer", "after-pointer", "after-commit")
"""The steps of a slice that changes something; a store with transactions makes nothing visible before the last."""

BETWEEN_HEADS = "between-heads"
"""A step of a slice with several journals, in stores that write heads one by one."""


@dataclass(frozen=True)
class HaltingReplicas:
    """Opens replicas that halt, in the process that calls it."""

    url: str
    folder: str

    def __call__(self) -> JournalReplica:
        statements = _Statements(_Halts(self.folder))
        _listen_to_drivers(self.url, statements)
        return _Replica(JournalReplicas(self.url)(), statements)


class _Halts:
    """The requests in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, step: str) -> None:
        try:
            Path(self._folder, step).rename(Path(self._folder, f"halted.{os.getpid()}"))
        except FileNotFoundError:
            return
        # To this thread: another one could take the signal, and this one would continue for a moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class _Statements:
    """Derives from the statements sent to the store how far a slice is."""

    def __init__(self, halts: Callable[[str], None]) -> None:
        self.halts = halts
        self.is_carrying_out = False
        self._heads = 0

    def begin(self) -> None:
        self.is_carrying_out, self._heads = True, 0

    def hear(self, text: str) -> None:
        if self.is_carrying_out and "metajournal" in text:
            self._heads += 1
            self.halts("after-events" if self._heads == 1 else "between-heads")


class _Replica:
    def __init__(self, replica: JournalReplica, statements: _Statements) -> None:
        self._replica = replica
        self._statements = statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica, name)

    @contextmanager
    def slice(self, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        with self._replica.slice(topic, partition) as writing:
            halting = _Slice(writing, self._statements)
            yield halting
        if halting.has_moved:
            self._statements.halts("after-commit")

    def offsets(self, topic: str) -> Mapping[int, int]:
        return self._replica.offsets(topic)

    def close(self) -> None:
        self._replica.close()


class _Slice:
    def __init__(self, writing: ReplicaSlice, statements: _Statements) -> None:
        self._writing: Any = writing
        self._statements = statements
        self.has_moved = False
        self._changes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writing, name)

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        self._changes += len(changes)
        self._halt("before-events")
        self._statements.begin()
        try:
            self._writing.carry_out(changes)
        finally:
            self._statements.is_carrying_out = False
        self._halt("after-head")

    def move_offset(self, offset: int, topic_id: str | None = None) -> None:
        self._halt("before-pointer")
        self._writing.move_offset(offset, topic_id)
        self.has_moved = bool(self._changes)
        self._halt("after-pointer")

    def _halt(self, step: str) -> None:
        if self._changes:
            self._statements.halts(step)


def _listen_to_drivers(url: str, statements: _Statements) -> None:
    """Observes every statement of this process before it is sent."""
    driver, name = _driver(url)
    plain = getattr(driver, name)
    if (listeners := getattr(plain, "listeners", None)) is not None:
        listeners.append(statements)  # another replica of this process has done it
        return

    def heard(self: Any, statement: Any, *given: Any, **named: Any) -> Any:
        for each in heard.listeners:  # type: ignore[attr-defined]  # set below
            each.hear(_text(self, statement))
        return plain(self, statement, *given, **named)

    heard.listeners = [statements]  # type: ignore[attr-defined]  # an attribute of the function
    setattr(driver, name, heard)


def _text(session: Any, statement: Any) -> str:
    """The text of a statement, or of all statements in a request."""
    if isinstance(statement, str):
        return statement
    if (together := getattr(statement, "_statements_and_parameters", None)) is not None:
        texts = {session.cluster._prepared_statements[id].query_string for _, id, _ in together}
        return " ".join(texts)
    statement = getattr(statement, "prepared_statement", statement)
    return getattr(statement, "query_string", None) or ""


def _driver(url: str) -> tuple[type, str]:
    """The class and the method that send statements of a store."""
    if url.startswith("cassandra"):
        from cassandra.cluster import Session

        return Session, "execute_async"
    from psycopg import Connection

    return Connection, "execute"


def replicate_plainly(settings: Settings, replicas: HaltingReplicas) -> None:
    """Replicates existing and new records without end; retries after failures of the environment."""
    topics = journal_topics(Cluster(settings.kafka.properties), settings.journal.topic_prefixes)
    work = ReplicateWork(topics, replicas, settings.journal.segment_size)
    source, pause = KafkaSource(dict(settings.kafka.properties)), threading.Event()
    while True:
        try:
            with closing(work.open()) as worker:
                _replicate(work, worker, source)
        except TransientError as error:
            print(f"waits: {error}", flush=True)  # noqa: T201 its log
            pause.wait(0.2)


def _replicate(work: ReplicateWork, worker: SliceWorker, source: KafkaSource) -> None:
    found = survey(work, source)
    starts = {place: found.pointers.get(place) for place in found.places}
    expected = dict(found.pointers)
    with closing(source.open(starts, headers=True)) as reader:
        while True:
            for batch in reader.read(1000, 0.1).slices:
                place = batch.topic, batch.partition
                expected[place] = worker.apply(batch, expected.get(place, 0)).next_offset


if __name__ == "__main__":
    given = sys.argv.pop(1)
    if sys.argv[1] == "plain":
        loaded = Settings.load(Path(sys.argv[2]))
        replicate_plainly(loaded, HaltingReplicas(loaded.journal.store_url(loaded.database), given))
    else:
        # Replaced only here.
        setattr(inorder.journal.jobs, "JournalReplicas", partial(HaltingReplicas, folder=given))  # noqa: B010
        sys.exit(main())
