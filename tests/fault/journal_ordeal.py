"""Journals that are written, read and replicated while replicators and servers are killed."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import inorder
from inorder.embedded.stack import Program
from inorder.journal.stores.opening import JournalStore, open_journal_store
from inorder.kafka.admin import Cluster, ensure_topic
from inorder.model.errors import InorderError, JournalChangedError, TransientError
from inorder.settings import Settings
from tests.conftest import Eventually
from tests.fault import halting_replicator
from tests.fault.journal_writing import Ledger, Watcher, Writer, watching
from tests.fault.processes import executor_of, executors, is_alive, is_stopped, kill
from tests.injections import INJECTIONS, recovers

PARTITIONS = 2
SEGMENT_SIZE = 3
WAIT_SECONDS = 240.0
"""Timeout of a step: Spark drivers start beside a writer and readers, perhaps on two cores."""
PLAIN = "plain"
"""Instead of an engine: a process without Spark."""

_SETTINGS = """\
[kafka]
"bootstrap.servers" = "{bootstrap}"
[journal]
store = "{store}"
topic_prefixes = ["{topic}"]
segment_size = {segment_size}
[pipeline]
master = "{master}"
"""


class Replicator(Program):
    """The job `replicate` in a separate process, with workers that halt at given steps."""

    def __init__(self, name: str, config: Path, engine: str, eventually: Eventually) -> None:
        self._halts = config.parent / f"{name}.halts"
        self._halts.mkdir(exist_ok=True)
        self._eventually = eventually
        self._is_alone = engine == PLAIN
        job = ["pipeline", "run", "replicate", "--engine", engine, "--config", str(config)]
        command = ["plain", str(config)] if self._is_alone else job
        argv = [sys.executable, halting_replicator.__file__, str(self._halts), *command]
        super().__init__(name, argv, config.parent)

    def kill_worker(self, worker: int) -> None:
        """Kills a worker with SIGKILL; Spark starts another one, and without Spark the test does."""
        kill(worker)
        if self._is_alone:
            self._eventually(self.has_ended)
            self.kill()
            self.start()

    def halt_at(self, step: str) -> int:
        """Waits until a worker has stopped at the step; returns its process."""
        (self._halts / step).touch()
        self._eventually(lambda: self.has_ended() or self._halted(), WAIT_SECONDS)
        self.check()
        (note,) = self._halts.glob("halted.*")
        note.unlink()
        worker = int(note.suffix.removeprefix("."))
        self._eventually(lambda: is_stopped(worker), WAIT_SECONDS)
        return worker

    def _halted(self) -> bool:
        return any(self._halts.glob("halted.*"))


def wake(process: int) -> None:
    """Resumes it."""
    with suppress(ProcessLookupError):  # its driver was killed, and the worker ended with it
        os.kill(process, signal.SIGCONT)


@dataclass
class JournalStage:
    """One topic, one store, and the processes that use them."""

    bootstrap: str
    topic: str
    store_url: str
    folder: Path
    eventually: Eventually
    seed: int = 1
    master: str = "local[2,4]"
    ledger: Ledger = field(default_factory=Ledger)
    replicators: list[Replicator] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ensure_topic(self.kafka, self.topic, PARTITIONS)
        self.store: JournalStore = open_journal_store(self.store_url)
        self.store.install()
        self.config = self.folder / "replicate.toml"
        words = {"bootstrap": self.bootstrap, "store": self.store_url, "topic": self.topic, "master": self.master}
        self.config.write_text(_SETTINGS.format(segment_size=SEGMENT_SIZE, **words))

    @property
    def kafka(self) -> Mapping[str, Any]:
        """Properties of Kafka clients."""
        return {"bootstrap.servers": self.bootstrap}

    def settings(self, *, head_cache: bool) -> Settings:
        """The settings of a reader."""
        return Settings.load(self.config, journal={"head_cache": head_cache})

    def start(self, engine: str = PLAIN) -> Replicator:
        """Starts one more replicator, without Spark if no engine is given."""
        found = Replicator(f"replicator-{len(self.replicators)}", self.config, engine, self.eventually)
        found.start()
        self.replicators.append(found)
        return found

    @contextmanager
    def load(self, *puts_up_with: type[InorderError]) -> Iterator[Writer]:
        """Runs a writer, and readers with and without a head cache, for the duration of the block.

        The block begins when each reader has read every journal, and the load ends when it has done so again after
        the block: a reader whose session is still reconnecting after a fault would otherwise show nothing.
        """
        with ExitStack() as stack:
            opened = [stack.enter_context(inorder.Journals(self.settings(head_cache=on))) for on in (True, False)]
            writer = Writer(opened[1], self._producer(), self.topic, random.Random(self.seed), self.ledger)
            watchers = [
                Watcher(journals, self.topic, self.ledger, (JournalChangedError, *puts_up_with)) for journals in opened
            ]
            with watching(watchers) as futures, writer.at_work():
                self._wait_for_reads(watchers, futures)
                yield writer
                self._wait_for_reads(watchers, futures)
            self.history += [f"{watcher.rounds} rounds, {watcher.failed} reads failed" for watcher in watchers]

    def _wait_for_reads(self, watchers: Sequence[Watcher], futures: Sequence[Future[None]]) -> None:
        """Waits until each reader has read every journal once more, or has failed, which `watching` raises."""
        enough = [watcher.least_served() + 1 for watcher in watchers]
        self.eventually(
            lambda: (
                any(future.done() for future in futures)
                or all(watcher.least_served() >= count for watcher, count in zip(watchers, enough, strict=True))
            ),
            WAIT_SECONDS,
        )

    def replicated(self) -> int:
        """How many records of all partitions are in the store."""
        return sum(self.pointers())

    def pointers(self) -> list[int]:
        """How many records of each partition are in the store, once it answers."""
        return self.eventually(self._asked_pointers, WAIT_SECONDS)

    def _asked_pointers(self) -> list[int]:
        try:
            offsets = [self.store.offset(self.topic, partition) for partition in range(PARTITIONS)]
        except TransientError:
            return []
        return [0 if offset is None else offset + 1 for offset in offsets]

    def wait_for_others(self, records: int) -> None:
        """Waits until the given number more of every partition are in the store."""
        before = self.pointers()
        self.eventually(
            lambda: all(new >= old + records for new, old in zip(self.pointers(), before, strict=True)), WAIT_SECONDS
        )

    @recovers
    def wait_for_progress(self, records: int = 1) -> None:
        """Waits until the given number more are in the store; fails if a replicator has ended."""
        before = self.replicated()
        self.eventually(lambda: self._is_beyond(before + records), WAIT_SECONDS)
        self.check()

    def wait_for_start(self) -> None:
        """Waits until a record without a journal has passed through every partition."""
        producer = self._producer()
        for partition in range(PARTITIONS):
            producer.produce(self.topic, b"nothing", partition=partition)
        assert producer.flush(60) == 0
        self.wait_for_all()

    def wait_for_all(self) -> None:
        """Waits until everything that is in the topic is in the store."""
        extents = Cluster(self.kafka).extents(self.topic) or {}
        assert len(extents) == PARTITIONS
        self.eventually(lambda: self._is_beyond(sum(extent.end for extent in extents.values())), WAIT_SECONDS)
        self.check()

    def check(self) -> None:
        """Fails when a replicator has ended by itself."""
        for each in self.replicators:
            each.check()

    def _producer(self) -> Producer:
        """A producer for records that belong to no journal, with the partitioner of journals."""
        return Producer({**self.kafka, "partitioner": "murmur2_random"})

    def _is_beyond(self, records: int) -> bool:
        return any(each.has_ended() and each.pid for each in self.replicators) or self.replicated() >= records

    def close(self) -> None:
        """Stops everything."""
        for each in self.replicators:
            each.stop()
        self.store.close()


@contextmanager
def journal_stage(
    bootstrap: str, topic: str, store_url: str, folder: Path, eventually: Eventually, **more: Any
) -> Iterator[JournalStage]:
    """A stage that is removed afterwards and prints its history."""
    stage = JournalStage(bootstrap, topic, store_url, folder, eventually, **more)
    with closing(stage):
        yield stage
    print("", f"seed {stage.seed}", *stage.history, sep="\n  ")  # noqa: T201


def kill_workers(stage: JournalStage, replicator: Replicator, steps: Sequence[str]) -> None:
    """Kills at each step the worker that reaches it."""
    for step in steps:
        replicator.kill_worker(replicator.halt_at(step))
        stage.history.append(f"worker killed {step} with {stage.replicated()} replicated")
        stage.wait_for_progress()


def kill_driver(stage: JournalStage, replicator: Replicator, step: str) -> None:
    """Kills the driver while one of its workers halts at a step, and restarts it."""
    replicator.halt_at(step)
    replicator.kill()
    stage.history.append(f"driver killed {step} with {stage.replicated()} replicated")
    replicator.start()
    stage.wait_for_progress()


def kill_executors(stage: JournalStage, replicator: Replicator, steps: Sequence[str]) -> None:
    """Kills at each step the JVM of the worker that reaches it; the worker must end with it."""
    for step in steps:
        worker = replicator.halt_at(step)
        executor = executor_of(worker)
        assert replicator.pid is not None
        assert executor in executors(replicator.pid)
        kill(executor)
        stage.eventually(lambda worker=worker: not is_alive(worker), WAIT_SECONDS)  # type: ignore[misc]  # bound at once
        stage.history.append(f"executor killed {step} with {stage.replicated()} replicated")
        stage.wait_for_others(1)


def pause_workers(stage: JournalStage, paused: Replicator, steps: Sequence[str]) -> None:
    """Pauses at each step the worker that reaches it until the other replicators have made progress."""
    for step in steps:
        worker = paused.halt_at(step)
        INJECTIONS.note("SIGSTOP of a worker in mid-slice")
        stage.wait_for_others(20)
        stage.history.append(f"worker paused {step}, woken with {stage.replicated()} replicated")
        wake(worker)
        stage.wait_for_progress(50)
