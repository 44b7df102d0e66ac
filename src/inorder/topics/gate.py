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

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from inorder.engines.slice_work import Pointer, Slice, SliceOutcome, SliceWork, SliceWorker
from inorder.topics.generations import Generation, Pointers, TopicState


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


# A work that stops at the ends of a closed generation, whatever stands behind them.
#
# Behind the ends may be copies that `inorder topics migrate` made for other readers, or records of a writer that nobody
# could stop. Copies come again in their own generation; applied here first, a table would go back when they do. So what
# stands behind an end is handed to nobody, and the pointer stays where it is.

Ends = tuple[tuple[str, tuple[int, ...]], ...]
"""By Kafka topic, the offset behind the last record of each partition."""


@dataclass(frozen=True, slots=True)
class EndedWork:
    """Another work, with some of its topics cut."""

    work: SliceWork
    ends: Ends

    @property
    def name(self) -> str:
        """The work's."""
        return self.work.name

    @property
    def topics(self) -> tuple[str, ...]:
        """The work's."""
        return self.work.topics

    @property
    def needs_headers(self) -> bool:
        """The work's."""
        return self.work.needs_headers

    def open(self) -> SliceWorker:
        """A worker of the work that is shown no record behind an end."""
        return _EndedWorker(self.work.open(), dict(self.ends))


class _EndedWorker:
    def __init__(self, worker: SliceWorker, ends: Mapping[str, tuple[int, ...]]) -> None:
        self._worker = worker
        self._ends = ends

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return self._worker.pointers(topic)

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        ends = self._ends.get(batch.topic, ())
        # A partition that was added afterwards holds nothing of this generation.
        end = 0 if ends and batch.partition >= len(ends) else ends[batch.partition] if ends else None
        return self._worker.apply(batch if end is None else cut(batch, end), expected)

    def close(self) -> None:
        self._worker.close()


def cut(batch: Slice, end: int) -> Slice:
    """The records of a slice that stand before an end; perhaps none."""
    count = bisect_left(batch.offsets, end)
    if count == len(batch):
        return batch
    return replace(
        batch,
        offsets=batch.offsets[:count],
        keys=batch.keys[:count],
        values=batch.values[:count],
        timestamps=batch.timestamps[:count],
        headers=batch.headers[:count],
    )
