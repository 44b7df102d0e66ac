"""Topics as they are wanted and as they are: what must be done about the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from inorder.ports.topic_generations import Target


@dataclass(frozen=True, slots=True)
class Desired:
    """A topic as the settings want it; what is left out may be anything."""

    topic: str
    partitions: int | None = None
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """The Kafka topic of its current generation, as the cluster has it."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MakeIt:
    """It is missing."""

    target: Target
    replication: int | None
    config: Mapping[str, str]

    def __str__(self) -> str:
        return f"make topic {self.target}"


@dataclass(frozen=True, slots=True)
class SetIt:
    """Some of its settings differ."""

    name: str
    config: Mapping[str, str]

    def __str__(self) -> str:
        return f"set {', '.join(f'{name}={value}' for name, value in self.config.items())} of topic {self.name!r}"


@dataclass(frozen=True, slots=True)
class SwitchIt:
    """It has fewer partitions than wanted. Growing it in place would move keys, so only a switch helps."""

    topic: str
    found: int
    wanted: int

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} has {self.found} partitions and should have {self.wanted}; it is not grown in place,"
            f" since keys would move: run `inorder topics failover {self.topic} --partitions {self.wanted}`"
        )


@dataclass(frozen=True, slots=True)
class LeaveIt:
    """It has more partitions than wanted, and none is ever taken away."""

    topic: str
    found: int
    wanted: int

    def __str__(self) -> str:
        return f"topic {self.topic!r} has {self.found} partitions, more than {self.wanted}; none is ever taken away"


Action: TypeAlias = MakeIt | SetIt | SwitchIt | LeaveIt

DEFAULT_PARTITIONS = 1


def actions(desired: Desired, found: Found | None, name: str) -> Iterator[Action]:
    """What to do about one topic; `name` is the Kafka topic of its current generation, `found` what there is of it."""
    if found is None:
        target = Target(name, desired.partitions or DEFAULT_PARTITIONS)
        yield MakeIt(target, desired.replication, desired.config)
        return
    differing = {key: value for key, value in desired.config.items() if found.config.get(key) != value}
    if differing:
        yield SetIt(name, differing)
    wanted = desired.partitions or found.partitions
    if found.partitions < wanted:
        yield SwitchIt(desired.topic, found.partitions, wanted)
    elif found.partitions > wanted:
        yield LeaveIt(desired.topic, found.partitions, wanted)
