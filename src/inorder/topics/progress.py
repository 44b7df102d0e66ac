"""How a topic stands, in words: its generations, the switch that is under way, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inorder.ports.topic_generations import Phase, Pointers, TopicState
from inorder.topics.gate import is_drained, left


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
