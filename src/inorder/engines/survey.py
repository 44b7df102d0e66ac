"""Where a run begins: the pointers compared with what the topics hold; and how far the pointers are behind.

A pointer counts offsets of one incarnation of a topic. A topic that is deleted and re-created has the same name and
other offsets, so the pointer stores Kafka's id of its topic, and a survey compares it first. Then the next record of
each pointer must still be there. Every partition gets its pointer at the first survey: a partition that is not read
before retention removes records from it would otherwise begin behind them, without a word.

What a survey finds wrong concerns partitions. The others are read; `Survey.stopped` names those that are not.

**A lag of 0 is not always an end.** Readers of committed records see a partition up to its last stable offset, the
first record of the oldest open transaction. A producer that hangs in a transaction therefore hides all that is written
behind it. So a backlog also has the offsets between the stable and the written end, and how old the oldest record is
that is not applied, be it committed or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from inorder.engines.slice_work import (
    Pointer,
    SliceWork,
    SliceWorker,
    TopicSource,
    more_partitions,
    other_topic,
)
from inorder.model.errors import GuaranteeError, TransientError
from inorder.model.partitioning import Extent, Place


def accept_loss(topic: str, reset_command: str | None = None) -> str:
    """The hint where a topic no longer holds the next record."""
    command = f"`{reset_command or 'inorder pipeline reset'} {topic}`"
    other = "" if reset_command else f" (for journals `inorder journal reset {topic}`)"
    return (
        f"Restore the topic, or stop the job and run {command}{other} to accept the loss and continue with what the"
        " topic holds."
    )


READ_SECONDS = 5.0
FEW = 1_000
"""So few offsets may be only the commit markers of transactions, so `behind` reads them."""
NO_ENDS: Final[Mapping[Place, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Survey:
    """The state of the topics and the pointers at one moment."""

    partitions: Mapping[str, int]
    """The number of partitions of each topic that exists."""
    pointers: Mapping[Place, int]
    """The pointers; a partition without one begins with its first record."""
    missing: tuple[str, ...] = ()
    """Topics that do not exist yet."""
    ids: Mapping[str, str | None] = field(default_factory=dict)
    """Kafka's ids of the topics that exist."""
    stopped: Mapping[Place, GuaranteeError] = field(default_factory=dict)
    """The partitions that must not be read, each with the reason."""

    @property
    def places(self) -> list[Place]:
        """The partitions to read."""
        found = [(topic, number) for topic, count in self.partitions.items() for number in range(count)]
        return [place for place in found if place not in self.stopped]

    def has_changed(self, source: TopicSource) -> bool:
        """Whether there are new topics or partitions, or another topic of the same name; asks the cluster."""
        topics = (*self.partitions, *self.missing)
        if any((source.partitions(topic) or 0) > self.partitions.get(topic, 0) for topic in topics):
            return True
        return any(_differ(id, source.topic_id(topic)) for topic, id in self.ids.items())


def survey(work: SliceWork, source: TopicSource) -> Survey:
    """Asks the database and the cluster where to begin, and creates the pointers of partitions that have none.

    Raises `TransientError` while no topic exists or one of the two does not answer, and `GuaranteeError` where no
    partition can be read.
    """
    # The id comes first: if the topic is replaced before its extents are read, the next look finds another id.
    ids = {topic: source.topic_id(topic) for topic in work.topics}
    extents = {topic: source.extents(topic) for topic in work.topics}
    missing = tuple(topic for topic, found in extents.items() if found is None)
    if len(missing) == len(extents):
        raise TransientError(f"{_do_not_exist(missing)}.", hint="The job waits until it exists.")
    held = {topic: found for topic, found in extents.items() if found is not None}
    ids |= {topic: source.topic_id(topic) for topic in held if ids[topic] is None}  # it was created in between
    pointers: dict[Place, int] = {}
    stopped: dict[Place, GuaranteeError] = {}
    with closing(work.open()) as worker:
        for topic, found in held.items():
            at, wrong = _look_at(worker, source, topic, ids[topic], found)
            pointers |= {(topic, number): one.next_offset for number, one in at.items()}
            stopped |= {(topic, number): error for number, error in wrong.items()}
    result = Survey(
        partitions={topic: len(found) for topic, found in held.items()},
        pointers=pointers,
        missing=missing,
        ids={topic: ids[topic] for topic in held},
        stopped=stopped,
    )
    if stopped and not result.places:
        raise next(iter(stopped.values()))
    return result


def _look_at(
    worker: SliceWorker, source: TopicSource, topic: str, id: str | None, held: Mapping[int, Extent]
) -> tuple[Mapping[int, Pointer], dict[int, GuaranteeError]]:
    """The pointers of one topic, and which of its partitions cannot be read."""
    pointers = worker.begin(topic, id, {number: extent.first for number, extent in held.items()})
    if _are_past(pointers, held):
        # Another driver may have moved them since the extents were read. So read the ends once more.
        held = _with_ends(held, source.extents(topic) or {})
    wrong = unreadable(topic, id, pointers, held)
    if gone := [error for number, error in wrong.items() if number not in held]:
        # A partition that does not exist any more may hold the last record of any key.
        wrong = dict.fromkeys(held, gone[0])
    return pointers, wrong


def unreadable(
    topic: str, id: str | None, pointers: Mapping[int, Pointer], extents: Mapping[int, Extent]
) -> dict[int, GuaranteeError]:
    """The partitions whose pointers are of another topic, or whose next record is gone; each with the reason."""
    found = {
        number: replaced(topic, id, number, one)
        or _added(topic, number, one, len(extents))
        or _gone(topic, number, one, extents.get(number))
        for number, one in pointers.items()
    }
    return {number: error for number, error in found.items() if error is not None}


def replaced(topic: str, id: str | None, number: int, pointer: Pointer) -> GuaranteeError | None:
    """The error if a pointer is of another topic of that name; None where one of the ids is unknown."""
    if not _differ(pointer.topic_id, id):
        return None
    error = other_topic(topic, str(pointer.topic_id), str(id), pointer.reset_command)
    error.place = topic, number
    return error


def _added(topic: str, number: int, pointer: Pointer, count: int) -> GuaranteeError | None:
    """The error for a partition that was added although the work depends on their number.

    The others are read on: what is in them comes before all that writers who know of the new ones will write.
    """
    if pointer.partitions is None or number < pointer.partitions:
        return None
    error = more_partitions(topic, pointer.partitions, count, pointer.reset_command)
    error.place = topic, number
    return error


def _gone(topic: str, number: int, pointer: Pointer, extent: Extent | None) -> GuaranteeError | None:
    if extent is None:
        found = "does not exist"
    elif pointer.next_offset < extent.first:
        found = f"begins at {extent.first}: records were deleted before they were applied"
    elif pointer.next_offset > extent.end:
        found = f"ends at {extent.end}: it was truncated, or deleted and re-created"
    else:
        return None
    at = f"The pointer of {topic}[{number}] is at {pointer.next_offset}, but the partition {found}."
    error = GuaranteeError(at, hint=accept_loss(topic, pointer.reset_command))
    error.place = topic, number
    return error


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _are_past(pointers: Mapping[int, Pointer], extents: Mapping[int, Extent]) -> bool:
    return any(number in extents and one.next_offset > extents[number].end for number, one in pointers.items())


def _with_ends(extents: Mapping[int, Extent], later: Mapping[int, Extent]) -> dict[int, Extent]:
    """The extents with the ends of `later`: a pointer that was read in between lies below them."""
    return {number: Extent(extent.first, later.get(number, extent).end) for number, extent in extents.items()}


def _do_not_exist(topics: tuple[str, ...]) -> str:
    names = ", ".join(map(repr, topics))
    return f"Topic {names} does not exist yet" if len(topics) == 1 else f"Topics {names} do not exist yet"


# How far a pipeline is behind its topics.


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is not applied yet, by partition; and what of the records that were read is in no table."""

    records: Mapping[Place, int]
    """Offsets between the pointer and the last stable offset; 0 where no record is left in between."""
    undecided: Mapping[Place, int] = field(default_factory=dict)
    """Offsets between the last stable and the written end: open transactions, and what waits behind them."""
    oldest_seconds: Mapping[Place, float] = field(default_factory=dict)
    """How old the oldest record is that is not applied, by its own time; partitions without one are left out."""
    stale: Mapping[Place, int] = field(default_factory=dict)
    """Records that were older than their rows, since the pointer was created."""
    dead_letters: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By pipeline and code."""


class BacklogSource(TopicSource, Protocol):
    """A cluster that also shows what readers of committed records do not see."""

    def written_ends(self, topic: str) -> Mapping[int, int]:
        """The end of each partition with the records of open transactions; raises `UnreachableError`."""

    def first_times(self, starts: Mapping[Place, int], *, committed: bool = True) -> Mapping[Place, int]:
        """The times, in milliseconds since 1970, of the first record at or behind each offset.

        Partitions without such a record, or that do not answer soon, are left out. Without `committed` a record of an
        open transaction counts.
        """


def backlog(
    source: BacklogSource,
    topics: Iterable[str],
    pointers: Mapping[Place, int],
    ends: Mapping[Place, int] = NO_ENDS,
    *,
    clock: Callable[[], float] = time.time,
) -> Backlog:
    """What is not applied of some topics; those that do not exist are left out. Raises `UnreachableError`.

    `ends` are those of closed generations: nothing that lies behind them is ever applied.
    """
    return look_behind(source, behind(source, topics, pointers, ends), pointers, ends, clock=clock)


def look_behind(
    source: BacklogSource,
    waiting: Mapping[Place, int],
    pointers: Mapping[Place, int],
    ends: Mapping[Place, int] = NO_ENDS,
    *,
    clock: Callable[[], float] = time.time,
) -> Backlog:
    """Adds what a lag does not show."""
    topics = sorted({topic for topic, _ in waiting})
    # Written ends first: what is committed in between counts as committed.
    written = {(topic, number): end for topic in topics for number, end in source.written_ends(topic).items()}
    held = {(topic, number): one for topic in topics for number, one in (source.extents(topic) or {}).items()}
    undecided = {
        place: 0 if place in ends else max(0, end - held[place].end) for place, end in written.items() if place in held
    }
    late = {place: max(held[place].first, pointers.get(place, 0)) for place in held if waiting.get(place)}
    hung = {place: held[place].end for place, offsets in undecided.items() if offsets and not waiting.get(place)}
    times = {**source.first_times(late), **source.first_times(hung, committed=False)}
    now = clock()
    return Backlog(dict(waiting), undecided, {place: max(0.0, now - ms / 1000) for place, ms in times.items()})


def behind(
    source: TopicSource,
    topics: Iterable[str],
    pointers: Mapping[Place, int],
    ends: Mapping[Place, int] = NO_ENDS,
) -> dict[Place, int]:
    """Offsets between each partition's pointer and its end; 0 where no record is left in between.

    A transactional topic ends with the commit marker of a transaction, which has an offset but is no record; `ends`,
    those of closed generations, are behind a record. Topics that do not exist are left out. Raises `UnreachableError`.
    """
    held = {(topic, number): one for topic in topics for number, one in (source.extents(topic) or {}).items()}
    found = {
        place: max(0, min(one.end, ends.get(place, one.end)) - max(one.first, pointers.get(place, 0)))
        for place, one in held.items()
    }
    few = {place: pointers.get(place) for place, offsets in found.items() if 0 < offsets <= FEW and place not in ends}
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
