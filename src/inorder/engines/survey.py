"""Where a run begins: the pointers compared with what the topics hold; and how far the pointers are behind."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from inorder.engines.slice_work import Pointer, SliceWork, TopicSource
from inorder.model.errors import GuaranteeError, TransientError
from inorder.model.partitioning import Extent, Place

ACCEPT_LOSS = (
    "Restore the topic, or delete its inorder_pointer rows (a journal's are in pointer2) to accept the loss and start"
    " over."
)

READ_SECONDS = 5.0
FEW = 1_000
"""So few offsets may be only the commit markers of transactions, so `behind` reads them."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The state of the topics and the pointers at one moment."""

    partitions: Mapping[str, int]
    """The number of partitions of each topic that exists."""
    pointers: Mapping[Place, int]
    """The pointers; a partition without one begins with its first record."""
    missing: tuple[str, ...] = ()
    """Topics that do not exist yet."""

    @property
    def places(self) -> list[Place]:
        return [(topic, number) for topic, count in self.partitions.items() for number in range(count)]

    def has_grown(self, source: TopicSource) -> bool:
        """Whether there are new topics or partitions; asks the cluster."""
        topics = (*self.partitions, *self.missing)
        return any((source.partitions(topic) or 0) > self.partitions.get(topic, 0) for topic in topics)


def survey(work: SliceWork, source: TopicSource) -> Survey:
    """Asks the database and the cluster where to begin.

    Raises `TransientError` while no topic exists or one of the two does not answer, and `GuaranteeError` where a topic
    no longer holds the next record of a pointer.
    """
    extents = {topic: source.extents(topic) for topic in work.topics}
    missing = tuple(topic for topic, found in extents.items() if found is None)
    if len(missing) == len(extents):
        raise TransientError(f"{_do_not_exist(missing)}.", hint="The job waits until it exists.")
    found = _pointers(work, [topic for topic in work.topics if topic not in missing])
    for topic, pointers in found.items():
        held = extents[topic] or {}
        if _are_past(pointers, held):
            # Another driver may have moved them since the extents were read. So read the ends once more.
            held = _with_ends(held, source.extents(topic) or {})
        check_reachable(topic, pointers, held)
    return Survey(
        partitions={topic: len(held) for topic, held in extents.items() if held is not None},
        pointers={(topic, number): one.next_offset for topic, some in found.items() for number, one in some.items()},
        missing=missing,
    )


def check_reachable(topic: str, pointers: Mapping[int, Pointer], extents: Mapping[int, Extent]) -> None:
    """Refuses to start where the topic no longer holds the next record of a pointer."""
    for number, pointer in pointers.items():
        extent = extents.get(number)
        if extent is None:
            found = "does not exist"
        elif pointer.next_offset < extent.first:
            found = f"begins at {extent.first}: records were deleted before they were applied"
        elif pointer.next_offset > extent.end:
            found = f"ends at {extent.end}: it was deleted and re-created, or truncated"
        else:
            continue
        raise GuaranteeError(
            f"The pointer of {topic}[{number}] is at {pointer.next_offset}, but the partition {found}.",
            hint=ACCEPT_LOSS,
        )


def share_out(places: Iterable[Place], tasks: int) -> list[tuple[Place, ...]]:
    """Shares partitions out among at most `tasks` tasks, as evenly as possible; each task has at least one.

    >>> share_out([("a", 0), ("a", 1), ("a", 2)], 2)
    [(('a', 0), ('a', 2)), (('a', 1),)]
    """
    ordered = sorted(places)
    shares = max(1, min(tasks, len(ordered)))
    return [tuple(ordered[first::shares]) for first in range(shares)] if ordered else []


def _pointers(work: SliceWork, topics: Iterable[str]) -> dict[str, Mapping[int, Pointer]]:
    worker = work.open()
    try:
        return {topic: worker.pointers(topic) for topic in topics}
    finally:
        worker.close()


def _are_past(pointers: Mapping[int, Pointer], extents: Mapping[int, Extent]) -> bool:
    return any(number in extents and one.next_offset > extents[number].end for number, one in pointers.items())


def _with_ends(extents: Mapping[int, Extent], later: Mapping[int, Extent]) -> dict[int, Extent]:
    """The extents with the ends of `later`: a pointer that was read in between lies below them."""
    return {number: Extent(extent.first, later.get(number, extent).end) for number, extent in extents.items()}


def _do_not_exist(topics: tuple[str, ...]) -> str:
    names = ", ".join(map(repr, topics))
    return f"Topic {names} does not exist yet" if len(topics) == 1 else f"Topics {names} do not exist yet"


# How far a pipeline is behind its topics.


def behind(source: TopicSource, topics: Iterable[str], pointers: Mapping[Place, int]) -> dict[Place, int]:
    """Offsets between each partition's pointer and its end; 0 where no record is left in between.

    A transactional topic ends with the commit marker of a transaction, which has an offset but is no record. Topics
    that do not exist are left out. Raises `UnreachableError`.
    """
    found = {
        (topic, number): max(0, extent.end - max(extent.first, pointers.get((topic, number), 0)))
        for topic in topics
        for number, extent in (source.extents(topic) or {}).items()
    }
    few = {place: pointers.get(place) for place, offsets in found.items() if 0 < offsets <= FEW}
    return found | dict.fromkeys(_without_records(source, few), 0)


def _without_records(source: TopicSource, starts: Mapping[Place, int | None]) -> set[Place]:
    """The partitions without a record behind their start, although their offsets differ."""
    undecided, at_end = set(starts), set[Place]()
    if not starts:
        return at_end
    deadline = time.monotonic() + READ_SECONDS
    with closing(source.open(starts, reports_ends=True)) as reader:
        while undecided and time.monotonic() < deadline:
            slices, ended = reader.read(FEW, 0.1)
            undecided -= {(batch.topic, batch.partition) for batch in slices}
            at_end |= ended & undecided
            undecided -= ended
    return at_end
