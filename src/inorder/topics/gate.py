"""The gate of the readers: a generation is applied once the previous one is applied completely, in every partition.

Keys move between partitions from one generation to the next. So it is not enough that a partition is done: the record
before the first one of a key in `orders.g1` may be in any partition of `orders`.

How an engine uses it: before each start it calls `may_apply` with the committed pointers of its pipeline (one topic at
a time; topics do not wait for each other) and reads the Kafka topic of the generation that it returns, all partitions,
from the pointers. Exactly one generation of a topic is read at any time. While the engine runs, `may_apply` is called
again about once a second; when it returns another generation, the engine is stopped and started with that one. Before
the first start on a generation its pointer rows are created with its number, so that versions are (generation, offset).

Why nothing can pass the gate: pointers only rise and ends never change, so a generation that is drained once stays
drained; a reader that is late, or runs twice, applies nothing that is not applied already.

An end is the offset after the last *record*. Transaction markers after it are no records, and no pointer ever moves
over them.

Records may follow the ends of a closed generation: copies that `inorder topics migrate` made for other readers, or
records of a writer that could not be fenced. Copies come again in their own generation; if they were applied here
first, a table would go back when they do. So nothing after an end is applied, and the pointer stays there. For tables
the end is in the pointer row, which a slice locks: tasks of a driver that was paused before the generation was closed
see it too. The gate, the switch and the copy write it, each before it does what depends on it. `BoundedWork` does the
same for works without such a row, and for partitions whose row is created later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from inorder.engines.slice_work import Pointer, Slice, SliceOutcome, SliceWork, SliceWorker, before_end
from inorder.topics.generations import Generation, Pointers, TopicState


def is_drained(generation: Generation, pointers: Pointers) -> bool:
    """Whether the generation is closed and completely applied."""
    if generation.ends is None:
        return False
    return all(pointers.get(partition, 0) >= end for partition, end in enumerate(generation.ends))


def may_apply(state: TopicState, pointers: Callable[[str], Pointers]) -> Generation:
    """Returns the one generation that may be applied now: the first that is not drained, or the last.

    `pointers` returns the committed pointers of one Kafka topic; it is called for no more generations than needed.
    """
    for generation in state.generations[:-1]:
        if not is_drained(generation, pointers(generation.topic)):
            return generation
    return state.current


def version_generation(state: TopicState, generation: Generation, found: Mapping[str, Iterable[int]]) -> int:
    """The number of a generation in the versions of a pipeline's rows; it exceeds those of all earlier generations.

    It is the generation's own, unless a pipeline was reset before: then an earlier one has a higher number there.
    `found` are the numbers of its pointers by Kafka topic.
    """
    if own := [*found.get(generation.topic, ())]:
        return max(own)
    earlier = [number for each in state.generations[: generation.number] for number in found.get(each.topic, ())]
    return max([generation.number, *(number + 1 for number in earlier)])


def count_left(generation: Generation, pointers: Pointers) -> int:
    """Counts the offsets of a closed generation that are not applied yet; an upper bound of the records."""
    return sum(max(0, end - pointers.get(partition, 0)) for partition, end in enumerate(generation.ends or ()))


Ends = tuple[tuple[str, tuple[int, ...]], ...]
"""By Kafka topic, the offset after the last record of each partition."""


@dataclass(frozen=True, slots=True)
class BoundedWork:
    """Another work that reads some of its topics up to their ends only."""

    work: SliceWork
    ends: Ends

    @property
    def name(self) -> str:
        return self.work.name

    @property
    def topics(self) -> tuple[str, ...]:
        return self.work.topics

    @property
    def needs_headers(self) -> bool:
        return self.work.needs_headers

    def open(self) -> SliceWorker:
        return _BoundedWorker(self.work.open(), dict(self.ends))


class _BoundedWorker:
    def __init__(self, worker: SliceWorker, ends: Mapping[str, tuple[int, ...]]) -> None:
        self._worker = worker
        self._ends = ends

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return self._worker.pointers(topic)

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        return self._worker.begin(topic, topic_id, firsts)

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        ends = self._ends.get(batch.topic, ())
        # A partition that was added later holds nothing of this generation.
        end = 0 if ends and batch.partition >= len(ends) else ends[batch.partition] if ends else None
        return self._worker.apply(before_end(batch, end), expected)

    def close(self) -> None:
        self._worker.close()
