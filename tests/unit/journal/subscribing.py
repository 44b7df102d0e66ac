"""A topic with several journals in memory, a subscriber that stores its checkpoint, and what it must have seen."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from inorder.journal.action import Append, Delete, Mark, Purge
from inorder.journal.client import JournalClient
from inorder.journal.codec import RecordSender, action_of, append_record, events_of
from inorder.journal.life import Fork
from inorder.journal.reading.reader import JournalReader
from inorder.journal.subscription import Subscribed, Subscription
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import EventRecord, Key, RecordMetadata
from inorder.model.message import Limits
from inorder.testing.memory_journal import MemoryJournalLog, MemoryJournalStore, MemoryReplicator
from tests.unit.journal.reference import Reference
from tests.unit.journal.world import NOON, event

TOPIC = "journal"
IDS = ("a", "b", "c", "d")
"""Some of them in each of two partitions."""


class Place(NamedTuple):
    """An event by its place in the log."""

    id: str
    partition: int
    offset: int
    seq_nr: int


def place(id: str, record: EventRecord) -> Place:
    return Place(id, record.partition_offset.partition, record.offset, record.seq_nr)


@dataclass
class Topic:
    """One log of some partitions, one store, a replicator that is driven by the test."""

    partitions: int = 2
    log: MemoryJournalLog = field(init=False)
    store: MemoryJournalStore = field(default_factory=MemoryJournalStore)
    replicator: MemoryReplicator = field(init=False)
    journals: JournalClient = field(init=False)
    forks: list[Fork] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = MemoryJournalLog(self.partitions)
        self.replicator = MemoryReplicator(self.log, self.store)
        self.journals = JournalClient(self.log, self.store, JournalReader(self.log, self.store, time.monotonic))

    def append(self, id: str, *seq_nrs: int, is_legacy: bool = False) -> None:
        """Appends events; a legacy append is one of Kafka Journal, without an id."""
        key, events = Key(id, TOPIC), [event(seq_nr) for seq_nr in seq_nrs]
        if is_legacy:
            self.log.send(append_record(key, events, NOON, RecordSender(), RecordMetadata(), {}, Limits()))
        else:
            self.journals.journal(key).append(events)

    def act(self, id: str, action: Delete | Purge | Mark) -> None:
        self.journals.send(Key(id, TOPIC), action).result()

    def replicate(self, partition: int | None = None, *, behind: int = 0, moves_offset: bool = True) -> None:
        for each in range(self.partitions) if partition is None else [partition]:
            end = max(0, self.log.end(TOPIC, each) - behind)
            self.replicator.replicate(TOPIC, each, end, moves_offset=moves_offset)

    def forget(self, partition: int) -> None:
        replicated = self.store.offset(TOPIC, partition)
        if replicated is not None:
            self.log.forget(TOPIC, partition, replicated + 1)

    def subscribe(self, checkpoint: Any = None, **options: Any) -> Subscription:
        options = {"idle_seconds": 0, "on_fork": lambda _, fork: self.forks.append(fork), **options}
        return Subscription(self.log, self.store, TOPIC, time.monotonic, checkpoint=checkpoint, **options)

    def shown(self, checkpoint: Any = None, **options: Any) -> list[tuple[str, int]]:
        """What a subscription shows until nothing more is there."""
        return named(self.subscribe(checkpoint, **options))


def named(events: Iterable[Subscribed]) -> list[tuple[str, int]]:
    return [(each.key.id, each.record.seq_nr) for each in events]


@dataclass
class Subscriber:
    """An application that stores what it has seen and the checkpoint together, and is cut off now and then."""

    topic: Topic
    max_journals: int = 100
    checkpoint: Any = None
    seen: list[Place] = field(default_factory=list)

    def take(self, limit: int | None = None) -> None:
        """Continues from its checkpoint for the given number of events, or for all."""
        events = self.topic.subscribe(self.checkpoint, max_journals=self.max_journals)
        for each in islice(events, limit):
            self.seen.append(place(each.key.id, each.record))
            # It goes through a column of a database.
            self.checkpoint = json.loads(json.dumps(each.checkpoint))

    def check(self) -> None:
        """Everything once and in order, nothing that does not count, all that is left."""
        counted, left = fold(self.topic)
        assert len(set(self.seen)) == len(self.seen)
        assert set(self.seen) <= counted
        assert left <= set(self.seen)
        for id in {each.id for each in self.seen}:
            own = [each for each in self.seen if each.id == id]
            assert own == sorted(own, key=lambda each: (each.offset, each.seq_nr))


def fold(topic: Topic) -> tuple[set[Place], set[Place]]:
    """All events that ever counted, and those that are there at the end."""
    counted: set[Place] = set()
    journals: dict[str, Reference] = {}
    for partition in range(topic.partitions):
        for record in topic.log.records_between(TOPIC, partition, 0, topic.log.end(TOPIC, partition)):
            id = (record.key or b"").decode()
            try:
                action = action_of(record, TOPIC, partition)
            except DamagedRecordError:
                continue
            if action is None:
                continue
            events = events_of(action, record, TOPIC, partition) if isinstance(action, Append) else []
            journal = journals.setdefault(id, Reference(Key(id, TOPIC), partition))
            taken = journal.take(record.offset, action, [each.seq_nr for each in events])
            counted |= {place(id, each) for each in events if each.seq_nr in taken}
    left = {
        Place(id, journal.partition, offset, number)
        for id, journal in journals.items()
        for number, offset in journal.events.items()
    }
    return counted, left
