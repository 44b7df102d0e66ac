"""A seeded writer of journals, and readers that read them at the same time; each records what it did and when."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from confluent_kafka import Producer

import inorder
from inorder.journal.action import Condition, Delete, Purge
from inorder.journal.client import Journal
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.life import life_id
from inorder.model.errors import InorderError, JournalChangedError
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset
from inorder.testing.journal_checker import Read, ReadVerdict, Shown, Written, check_journals, moments

WATCHED = tuple(f"journal-{number}" for number in range(6))
DAMAGED = "damaged"
PAUSE_SECONDS = 0.01
"""Pause after each action, and twice as long after each read: replicators need a share of the machine."""


@dataclass
class Ledger:
    """What was written and what was read, by journal."""

    written: dict[str, list[Written]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[str, list[Read]] = field(default_factory=lambda: defaultdict(list))

    def now(self, id: str) -> Shown:
        """What a journal holds after all that was written."""
        return moments(self.written[id])[-1]

    def verdict(self) -> ReadVerdict:
        """The findings of the checker for all reads."""
        return check_journals(self.written, self.reads)


@dataclass
class Writer:
    """The one writer of all journals of a topic; it needs no store."""

    journals: inorder.Journals
    producer: Producer
    topic: str
    chance: random.Random
    ledger: Ledger
    ends: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    began: dict[str, PartitionOffset] = field(default_factory=dict)
    purges: dict[str, Purge] = field(default_factory=dict)
    """The last purge of a journal that named its life."""
    count: int = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Writes with short pauses for the duration of the block."""
        stop = threading.Event()

        def go_on() -> None:
            while not stop.wait(PAUSE_SECONDS):
                self.write(1)

        with ThreadPoolExecutor(1, "writer") as pool:
            working = pool.submit(go_on)
            try:
                yield
            finally:
                stop.set()
            working.result()

    def write(self, actions: int) -> None:
        """Writes the given number of random actions."""
        kinds = [self._append, self._delete, self._purge, self._mark, self._foreign, self._damage]
        for _ in range(actions):
            self.chance.choices(kinds, [70, 14, 9, 2, 4, 1])[0](self.chance.choice(WATCHED))

    def _append(self, id: str) -> None:
        # Gaps only within appends. Before one, the gap counts as deleted if the journal begins in a slice in which a
        # delete covers all earlier appends: `delete_to` then depends on the slice, though no reader sees it.
        numbers = [self.ends[id] + 1]
        for _ in range(self.chance.randrange(4)):
            numbers.append(numbers[-1] + self.chance.choice((1, 1, 1, 3)))
        self.ends[id] = numbers[-1]
        events = [Event(number, f"{id}/{self._next()}", frozenset({"tag"})) for number in numbers]
        note = Written(time.monotonic(), events=tuple((event.seq_nr, str(event.payload)) for event in events))
        place: list[PartitionOffset] = []
        self._noted(
            id, note, lambda: place.append(self._journal(id).append(events, headers={"who": id}, allow_gaps=True))
        )
        self.began.setdefault(id, place[0])
        if id in self.purges and self.chance.random() < 0.2:
            # Sent again: it means the life before, and must do nothing.
            self._send(id, self.purges[id])

    def _delete(self, id: str) -> None:
        # Of two deletes in a row, in one slice, only the one that reaches further is sure to be in the head.
        notes = self.ledger.written[id]
        least = notes[-1].delete_to + 1 if notes else 1
        if least <= self.ends[id]:
            to = self.chance.randint(least, self.ends[id])
            self._noted(id, Written(time.monotonic(), delete_to=to), lambda: self._send(id, Delete(to, "host")))

    def _purge(self, id: str) -> None:
        self.ends[id] = 0
        began, purge = self.began.pop(id, None), Purge("host")
        if began is not None and self.chance.random() < 0.6:
            life = life_id(Key(id, self.topic), began.partition, began.offset)
            purge = self.purges[id] = Purge("host", condition=Condition(life, seen=self._journal(id).mark()))
        self._noted(id, Written(time.monotonic(), is_purge=True), lambda: self._send(id, purge))

    def _mark(self, id: str) -> None:
        self._journal(id).mark()

    def _foreign(self, id: str) -> None:
        self.producer.produce(self.topic, b"no action of ours", id)
        assert self.producer.flush(60) == 0

    def _damage(self, _: str) -> None:
        """A separate journal: damaged, appended to, or purged and so released."""
        match self.chance.randrange(4):
            case 0:
                self._send(DAMAGED, Purge("host"))
            case 1:
                self.producer.produce(self.topic, b"", DAMAGED, headers=[(ACTION_HEADER, b"{")])
                assert self.producer.flush(60) == 0
            case _:
                self._journal(DAMAGED).append([Event(self._next())])

    def _noted(self, id: str, note: Written, act: object) -> None:
        """Recorded before it is sent: a reader may see it before the writer gets the acknowledgement."""
        assert callable(act)
        notes = self.ledger.written[id]
        notes.append(note)
        act()
        notes[-1] = replace(note, acknowledged=time.monotonic())

    def _send(self, id: str, action: Delete | Purge) -> None:
        self.journals.send(Key(id, self.topic), action).result(timeout=60)

    def _journal(self, id: str) -> Journal:
        return self.journals.journal(Key(id, self.topic))

    def _next(self) -> int:
        self.count += 1
        return self.count


@dataclass
class Watcher:
    """Reads all journals, round after round; unexpected errors fail the test."""

    journals: inorder.Journals
    topic: str
    ledger: Ledger
    puts_up_with: tuple[type[InorderError], ...] = (JournalChangedError,)
    rounds: int = 0
    failed: int = 0
    served: Counter[str] = field(default_factory=Counter)

    def least_served(self) -> int:
        """How many reads have succeeded of the journal with the fewest."""
        return min(self.served[id] for id in WATCHED)

    def watch(self, stop: threading.Event) -> None:
        """Runs until `stop` is set."""
        while not stop.is_set():
            for id in WATCHED:
                stop.wait(2 * PAUSE_SECONDS)
                began = time.monotonic()
                with suppress(*self.puts_up_with):
                    self.failed += 1
                    events = shown(self.journals.journal(Key(id, self.topic)).read())
                    self.failed -= 1
                    self.ledger.reads[id].append(Read(began, time.monotonic(), events))
                    self.served[id] += 1
            self.rounds += 1


@contextmanager
def watching(watchers: Sequence[Watcher]) -> Iterator[list[Future[None]]]:
    """Runs watchers for the duration of the block; a future that is done within the block has failed."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(watchers), "watcher") as pool:
        futures = [pool.submit(watcher.watch, stop) for watcher in watchers]
        try:
            yield futures
        finally:
            stop.set()
        for future in futures:
            future.result()


def shown(events: Iterator[EventRecord]) -> Shown:
    """Events in the checker's form."""
    return tuple((event.seq_nr, str(event.event.payload)) for event in events)
