"""The operator of a switch: looks, asks `next_step`, does that, and looks again until nothing is left to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from inorder.model.errors import ConfigurationError, TransientError
from inorder.topics.generations import Fences, Phase, Target, TopicCluster, TopicGenerations, TopicMirror, TopicState
from inorder.topics.switch import (
    AwaitTransactions,
    Commit,
    Done,
    EndWriters,
    MakeTopic,
    Observed,
    Step,
    Wanted,
    WriteMirror,
    begin,
    cancelled,
    next_step,
    target_of,
)

log = logging.getLogger("inorder.topics")

GRACE_SECONDS = 2.0
"""Longer than a route is trusted (`routes.py`), plus the second after which a batch under way looks at it again."""
LOOK_SECONDS = 0.2
RETRY_SECONDS = 1.0
TRIES = 30
"""How often in a row a server may fail to answer before we give up; the command may be run again."""
TRANSACTION_SECONDS = 120.0
"""How long an open transaction is waited for. Ours end within 10 s; the broker allows 15 minutes."""

Wait = Callable[[float], object]
OnStep = Callable[[Step], object]


class Failover:
    """Switches topics. It keeps nothing that a second one, or the next one after a crash, would need."""

    def __init__(
        self,
        authority: TopicGenerations,
        mirror: TopicMirror,
        cluster: TopicCluster,
        fence: Fences,
        *,
        wait: Wait,
        on_step: OnStep = lambda _step: None,
    ) -> None:
        """`on_step` is told of each step before it is taken."""
        self._authority = authority
        self._mirror = mirror
        self._cluster = cluster
        self._fence = fence
        self._wait = wait
        self._on_step = on_step
        self._ended_writers_of = 0
        """The epoch in whose phase `closing` we have waited and fenced."""
        self._transaction_seconds = TRANSACTION_SECONDS

    def run(self, topic: str, wanted: Wanted) -> TopicState:
        """Switches the topic to what is wanted, or ends the switch that is under way; returns the state then."""
        state = self._authority.read(topic)
        if state is None or self._mirror.epoch(topic) >= state.epoch:
            state = self._begin(topic, state, wanted) or state
        # Otherwise somebody died behind the last commit of a switch, and only the mirror is missing.
        return self._finish(topic) if state is not None else self._unchanged(topic)

    def cancel(self, topic: str) -> TopicState | None:
        """Gives the switch up that is under way; the topic opens again as it was."""
        state = self._authority.read(topic)
        while state is not None and (given_up := cancelled(state)) is not None:
            if self._authority.replace(given_up):
                log.info("topics.cancelled", extra={"topic": topic})
            state = self._authority.read(topic)
        return None if state is None else self._finish(topic)

    def _begin(self, topic: str, state: TopicState | None, wanted: Wanted) -> TopicState | None:
        begun = begin(topic, state, self._partitions(state.current.topic if state else topic), wanted)
        if begun is not None and not self._authority.replace(begun):
            # Another operator began meanwhile: its switch must be the one that is wanted.
            return self._begin(topic, self._authority.read(topic), wanted)
        return begun

    def _finish(self, topic: str) -> TopicState:
        """Takes steps until none is left; a server that is away, or does not know a new topic yet, is waited for."""
        tries_left = TRIES
        while True:
            try:
                state = self._advance(topic)
            except TransientError as error:
                tries_left -= 1
                if not tries_left or self._transaction_seconds <= 0:
                    raise
                log.warning("topics.waiting: %s", error)
                self._wait(RETRY_SECONDS)
            else:
                if state is not None:
                    return state
                tries_left = TRIES

    def _advance(self, topic: str) -> TopicState | None:
        """Takes the next step; the state if there is none."""
        state = self._authority.read(topic)
        if state is None:
            raise ConfigurationError(f"The state of topic {topic!r} is gone from inorder_topic.")
        step = next_step(state, self._look(state))
        if isinstance(step, Done):
            return state
        self._on_step(step)
        self._take(step, state)
        return None

    def _take(self, step: Step, state: TopicState) -> None:
        log.info("topics.step", extra={"topic": state.topic, "phase": state.phase, "step": type(step).__name__})
        match step:
            case WriteMirror():
                self._mirror.write(self._authority, state.topic)
            case MakeTopic(target, like):
                self._cluster.make(target, like)
            case EndWriters():
                self._wait(GRACE_SECONDS)
                self._fence()
                self._ended_writers_of = state.epoch
            case AwaitTransactions():
                self._await_transactions(state)
            case Commit(changed):
                self._authority.replace(changed)
            case Done():
                pass
            case _:
                assert_never(step)

    def _look(self, state: TopicState) -> Observed:
        mirrored = self._mirror.epoch(state.topic)
        current = state.current
        match state.phase:
            case Phase.PREPARING:
                return self._look_at_target(state, mirrored)
            case Phase.CLOSING:
                return Observed(mirrored, writers_are_gone=self._ended_writers_of == state.epoch)
            case Phase.MEASURING:
                return Observed(mirrored, ends=self._cluster.ends(current.topic, current.partitions))
            case Phase.STEADY:
                return Observed(mirrored)
            case _:
                assert_never(state.phase)

    def _look_at_target(self, state: TopicState, mirrored: int) -> Observed:
        target = target_of(state)
        partitions = self._cluster.partitions(target.topic)
        is_empty = partitions is None or self._cluster.is_empty(target.topic)
        return Observed(mirrored, target_partitions=partitions, target_is_empty=is_empty)

    def _await_transactions(self, state: TopicState) -> None:
        if self._transaction_seconds <= 0:
            raise TransientError(
                f"A transaction has been open in {state.current.topic!r} for {TRANSACTION_SECONDS:.0f} s.",
                hint=f"End its producer, then run `inorder topics failover {state.topic}` again; --cancel gives it up.",
            )
        self._wait(LOOK_SECONDS)
        self._transaction_seconds -= LOOK_SECONDS

    def _partitions(self, topic: str) -> int:
        found = self._cluster.partitions(topic)
        if found is None:
            raise ConfigurationError(
                f"There is no topic {topic!r}.", hint="Check the name; `inorder topics apply` makes missing topics."
            )
        return found

    def _unchanged(self, topic: str) -> TopicState:
        raise ConfigurationError(
            f"Topic {topic!r} is as it is wanted: it has {self._partitions(topic)} partitions.",
            hint="Name another number with --partitions, or none to switch to a new topic all the same.",
        )


# Topics as they are wanted and as they are: what must be done about the difference.


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
