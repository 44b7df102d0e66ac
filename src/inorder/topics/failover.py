"""The operator of a switch: observes, takes the `next_step`, and repeats that until the switch is complete."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import assert_never

from inorder.model.errors import ConfigurationError, TransientError
from inorder.topics.generations import Fences, Phase, TopicCluster, TopicGenerations, TopicMirror, TopicState
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
    cancel,
    next_step,
    target_of,
)

log = logging.getLogger("inorder.topics")

GRACE_SECONDS = 2.0
"""Longer than a route is trusted (`routes.py`), plus the second after which a batch under way reads it again."""
LOOK_SECONDS = 0.2
RETRY_SECONDS = 1.0
TRIES = 30
"""How often in a row a server may fail to answer before the command fails; it may be run again."""
TRANSACTION_SECONDS = 120.0
"""How long to wait for an open transaction. Those of inorder end within 10 s; the broker allows 15 minutes."""

Wait = Callable[[float], object]
OnStep = Callable[[Step], object]


class Failover:
    """Switches topics. It keeps no state that a second operator, or the next one after a crash, would need."""

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
        """`on_step` is called before each step."""
        self._authority = authority
        self._mirror = mirror
        self._cluster = cluster
        self._fence = fence
        self._wait = wait
        self._on_step = on_step
        self._ended_writers_of = 0
        """The epoch in whose phase `closing` this operator has waited and fenced."""
        self._transaction_seconds = TRANSACTION_SECONDS

    def run(self, topic: str, wanted: Wanted) -> TopicState:
        """Switches the topic as wanted, or completes the switch that is under way; returns the final state."""
        state = self._authority.read(topic)
        if state is None or self._mirror.epoch(topic) >= state.epoch:
            state = self._begin(topic, state, wanted) or state
        # Otherwise an operator died after the last commit of a switch, and only the mirror must be written.
        return self._finish(topic) if state is not None else self._unchanged(topic)

    def cancel(self, topic: str) -> TopicState | None:
        """Cancels the switch that is under way; the topic opens again as it was."""
        state = self._authority.read(topic)
        while state is not None and (given_up := cancel(state)) is not None:
            if self._authority.replace(given_up):
                log.info("topics.cancelled", extra={"topic": topic})
            state = self._authority.read(topic)
        return None if state is None else self._finish(topic)

    def _begin(self, topic: str, state: TopicState | None, wanted: Wanted) -> TopicState | None:
        begun = begin(topic, state, self._partitions(state.current.topic if state else topic), wanted)
        if begun is not None and not self._authority.replace(begun):
            # Another operator began meanwhile; its target must be the wanted one.
            return self._begin(topic, self._authority.read(topic), wanted)
        return begun

    def _finish(self, topic: str) -> TopicState:
        """Takes steps until none is left; waits for a server that is away, or does not know a new topic yet."""
        tries_left = TRIES
        while True:
            try:
                state = self._advance(topic)
            except TransientError as error:
                tries_left -= 1
                if not tries_left or self._transaction_seconds <= 0:
                    raise
                log.warning("topics.waiting", extra={"topic": topic, "error": str(error)})
                self._wait(RETRY_SECONDS)
            else:
                if state is not None:
                    return state
                tries_left = TRIES

    def _advance(self, topic: str) -> TopicState | None:
        """Takes the next step; returns the state if there is none."""
        state = self._authority.read(topic)
        if state is None:
            raise ConfigurationError(f"The state of topic {topic!r} was deleted from inorder_topic.")
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
                hint=f"End its producer, then run `inorder topics failover {state.topic}` again; --cancel cancels it.",
            )
        self._wait(LOOK_SECONDS)
        self._transaction_seconds -= LOOK_SECONDS

    def _partitions(self, topic: str) -> int:
        found = self._cluster.partitions(topic)
        if found is None:
            raise ConfigurationError(
                f"There is no topic {topic!r}.", hint="Check the name; `inorder topics apply` creates missing topics."
            )
        return found

    def _unchanged(self, topic: str) -> TopicState:
        raise ConfigurationError(
            f"Topic {topic!r} is already as wanted: it has {self._partitions(topic)} partitions.",
            hint="Give another number with --partitions, or omit it to switch to a new topic anyway.",
        )


# Topics as they are wanted and as they are: what must be done about the difference.
