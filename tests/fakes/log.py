"""A broker in memory, with fences and transactions or without, for simulations; Kafka passes the same contract."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from inorder.kafka.shard_log import Delivered, Delivery, Incomplete
from inorder.model.errors import FencedError, RejectedError, TopicUnavailableError, TransientError, UnknownOutcomeError
from inorder.model.message import OutboxRow
from inorder.topics.generations import Target, TopicGenerations, TopicState

IDS = "ab"
"""The transactional ids of the one shard that writes, in the order in which they are taken over and used."""


@dataclass
class MemoryBroker:
    """What is committed, the newest epoch of each transactional id, and the unavailable topics."""

    records: list[OutboxRow] = field(default_factory=list)
    marker: bytes | None = None
    epochs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(IDS, 0))
    unavailable: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def commit(self, id: str, epoch: int, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        """Makes rows and marker visible together, unless a newer owner has taken the id."""
        with self.lock:
            if epoch != self.epochs[id]:
                raise FencedError("A newer owner has taken the shard over.")
            if error := self._unavailable(rows):
                return Incomplete(error)
            self.records.extend(rows)
            self.marker = marker
        return Delivered()

    def take(self, rows: Sequence[OutboxRow]) -> Delivery:
        """Makes rows visible for any sender, except those of an unavailable topic."""
        with self.lock:
            arrived = [row for row in rows if row.topic not in self.unavailable]
            self.records.extend(arrived)
            if error := self._unavailable(rows):
                return Incomplete(error, frozenset(row.id for row in arrived))
        return Delivered()

    def fence(self, id: str) -> int:
        """A new epoch for one id."""
        with self.lock:
            self.epochs[id] += 1
            return self.epochs[id]

    def _unavailable(self, rows: Sequence[OutboxRow]) -> TopicUnavailableError | None:
        topic = next((row.topic for row in rows if row.topic in self.unavailable), None)
        return None if topic is None else TopicUnavailableError(topic, f"Topic {topic!r} cannot be written to.")


def failed(error: Exception) -> Incomplete:
    """How a log reports an error: most are returned, those that end a term are raised."""
    if isinstance(error, FencedError | UnknownOutcomeError) or not isinstance(error, RejectedError | TransientError):
        raise error
    return Incomplete(error)


class MemoryShardLog:
    """One owner's producer."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._epochs: dict[str, int] = {}
        self._turn = 0

    def take_over(self) -> bytes | None:
        """Fences the earlier owner, one id after the other, and reads the marker then."""
        self._turn = 0
        self._epochs = {id: self._broker.fence(id) for id in IDS}
        return self._broker.marker

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        """Commits, or raises `FencedError`; the ids take turns."""
        if not self._epochs:
            raise UnknownOutcomeError("The shard was not taken over.")
        id = IDS[self._turn]
        delivery = self._broker.commit(id, self._epochs[id], rows, marker)
        if isinstance(delivery, Delivered):
            self._turn = 1 - self._turn
        return delivery

    def close(self) -> None:
        """Must take over again before it can publish."""
        self._epochs = {}


class MemoryUnfencedLog:
    """One of perhaps many producers without a fence; it keeps no marker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._is_owner = False

    def take_over(self) -> bytes | None:
        """Fences nothing."""
        self._is_owner = True
        return None

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:  # noqa: ARG002 - the port's signature
        """Delivers all rows."""
        if not self._is_owner:
            raise UnknownOutcomeError("The shard was not taken over.")
        return self._broker.take(rows)

    def close(self) -> None:
        """Must take over again before it can publish."""
        self._is_owner = False


# Generations of topics in memory, for simulations: the authority, its mirror, and a cluster of topics.


class MemoryGenerations:
    """The authority, or its mirror; the databases' pass the same contract suite."""

    def __init__(self) -> None:
        self._states: dict[str, TopicState] = {}

    def read(self, topic: str) -> TopicState | None:
        """The state of one topic."""
        return self._states.get(topic)

    def read_all(self) -> Sequence[TopicState]:
        """All states."""
        return [self._states[topic] for topic in sorted(self._states)]

    def replace(self, state: TopicState) -> bool:
        """Compares the epochs and sets."""
        known = self._states.get(state.topic)
        if (0 if known is None else known.epoch) != state.epoch - 1:
            return False
        self._states[state.topic] = state
        return True

    def close(self) -> None:
        """Nothing to close."""


class MemoryMirror:
    """The mirror's writer, and its readers' states."""

    def __init__(self) -> None:
        self._states: dict[str, TopicState] = {}

    def epoch(self, topic: str) -> int:
        """The epoch that is mirrored."""
        return self._states[topic].epoch if topic in self._states else 0

    def write(self, authority: TopicGenerations, topic: str) -> None:
        """Copies what the authority says."""
        state = authority.read(topic)
        if state is not None:
            self._states[topic] = state

    def read_all(self) -> Sequence[TopicState]:
        """All states."""
        return list(self._states.values())

    def close(self) -> None:
        """Nothing to close."""


@dataclass
class MemoryTopics:
    """Kafka topics as lists of records, a list a partition."""

    topics: dict[str, list[list[tuple[str, int]]]] = field(default_factory=dict)
    looks_in_transaction: int = 0
    """How many more looks find a transaction open."""

    def partitions(self, topic: str) -> int | None:
        """How many there are."""
        return len(self.topics[topic]) if topic in self.topics else None

    def is_empty(self, topic: str) -> bool:
        """Whether there is no record."""
        return not any(self.topics[topic])

    def make(self, target: Target, like: str) -> None:  # noqa: ARG002 - settings are not kept here
        """Makes it unless it is there."""
        self.topics.setdefault(target.topic, [[] for _ in range(target.partitions)])

    def ends(self, topic: str, partitions: int) -> tuple[int, ...] | None:
        """How long each partition is, once no transaction is open."""
        if self.looks_in_transaction:
            self.looks_in_transaction -= 1
            return None
        return tuple(len(self.topics[topic][partition]) for partition in range(partitions))

    def send(self, topic: str, key: str, place: int) -> None:
        """Appends a record where its key lives."""
        partitions = self.topics[topic]
        partitions[sum(key.encode()) % len(partitions)].append((key, place))
