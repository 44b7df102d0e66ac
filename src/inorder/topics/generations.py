"""Generations of a topic: which Kafka topic carries its records now, which ones did before, and where those end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Protocol

from inorder.model.errors import PermanentError


class Phase(StrEnum):
    """Where a switch stands; `topics/switch.py` tells what each phase means."""

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
    """For each partition the offset behind its last record, once nothing more is written; None while it is open."""

    @property
    def is_closed(self) -> bool:
        """Whether it holds all that it will ever hold."""
        return self.ends is not None


@dataclass(frozen=True, slots=True)
class Target:
    """The Kafka topic that the next generation is to have."""

    topic: str
    partitions: int

    def __str__(self) -> str:
        return f"{self.topic!r} with {self.partitions} partitions"


@dataclass(frozen=True, slots=True)
class TopicState:
    """All that is known of a topic's generations. All but the last one are closed."""

    topic: str
    generations: tuple[Generation, ...]
    phase: Phase = Phase.STEADY
    target: Target | None = None
    """What it is being switched to; None while it is steady."""
    epoch: int = 1
    """Counts changes, from 1: the higher of two states is the newer one."""

    @property
    def current(self) -> Generation:
        """The generation that is written to, unless it is just being closed."""
        return self.generations[-1]

    @property
    def takes_records(self) -> bool:
        """Whether publishers may write to the current generation."""
        return self.phase in (Phase.STEADY, Phase.PREPARING)


class TopicGenerations(Protocol):
    """The authority: the state of every topic that was ever switched, in the database."""

    def read(self, topic: str) -> TopicState | None:
        """The state of one topic; None while it has its first generation only."""

    def read_all(self) -> Sequence[TopicState]:
        """The states of all topics, in the order of their names."""

    def replace(self, state: TopicState) -> bool:
        """Writes a state if the one before it, by its epoch, is there (or none, for epoch 1).

        False where another one is there: somebody else was faster, or we were, and the answer was lost. Read again.
        """


class TopicMirror(Protocol):
    """A copy of all states in a compacted topic, for publishers that cannot ask the database."""

    def epoch(self, topic: str) -> int:
        """The epoch that everybody can read; 0 if the topic is not there."""

    def write(self, authority: TopicGenerations, topic: str) -> None:
        """Copies what the authority says *now*. Of several writers at once the last one copies the newest state."""


class TopicCluster(Protocol):
    """What a switch needs of the Kafka cluster."""

    def partitions(self, topic: str) -> int | None:
        """How many partitions a Kafka topic has; None where there is none of that name."""

    def is_empty(self, topic: str) -> bool:
        """Whether it never held a record."""

    def make(self, target: Target, like: str) -> None:
        """Makes a topic with the settings of another one, unless it is there."""

    def ends(self, topic: str, partitions: int) -> tuple[int, ...] | None:
        """For each partition the offset behind its last committed record; None while a transaction is open in one."""


class Fences(Protocol):
    """Stops whoever still writes by what was true before."""

    def __call__(self) -> object:
        """Ends the term of every relay shard of the database; a new term asks for the routes behind its own fence."""


Pointers = Mapping[int, int]
"""How far each partition is applied: all records below."""


# A topic's state as text: the same in the database and in the mirror.


def encode(state: TopicState) -> str:
    """JSON, for people too."""
    return json.dumps(asdict(state))


def decode(text: str | bytes) -> TopicState:
    """The state that was encoded."""
    try:
        found = json.loads(text)
        generations = tuple(_generation(**each) for each in found["generations"])
        target = None if found["target"] is None else Target(**found["target"])
        return TopicState(found["topic"], generations, Phase(found["phase"]), target, found["epoch"])
    except (ValueError, TypeError, KeyError) as error:
        raise PermanentError(
            f"A topic's generations cannot be read: {text!r}.", hint="Was it written by a newer version of inorder?"
        ) from error


def _generation(number: int, topic: str, partitions: int, ends: list[int] | None) -> Generation:
    return Generation(number, topic, partitions, None if ends is None else tuple(ends))
