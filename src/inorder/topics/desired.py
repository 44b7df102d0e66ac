"""What `inorder topics apply` does: the difference between topics as the settings want them and as they are.

`kind` is what `--json` calls an action; programs read it, so it does not change with the name of the class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from inorder.topics.generations import Target


@dataclass(frozen=True, slots=True)
class DesiredTopic:
    """A topic as the settings want it; None means any."""

    topic: str
    partitions: int | None = None
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """The Kafka topic of the current generation, as the cluster has it."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopic:
    kind: ClassVar[str] = "MakeIt"
    target: Target
    replication: int | None
    config: Mapping[str, str]

    def __str__(self) -> str:
        return f"create topic {self.target}"


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    kind: ClassVar[str] = "SetIt"
    name: str
    config: Mapping[str, str]

    def __str__(self) -> str:
        return f"set {', '.join(f'{name}={value}' for name, value in self.config.items())} of topic {self.name!r}"


@dataclass(frozen=True, slots=True)
class SwitchNeeded:
    """It has fewer partitions than wanted. Adding partitions would move keys, so it must be switched."""

    kind: ClassVar[str] = "SwitchIt"
    topic: str
    found: int
    wanted: int

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} has {self.found} partitions and should have {self.wanted}; partitions are not added"
            f" in place, since keys would move: run `inorder topics failover {self.topic} --partitions {self.wanted}`"
        )


@dataclass(frozen=True, slots=True)
class KeepPartitions:
    """It has more partitions than wanted; partitions are never removed."""

    kind: ClassVar[str] = "LeaveIt"
    topic: str
    found: int
    wanted: int

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} has {self.found} partitions, more than {self.wanted}; partitions are never removed"
        )


TopicAction: TypeAlias = CreateTopic | ChangeSettings | SwitchNeeded | KeepPartitions


DEFAULT_PARTITIONS = 1


def plan_actions(desired: DesiredTopic, found: FoundTopic | None, name: str) -> Iterator[TopicAction]:
    """Plans what to do about one topic; `name` is the Kafka topic of its current generation."""
    if found is None:
        target = Target(name, desired.partitions or DEFAULT_PARTITIONS)
        yield CreateTopic(target, desired.replication, desired.config)
        return
    differing = {key: value for key, value in desired.config.items() if found.config.get(key) != value}
    if differing:
        yield ChangeSettings(name, differing)
    wanted = desired.partitions or found.partitions
    if found.partitions < wanted:
        yield SwitchNeeded(desired.topic, found.partitions, wanted)
    elif found.partitions > wanted:
        yield KeepPartitions(desired.topic, found.partitions, wanted)
