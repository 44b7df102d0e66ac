"""The gate of the readers: a generation is applied when all of the one before is, in every partition.

Keys move between partitions from one generation to the next. So it is not enough that a partition is done: the record
before the first one of a key in `orders.g1` may be in any partition of `orders`.

How an engine uses it: before each start it asks `may_apply` with the committed pointers of its pipeline (one topic at a
time; topics do not wait for each other) and reads the Kafka topic of the generation that it is told, all partitions,
from the pointers. Exactly one generation of a topic is read at any time. While it runs, somebody asks again about once
a second; when the answer is another generation, the engine is stopped and started with that one. Before the first start
on a generation its pointer rows are made with its number, so that versions are (generation, offset).

Why nothing can pass the gate: pointers only rise and ends never change, so a generation that is drained once is drained
for ever; a reader that comes late, or twice, applies nothing that is not applied already.

An end is the offset behind the last *record*. Transaction markers that stand behind it are no records, and no pointer
ever moves over them.
"""

from __future__ import annotations

from collections.abc import Callable

from inorder.ports.topic_generations import Generation, Pointers, TopicState


def is_drained(generation: Generation, pointers: Pointers) -> bool:
    """Whether all that the generation will ever hold is applied."""
    if generation.ends is None:
        return False
    return all(pointers.get(partition, 0) >= end for partition, end in enumerate(generation.ends))


def may_apply(state: TopicState, pointers: Callable[[str], Pointers]) -> Generation:
    """The one generation that may be applied now: the first that is not drained, or the last of all.

    `pointers` gives those of one Kafka topic, committed; it is asked for no more generations than needed.
    """
    for generation in state.generations[:-1]:
        if not is_drained(generation, pointers(generation.topic)):
            return generation
    return state.current


def left(generation: Generation, pointers: Pointers) -> int:
    """How many offsets of a closed generation are not applied yet; an upper bound of the records."""
    return sum(max(0, end - pointers.get(partition, 0)) for partition, end in enumerate(generation.ends or ()))
