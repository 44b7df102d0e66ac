"""Generations of a topic: which Kafka topic carries its records now, which ones did before, and where those end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from inorder.model.errors import PermanentError


class CopiedTopics(NamedTuple):
    """Kafka's ids of the topics of a copy; None where it does not exist, or the brokers have no ids."""

    source_id: str | None
    destination_id: str | None


UNKNOWN_TOPICS: Final = CopiedTopics(None, None)


class Phase(StrEnum):
    """The phases of a switch; `topics/switch.py` explains them."""

    STEADY = "steady"
    PREPARING = "preparing"
    CLOSING = "closing"
    MEASURING = "measuring"


@dataclass(frozen=True, slots=True)
class Generation:
    """One Kafka topic in the life of a topic. The name that publishers use is that of generation 0."""

    number: int
    topic: str
    """The Kafka topic that holds the records of this generation, and of no other."""
    partitions: int
    ends: tuple[int, ...] | None = None
    """For each partition the offset after its last record, once nothing more is written; None while it is open."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will be written to it."""
        return self.ends is not None


@dataclass(frozen=True, slots=True)
class Target:
    """The Kafka topic of the next generation."""

    topic: str
    partitions: int

    def __str__(self) -> str:
        return f"{self.topic!r} with {self.partitions} partitions"


@dataclass(frozen=True, slots=True)
class TopicState:
    """The generations of a topic, and the switch that is under way. All generations but the last are closed."""

    topic: str
    generations: tuple[Generation, ...]
    phase: Phase = Phase.STEADY
    target: Target | None = None
    """What it is being switched to; None while it is steady."""
    epoch: int = 1
    """Counts changes, from 1: the higher of two states is the newer one."""

    @property
    def current(self) -> Generation:
        """The generation that publishers write to, unless it is just being closed."""
        return self.generations[-1]

    @property
    def takes_records(self) -> bool:
        """Whether publishers may write to the current generation."""
        return self.phase in (Phase.STEADY, Phase.PREPARING)


def own_topics(topic: str, state: TopicState | None) -> set[str]:
    """The Kafka topics of a topic, which has one generation where there is no state."""
    return {topic} if state is None else {each.topic for each in state.generations}


class TopicGenerations(Protocol):
    """The authority: the state of every topic that was ever switched, in the database."""

    def read(self, topic: str) -> TopicState | None:
        """The state of one topic; None while it has its first generation only."""

    def read_all(self) -> Sequence[TopicState]:
        """The states of all topics, in the order of their names."""

    def replace(self, state: TopicState) -> bool:
        """Writes a state if the one before it, by its epoch, is there (or none, for epoch 1).

        Returns False where another state is there: another operator was faster, or the answer to our own write was
        lost. Read again.
        """


class TopicMirror(Protocol):
    """A copy of all states in a compacted topic, for publishers that cannot read the database."""

    def epoch(self, topic: str) -> int:
        """The epoch that all readers can see; 0 if the topic is not there."""

    def write(self, authority: TopicGenerations, topic: str) -> None:
        """Copies the *present* state of the authority. Of concurrent writers the last one copies the newest state."""


class TopicCluster(Protocol):
    """What a switch needs of the Kafka cluster."""

    def partitions(self, topic: str) -> int | None:
        """The number of partitions of a Kafka topic; None where it does not exist."""

    def is_empty(self, topic: str) -> bool:
        """Whether it never held a record."""

    def make(self, target: Target, like: str) -> None:
        """Creates a topic with the settings of another one, unless it exists."""

    def ends(self, topic: str, partitions: int) -> tuple[int, ...] | None:
        """For each partition the offset after its last committed record; None while a transaction is open in one."""


class Fences(Protocol):
    """Stops writers that still use an earlier state."""

    def __call__(self) -> object:
        """Ends the term of every relay shard of the database; a new term reads the routes behind its own fence."""


Pointers = Mapping[int, int]
"""The offset by partition below which all records are applied."""


def encode(state: TopicState) -> str:
    """Renders a state as JSON, the same in the database and in the mirror."""
    return json.dumps(asdict(state))


def decode(text: str | bytes) -> TopicState:
    try:
        found = json.loads(text)
        generations = tuple(_generation(**each) for each in found["generations"])
        target = None if found["target"] is None else _target(**found["target"])
        if not generations:
            raise ValueError("no generation")
        return TopicState(_name(found["topic"]), generations, Phase(found["phase"]), target, _count(found["epoch"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PermanentError(
            f"The generations of a topic cannot be decoded: {text[:_SHOWN]!r}.",
            hint="Was it written by a newer version of inorder?",
        ) from error


_SHOWN = 300
_MOST = 2**63 - 1


def _generation(number: int, topic: str, partitions: int, ends: list[int] | None) -> Generation:
    known = None if ends is None else tuple(map(_count, ends))
    return Generation(_count(number), _name(topic), _count(partitions), known)


def _target(topic: str, partitions: int) -> Target:
    return Target(_name(topic), _count(partitions))


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("the name of a topic")
    return value


def _count(value: object) -> int:
    # A bool is an int for Python, but not in JSON.
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError("a number")
    return value
