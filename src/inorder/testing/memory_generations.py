"""Generations of topics in memory, for simulations: the authority, its mirror, and a cluster of topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inorder.ports.topic_generations import Target, TopicGenerations, TopicState


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
