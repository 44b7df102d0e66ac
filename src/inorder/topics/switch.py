"""Switching a topic to another Kafka topic, with more partitions perhaps, while publishers and readers go on.

Adding partitions to a topic moves keys between partitions, and nobody can order a key that lives in two of them. So a
topic has *generations*. Each is a Kafka topic of its own: generation 0 has the topic's name, later ones are called
`orders.g1`, `orders.g2` or whatever was asked for. Publishers write to the last one. Readers finish one before they
begin the next (`gate.py`), and the version of a record is (generation, offset).

**What is authoritative.** The topic's row in the database (`inorder_topic`). It changes by compare-and-set on its
epoch, so of two operators at most one takes each step. The compacted topic `inorder.topics` is a copy for publishers
without the database. What a writer remembers is a hint that is at most half a second old (`routes.py`).

The phases, each committed before its effects begin:

    steady ─begin─▶ preparing ─the target is there─▶ closing ─writers are gone─▶ measuring ─the ends are known─▶ steady
       ▲                │                                │                           │          one generation more
       └───────── cancel ┴────────────────────────────────┴───────────────────────────┘

- **preparing**: the target topic is made. Writers go on as before.
- **closing**: writers that look find the topic closed, and let its messages wait; all other topics go on. Whoever does
  not look must be gone before the next phase: the mirror is written; then we wait longer than a writer may trust its
  route and longer than it tries one batch; then every relay shard is fenced. A relay asks for the routes *behind its
  own fence*, so each term began before our fence, and is over, or after it, and knows.
- **measuring**: once no transaction is open, each partition's last record is looked up. These are the ends.
- The commit that notes the ends adds the next generation. From then on writers write to it.

Invariants

1. The next generation gets its first record after the ends of the one before are written down.
2. With relays that deliver exactly once, nothing is written behind these ends: the broker's fence refuses it.
3. A key's records are in the order of (generation, offset), wherever the partitions are.
4. Every effect may be done twice, or by two operators at once, and may be broken off.

Why 1 and 2 give 3: of a key, whoever wrote to the old generation did so before the switch, and a writer that sees the
new generation read its route after it. A shard's rows are sent by one term at a time, and within it in order.

| what happens                               | then                                                                  |
|---|---|
| the operator dies anywhere                 | the same command goes on where it was; while the topic is closed its  |
|                                            | messages wait in the outbox or in the publishing call                 |
| it dies behind the last commit             | the mirror is behind; `status` says so and the command mends it       |
| two operators                              | compare-and-set: both may act, one commits; the other reads and helps |
| an operator sleeps and wakes up much later | its commit finds another epoch and does nothing                       |
| the switch is cancelled                    | before the last commit nobody has written to the target: the topic    |
|                                            | just opens again; an operator that had measured cannot commit         |
| a relay sleeps through all of it           | it is fenced                                                          |
| a direct publisher, or a relay that        | nothing fences it: what it sends late stands behind the ends. Readers |
| delivers at least once, sleeps for longer  | that are still there apply it in its place; `status` counts it        |
| than the wait, in the middle of a batch    |                                                                       |
| a foreign writer that knows no generations | the same; `status` counts its records as late                         |
| a transaction stays open in the old one    | measuring waits for its timeout                                       |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from inorder.model.errors import ConfigurationError
from inorder.topics.gate import is_drained, left
from inorder.topics.generations import Generation, Phase, Pointers, Target, TopicState


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for; what is left out may be anything."""

    partitions: int | None = None
    topic: str | None = None

    def is_met_by(self, generation: Generation) -> bool:
        """Whether a generation is as it is wanted; one that nobody described is never met, but always a new one."""
        if self.partitions is None and self.topic is None:
            return False
        return self.partitions in (None, generation.partitions) and self.topic in (None, generation.topic)

    def allows(self, target: Target) -> bool:
        """Whether a switch that is under way leads there."""
        return self.partitions in (None, target.partitions) and self.topic in (None, target.topic)


@dataclass(frozen=True, slots=True)
class Observed:
    """What an operator sees; of no more than the phase needs."""

    mirrored_epoch: int = 0
    target_partitions: int | None = None
    """None where the target topic does not exist."""
    target_is_empty: bool = True
    writers_are_gone: bool = False
    """Whether this operator has waited and fenced since it found the phase `closing`."""
    ends: tuple[int, ...] | None = None
    """None while they cannot be known, since a transaction is open."""


@dataclass(frozen=True, slots=True)
class WriteMirror:
    """Copy the state for those who cannot ask the database."""


@dataclass(frozen=True, slots=True)
class MakeTopic:
    """Make the target."""

    target: Target
    like: str


@dataclass(frozen=True, slots=True)
class EndWriters:
    """Wait until every writer has looked again, then fence the relays."""


@dataclass(frozen=True, slots=True)
class AwaitTransactions:
    """Look again: a transaction is open in the old generation."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the next state down, if nobody else has changed it."""

    state: TopicState


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do."""


Step: TypeAlias = WriteMirror | MakeTopic | EndWriters | AwaitTransactions | Commit | Done


def begin(topic: str, state: TopicState | None, partitions: int, wanted: Wanted) -> TopicState | None:
    """The state to begin a switch with, or None where there is none to begin: it is under way, or met already.

    `partitions` is what the topic's first generation has, for a topic that was never switched.
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


def cancelled(state: TopicState) -> TopicState | None:
    """The state after giving a switch up; None where there is none."""
    if state.target is None:
        return None
    return replace(state, phase=Phase.STEADY, target=None, epoch=state.epoch + 1)


def next_step(state: TopicState, observed: Observed) -> Step:
    """What to do next. Raises `ConfigurationError` where only a person can help."""
    if observed.mirrored_epoch < state.epoch:
        return WriteMirror()
    match state.phase:
        case Phase.STEADY:
            return Done()
        case Phase.PREPARING:
            return _prepare(state, observed)
        case Phase.CLOSING:
            return Commit(_moved_on(state, Phase.MEASURING)) if observed.writers_are_gone else EndWriters()
        case Phase.MEASURING:
            return AwaitTransactions() if observed.ends is None else Commit(switched(state, observed.ends))
        case _:
            assert_never(state.phase)


def switched(state: TopicState, ends: tuple[int, ...]) -> TopicState:
    """The current generation ends there, and the target is the next one."""
    target = target_of(state)
    closed = replace(state.current, ends=ends)
    opened = Generation(closed.number + 1, target.topic, target.partitions)
    generations = (*state.generations[:-1], closed, opened)
    return TopicState(state.topic, generations, epoch=state.epoch + 1)


def target_of(state: TopicState) -> Target:
    """Where a switch leads that is under way."""
    if state.target is None:
        raise ConfigurationError(f"Topic {state.topic!r} is not being switched.")
    return state.target


def words(step: Step) -> str:
    """A step for the person who waits for it."""
    match step:
        case MakeTopic(target):
            return f"Making topic {target}."
        case EndWriters():
            return "The topic is closed: waiting for publishers to notice, and ending the terms of relays."
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
    return Commit(_moved_on(state, Phase.CLOSING))


def _moved_on(state: TopicState, phase: Phase) -> TopicState:
    return replace(state, phase=phase, epoch=state.epoch + 1)


def _target(state: TopicState, wanted: Wanted) -> Target:
    name = wanted.topic or f"{state.topic}.g{state.current.number + 1}"
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
        f"Topic {state.topic!r} is being switched to {target}; asked for was {asked}.",
        hint=f"Run `inorder topics failover {state.topic}` to end that switch, or give it up with --cancel.",
    )


def _unfit_target(state: TopicState, target: Target, observed: Observed) -> ConfigurationError:
    found = "holds records" if not observed.target_is_empty else f"has {observed.target_partitions} partitions"
    return ConfigurationError(
        f"Topic {state.topic!r} is to be switched to {target}, but that topic is there and {found}.",
        hint=f"Delete it, or run `inorder topics failover {state.topic} --cancel` and name another one with --to.",
    )


# How a topic stands, in words: its generations, the switch that is under way, and what to do next.


@dataclass(frozen=True, slots=True)
class Insight:
    """What was found beside the state itself."""

    mirrored_epoch: int
    late: Mapping[int, int] = field(default_factory=dict)
    """By generation that is closed, how many offsets stand behind its ends that no copy of ours explains."""
    pointers: Mapping[str, Mapping[str, Pointers]] = field(default_factory=dict)
    """By pipeline and Kafka topic, how far it is applied."""


def behind(state: TopicState, insight: Insight) -> dict[str, int]:
    """How many offsets of closed generations each pipeline has not applied yet; those that have all are left out."""
    found = {
        pipeline: sum(
            left(generation, by_topic.get(generation.topic, {}))
            for generation in state.generations
            if generation.is_closed and not is_drained(generation, by_topic.get(generation.topic, {}))
        )
        for pipeline, by_topic in insight.pointers.items()
    }
    return {pipeline: offsets for pipeline, offsets in found.items() if offsets}


def next_act(state: TopicState, insight: Insight) -> str:
    """What a person should do now; empty if nothing is."""
    again = f"`inorder topics failover {state.topic}`"
    if state.phase is not Phase.STEADY:
        closed = "" if state.takes_records else " Messages of the topic wait meanwhile."
        return f"A switch to {state.target} is in phase {state.phase}: run {again} to end it, or --cancel.{closed}"
    if insight.mirrored_epoch < state.epoch:
        return f"The switch is done, but publishers without the database may not know it: run {again} once more."
    if late := _late(state, insight):
        return f"Records were written behind the ends of {late}: find who writes there without following the switch."
    if waiting := behind(state, insight):
        return f"Nothing: {', '.join(waiting)} still reads the generation before."
    return ""


def _late(state: TopicState, insight: Insight) -> str:
    return ", ".join(repr(each.topic) for each in state.generations if insight.late.get(each.number))
