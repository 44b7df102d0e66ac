"""Switching a topic to another Kafka topic, perhaps with more partitions, while publishers and readers keep running.

Adding partitions to a topic moves keys between partitions, and a key that lives in two of them has no order. So a
topic has *generations*. Each is a Kafka topic of its own: generation 0 has the topic's name, later ones are called
`orders.g1`, `orders.g2` or as requested. Publishers write to the last one. Readers finish one before they
begin the next (`gate.py`), and the version of a record is (generation, offset).

**What is authoritative.** The topic's row in the database (`inorder_topic`). It changes by compare-and-set on its
epoch, so of two operators at most one takes each step. The compacted topic `inorder.topics` is a copy for publishers
without the database. What a writer remembers is a hint that is at most half a second old (`routes.py`).

The phases, each committed before its effects begin:

    steady ─begin─▶ preparing ─the target is there─▶ closing ─writers are gone─▶ measuring ─the ends are known─▶ steady
       ▲                │                                │                           │          one generation more
       └───────── cancel ┴────────────────────────────────┴───────────────────────────┘

- **preparing**: the target topic is created. Writers continue as before.
- **closing**: writers that read the routes find the topic closed, and its messages wait; all other topics continue.
  Writers that do not read them must have ended before the next phase: the mirror is written; then the operator waits
  longer than a writer may trust its route and longer than it tries one batch; then it fences every relay shard. A relay
  reads the routes *behind its own fence*, so each of its terms began before the operator's fence, and is over, or after
  it, and knows that the topic is closed.
- **measuring**: once no transaction is open, each partition's last record is looked up. These are the ends.
- The commit that stores the ends adds the next generation. From then on writers write to it.

Invariants

1. The next generation gets its first record after the ends of the previous one are committed.
2. With relays that deliver exactly once, nothing is written after these ends: the broker's fence refuses it.
3. A key's records are in the order of (generation, offset), wherever the partitions are.
4. Every effect may be repeated, interrupted, or applied by two operators at once.

Why 3 follows from 1 and 2: every record of a key in the old generation was written before the switch, and a writer
that sees the new generation read its route after it. One term at a time sends a shard's rows, in order.

| what happens                               | then                                                                  |
|---|---|
| the operator dies anywhere                 | the same command continues there; while the topic is closed its       |
|                                            | messages wait in the outbox or in the publishing call                 |
| it dies after the last commit              | the mirror is behind; `status` says so and the command repairs it     |
| two operators                              | compare-and-set: both may act, one commits; the other continues from  |
|                                            | that state                                                            |
| an operator is paused for long             | its commit finds another epoch and does nothing                       |
| the switch is cancelled                    | before the last commit nothing was written to the target: the topic   |
|                                            | opens again; an operator that had measured cannot commit              |
| a relay is paused all the time             | it is fenced                                                          |
| a direct publisher, or a relay that        | nothing fences it: what it sends late comes after the ends. Readers   |
| delivers at least once, is paused for      | that are still there apply it in its place; `status` counts it        |
| longer than the wait, in mid-batch         |                                                                       |
| a foreign writer that knows no generations | the same; `status` counts its records as late                         |
| a transaction stays open in the old one    | measuring waits for its timeout                                       |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from inorder.model.errors import ConfigurationError
from inorder.model.message import RESERVED, is_reserved
from inorder.topics.gate import count_left, is_drained
from inorder.topics.generations import Generation, Phase, Pointers, Target, TopicState


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the operator asks for; None means any."""

    partitions: int | None = None
    topic: str | None = None

    def is_met_by(self, generation: Generation) -> bool:
        """Whether a generation is as wanted; a request without details always asks for a new one."""
        if self.partitions is None and self.topic is None:
            return False
        return self.partitions in (None, generation.partitions) and self.topic in (None, generation.topic)

    def allows(self, target: Target) -> bool:
        """Whether the target of a switch that is under way is as wanted."""
        return self.partitions in (None, target.partitions) and self.topic in (None, target.topic)


@dataclass(frozen=True, slots=True)
class Observed:
    """What an operator observes; only what the phase needs."""

    mirrored_epoch: int = 0
    target_partitions: int | None = None
    """None where the target topic does not exist."""
    target_is_empty: bool = True
    writers_are_gone: bool = False
    """Whether this operator has waited and fenced since it found the phase `closing`."""
    ends: tuple[int, ...] | None = None
    """None while a transaction is open."""


@dataclass(frozen=True, slots=True)
class WriteMirror:
    """Copy the state for publishers that cannot read the database."""


@dataclass(frozen=True, slots=True)
class MakeTopic:
    target: Target
    like: str


@dataclass(frozen=True, slots=True)
class EndWriters:
    """Wait until every writer has read its routes again, then fence the relays."""


@dataclass(frozen=True, slots=True)
class AwaitTransactions:
    """Wait: a transaction is open in the old generation."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Store the next state, if no other operator has changed it."""

    state: TopicState


@dataclass(frozen=True, slots=True)
class Done:
    """The switch is complete."""


Step: TypeAlias = WriteMirror | MakeTopic | EndWriters | AwaitTransactions | Commit | Done


def begin(topic: str, state: TopicState | None, partitions: int, wanted: Wanted) -> TopicState | None:
    """Returns the first state of a switch, or None where none must begin: it is under way, or the topic is as wanted.

    `partitions` is the number of the topic's first generation, for a topic that was never switched.
    """
    found = state or TopicState(topic, (Generation(0, topic, partitions),), epoch=0)
    if found.target is not None:
        if not wanted.allows(found.target):
            raise _other_target(found, found.target, wanted)
        return None
    if wanted.is_met_by(found.current):
        return None
    target = _target(found, wanted)
    return replace(found, phase=Phase.PREPARING, target=target, epoch=found.epoch + 1)


def cancel(state: TopicState) -> TopicState | None:
    """Returns the state after a switch is cancelled; None where none is under way."""
    if state.target is None:
        return None
    return replace(state, phase=Phase.STEADY, target=None, epoch=state.epoch + 1)


def next_step(state: TopicState, observed: Observed) -> Step:
    """Decides what to do next. Raises `ConfigurationError` where the operator has to fix something."""
    if observed.mirrored_epoch < state.epoch:
        return WriteMirror()
    match state.phase:
        case Phase.STEADY:
            return Done()
        case Phase.PREPARING:
            return _prepare(state, observed)
        case Phase.CLOSING:
            return Commit(_enter(state, Phase.MEASURING)) if observed.writers_are_gone else EndWriters()
        case Phase.MEASURING:
            return AwaitTransactions() if observed.ends is None else Commit(complete(state, observed.ends))
        case _:
            assert_never(state.phase)


def complete(state: TopicState, ends: tuple[int, ...]) -> TopicState:
    """Returns the state in which the current generation is closed at its ends and the target is the next one."""
    target = target_of(state)
    closed = replace(state.current, ends=ends)
    opened = Generation(closed.number + 1, target.topic, target.partitions)
    generations = (*state.generations[:-1], closed, opened)
    return TopicState(state.topic, generations, epoch=state.epoch + 1)


def target_of(state: TopicState) -> Target:
    """The target of the switch that is under way."""
    if state.target is None:
        raise ConfigurationError(f"Topic {state.topic!r} is not being switched.")
    return state.target


def describe(step: Step) -> str:
    """Renders a step for the operator who waits for it."""
    match step:
        case MakeTopic(target):
            return f"Creating topic {target}."
        case EndWriters():
            return "The topic is closed: waiting for publishers to notice, and fencing the relays."
        case AwaitTransactions():
            return "A transaction is open in the old generation; waiting for its end."
        case Commit(state):
            return f"Now {state.phase}." if state.target else f"Now generation {state.current.number}."
        case WriteMirror() | Done():
            return ""
        case _:
            assert_never(step)


def _prepare(state: TopicState, observed: Observed) -> Step:
    target = target_of(state)
    if observed.target_partitions is None:
        return MakeTopic(target, like=state.current.topic)
    if observed.target_partitions != target.partitions or not observed.target_is_empty:
        raise _unfit_target(state, target, observed)
    return Commit(_enter(state, Phase.CLOSING))


def _enter(state: TopicState, phase: Phase) -> TopicState:
    return replace(state, phase=phase, epoch=state.epoch + 1)


def _target(state: TopicState, wanted: Wanted) -> Target:
    name = wanted.topic or f"{state.topic}.g{state.current.number + 1}"
    if is_reserved(name):
        raise ConfigurationError(f"{name!r} {RESERVED}.", hint="Name another topic with --to.")
    if any(generation.topic == name for generation in state.generations):
        raise ConfigurationError(
            f"{name!r} was a generation of topic {state.topic!r} before, and its offsets would count twice.",
            hint="Name another one with --to, or none; `inorder topics migrate` copies records back into it.",
        )
    return Target(name, wanted.partitions or state.current.partitions)


def _other_target(state: TopicState, target: Target, wanted: Wanted) -> ConfigurationError:
    asked = " with ".join(
        [repr(wanted.topic)] * (wanted.topic is not None)
        + [f"{wanted.partitions} partitions"] * bool(wanted.partitions)
    )
    return ConfigurationError(
        f"Topic {state.topic!r} is already being switched to {target}, not to {asked}.",
        hint=f"Run `inorder topics failover {state.topic}` to complete that switch, or cancel it with --cancel.",
    )


def _unfit_target(state: TopicState, target: Target, observed: Observed) -> ConfigurationError:
    found = "holds records" if not observed.target_is_empty else f"has {observed.target_partitions} partitions"
    return ConfigurationError(
        f"Topic {state.topic!r} is to be switched to {target}, but that topic exists and {found}.",
        hint=f"Delete it, or run `inorder topics failover {state.topic} --cancel` and name another one with --to.",
    )


# The status of a topic: its generations, the switch that is under way, and what to do next.


@dataclass(frozen=True, slots=True)
class Insight:
    """What was found besides the state itself."""

    mirrored_epoch: int
    late: Mapping[int, int] = field(default_factory=dict)
    """By closed generation, the number of offsets after its ends that are not copies of `inorder topics migrate`."""
    pointers: Mapping[str, Mapping[str, Pointers]] = field(default_factory=dict)
    """By pipeline and Kafka topic, how far the topic is applied."""


def behind(state: TopicState, insight: Insight) -> dict[str, int]:
    """The number of offsets of closed generations that each pipeline has not applied yet, without those at zero."""
    found = {
        pipeline: sum(
            count_left(generation, by_topic.get(generation.topic, {}))
            for generation in state.generations
            if generation.is_closed and not is_drained(generation, by_topic.get(generation.topic, {}))
        )
        for pipeline, by_topic in insight.pointers.items()
    }
    return {pipeline: offsets for pipeline, offsets in found.items() if offsets}


def next_action(state: TopicState, insight: Insight) -> str:
    """Renders what the operator should do now; empty if nothing."""
    again = f"`inorder topics failover {state.topic}`"
    if state.phase is not Phase.STEADY:
        closed = "" if state.takes_records else " Messages of the topic wait meanwhile."
        return f"A switch to {state.target} is in phase {state.phase}: run {again} to complete it, or --cancel.{closed}"
    if insight.mirrored_epoch < state.epoch:
        return f"The switch is done, but publishers without the database may not know: run {again} again."
    if late := _late(state, insight):
        return f"Records were written behind the ends of {late}: find the producer that does not follow the switch."
    if waiting := behind(state, insight):
        return f"Nothing: {', '.join(waiting)} still reads the previous generation."
    return ""


def _late(state: TopicState, insight: Insight) -> str:
    return ", ".join(repr(each.topic) for each in state.generations if insight.late.get(each.number))
