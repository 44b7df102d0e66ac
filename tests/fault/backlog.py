"""A topic of journals without a day of replication, and the expected state of each journal.

The model keeps a few numbers per journal, so that a million actions fit into a test.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from inorder.journal.action import Action, Delete, Mark, Purge
from inorder.journal.codec import RecordSender, action_record, append_record
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key, PayloadMetadata, RecordMetadata
from inorder.model.message import Limits, Record
from inorder.model.partitioning import Partitioner, partition_of

PARTITIONS = 4
HOT = tuple(f"hot-{number}" for number in range(PARTITIONS))
DAY = timedelta(days=1)
ACTIONS_A_JOURNAL = 20
SENDER = RecordSender("writer", "1")
PAYLOAD = "x" * 60


@dataclass(slots=True)
class Told:
    """The state of one journal by the topic; places are (seq_nr, offset), consecutive in one array."""

    pointer: int | None = None
    is_begun: bool = False
    delete_to: int = 0
    expire_after: timedelta | None = None
    places: array[int] = field(default_factory=lambda: array("q"))

    @property
    def end(self) -> int:
        return (self.pointer or 0) if self.is_begun else 0

    def events(self) -> list[tuple[int, int]]:
        """The events that a reader sees."""
        places = zip(self.places[::2], self.places[1::2], strict=True)
        return [(seq_nr, offset) for seq_nr, offset in places if seq_nr > self.delete_to]

    def append(self, seq_nrs: range, offset: int, expire_after: timedelta | None) -> None:
        counted = [seq_nr for seq_nr in seq_nrs if seq_nr > self.end]
        if not counted:
            return
        if not self.is_begun:
            self.delete_to = min(self.delete_to, counted[0] - 1)
        self.is_begun, self.pointer, self.expire_after = True, counted[-1], expire_after
        for seq_nr in counted:
            self.places.extend((seq_nr, offset))

    def delete(self, to: int) -> None:
        if self.is_begun:
            self.delete_to = max(self.delete_to, min(to, self.end))
        else:
            self.delete_to = self.pointer = max(self.delete_to, to)


@dataclass(slots=True)
class Backlog:
    """Writes actions to a topic and models their result."""

    properties: Mapping[str, Any]
    topic: str
    actions: int
    seed: int = 1
    told: dict[str, Told] = field(default_factory=dict)
    ever: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Of the sampled journals: all events that were ever valid."""
    sampled: tuple[str, ...] = ()
    _ends: Counter[int] = field(default_factory=Counter)

    def write(self, sample: int) -> None:
        """Fills the topic; records everything for some journals, and for all hot ones."""
        ensure_topic(self.properties, self.topic, PARTITIONS)
        chance, journals = Random(self.seed), max(1, self.actions // ACTIONS_A_JOURNAL)
        self.sampled = (*HOT, *(f"id-{number}" for number in chance.sample(range(journals), min(sample, journals))))
        self.ever = {id: [] for id in self.sampled}
        producer = Producer({**self.properties, "enable.idempotence": True, "linger.ms": 20})
        for record, partition in self._records(chance, journals):
            self._produce(producer, record, partition)
        assert producer.flush(60) == 0

    def expectations(self) -> dict[str, Any]:
        """For each sampled journal its end, its events, and all events that it ever had."""
        return {
            id: {"pointer": self.of(id).pointer, "events": self.of(id).events(), "ever": self.ever[id]}
            for id in self.sampled
        }

    def of(self, id: str) -> Told:
        return self.told.get(id, Told())

    def _records(self, chance: Random, journals: int) -> Iterator[tuple[Record, int]]:
        began = datetime.now(UTC) - DAY
        for number in range(self.actions):
            id = chance.choice(HOT) if chance.random() < 0.1 else f"id-{chance.randrange(journals)}"
            partition = partition_of(id.encode(), PARTITIONS, Partitioner.MURMUR2) or 0
            record = self._act(chance, id, self._ends[partition], began + DAY * number / self.actions)
            self._ends[partition] += 1
            yield record, partition

    def _act(self, chance: Random, id: str, offset: int, now: datetime) -> Record:
        told, key = self.told.setdefault(id, Told()), Key(id, self.topic)
        action: Action
        match chance.random():
            case dice if dice < 0.85:
                return self._append(chance, told, key, offset, now)
            case dice if dice < 0.93:
                # Hot journals stay long; others may delete more than they have.
                to = chance.randint(1, max(1, told.end // 10) if id in HOT else told.end + 2)
                told.delete(to)
                action = Delete(to, *SENDER)
            case dice if dice < 0.95 and id not in HOT:
                self.told[id] = Told()
                action = Purge(*SENDER)
            case _:
                action = Mark(f"mark {offset}", *SENDER)
        return action_record(key, action, now, Limits())

    def _append(self, chance: Random, told: Told, key: Key, offset: int, now: datetime) -> Record:
        first = max(1, told.end + chance.choices((1, 3, 0, -1), (90, 4, 3, 3))[0])  # the next, a gap, forks
        seq_nrs = range(first, first + chance.randint(1, 3))
        expire_after = chance.choice((None, None, None, DAY, 30 * DAY))
        before = told.end
        told.append(seq_nrs, offset, expire_after)
        if key.id in self.ever:
            self.ever[key.id] += [(seq_nr, offset) for seq_nr in seq_nrs if seq_nr > before]
        about = RecordMetadata(payload=PayloadMetadata(expire_after))
        events = [Event(seq_nr, PAYLOAD) for seq_nr in seq_nrs]
        return append_record(key, events, now, SENDER, about, {}, Limits())

    def _produce(self, producer: Producer, record: Record, partition: int) -> None:
        while True:
            try:
                producer.produce(
                    self.topic,
                    record.value,
                    record.key,
                    partition,
                    _delivered,
                    timestamp=record.timestamp_ms or 0,
                    headers=list(record.headers),
                )
            except BufferError:
                producer.poll(0.1)
            else:
                return


def _delivered(error: KafkaError | None, _: Message) -> None:
    assert error is None, error
