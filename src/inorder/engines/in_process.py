"""The engine without Spark, and the loop that it shares with resident tasks: read slices, apply them in order.

The loop keeps no state that outlives it. The next process that consumes the partitions begins at the pointers.

Unlike the Spark engines, `InProcess` does not wait out failures of the environment: it serves commands, which people
run again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from inorder.engines.holds import Holds
from inorder.engines.progress import NULL_LISTENER, Listener, LoggingListener
from inorder.engines.slice_work import PartitionReader, Slice, SliceWork, SliceWorker, TopicSource, apply_at, portions
from inorder.engines.survey import replaced, survey
from inorder.model.errors import MassRefusalError
from inorder.model.partitioning import Place

SLICE_RECORDS = 40_000
"""A transaction has a price of its own, so a backlog is read in large slices; `PORTION_BYTES` bounds large records."""
WAIT_SECONDS = 0.1
"""How long a read waits for a record, and so how late a stop may be noticed while no record arrives."""


class InProcess:
    """Runs one work on the calling thread, all partitions, one slice after the other."""

    def __init__(self, work: SliceWork, source: TopicSource) -> None:
        self._work = work
        self._source = source

    def run(self, stop: threading.Event, once: bool = False, listener: Listener = NULL_LISTENER) -> None:
        """Blocks until `stop` is set or, with `once`, until the topics are read to their end; raises every error."""
        found = survey(self._work, self._source)
        for error in found.stopped.values():
            raise error
        with closing(self._work.open()) as worker:
            begin = begin_at(worker, self._source, found.places)
            reader = self._source.open(
                begin.offsets, headers=self._work.needs_headers, reports_ends=once, epochs=begin.epochs
            )
            with closing(reader):
                heard = LoggingListener(listener)
                holds = Holds(heard, once=True)
                apply_all(
                    reader,
                    worker,
                    heard,
                    ids=begin.ids,
                    expected=dict(found.pointers),
                    goes_on=lambda: not stop.is_set() and not holds.errors,
                    holds=holds,
                    unread=set(found.places) if once else None,
                )
                for refusal in holds.errors:
                    raise refusal


class Beginning(NamedTuple):
    """Where the reading of some partitions begins."""

    offsets: dict[Place, int | None]
    """The pointer of each partition, or None, its first record, if it has no pointer."""
    epochs: dict[Place, int]
    """The leader epochs of the records before them, where they are known."""
    ids: dict[str, str | None]
    """Which topics they are, by name."""


def begin_at(worker: SliceWorker, source: TopicSource, places: Iterable[Place]) -> Beginning:
    """Reads where to begin; raises `OtherTopicError` where a pointer is of another topic of that name."""
    places = list(places)
    topics = {topic for topic, _ in places}
    # The id is read after the pointers and before the first record: a topic that is replaced meanwhile has another.
    pointers = {topic: worker.pointers(topic) for topic in topics}
    ids = {topic: source.topic_id(topic) for topic in topics}
    found = {place: pointers[place[0]].get(place[1]) for place in places}
    for (topic, number), one in found.items():
        if one is not None and (error := replaced(topic, ids[topic], number, one)) is not None:
            raise error
    return Beginning(
        offsets={place: None if one is None else one.next_offset for place, one in found.items()},
        epochs={place: one.leader_epoch for place, one in found.items() if one and one.leader_epoch is not None},
        ids=ids,
    )


def apply_all(
    reader: PartitionReader,
    worker: SliceWorker,
    listener: Listener,
    *,
    ids: Mapping[str, str | None],
    expected: dict[Place, int],
    goes_on: Callable[[], bool],
    holds: Holds,
    unread: set[Place] | None = None,
) -> bool:
    """Applies all slices of the reader until `goes_on()` is false or all of `unread` are read to their end.

    `ids` say which topics are read; `expected` are the pointers that were seen committed, and are updated; `holds` are
    the partitions that wait. Returns whether all must be read again from their pointers, because one that waited goes
    on and its later records were dropped.
    """

    def apply(batch: Slice, waited_seconds: float) -> bool:
        """Whether the slice was applied; if not, its partition waits."""
        place = batch.topic, batch.partition
        known = replace(batch, topic_id=ids.get(batch.topic), waited_seconds=waited_seconds)
        try:
            outcome = apply_at(worker, known, expected.get(place, 0))
        except MassRefusalError as error:
            holds.hold(place, error, batch)
            return False
        expected[place] = outcome.next_offset
        listener.applied(outcome)
        return True

    while goes_on() and (unread is None or unread):
        began = time.monotonic()
        slices, ended = reader.read(SLICE_RECORDS, WAIT_SECONDS)
        read = time.monotonic()
        for batch in chain.from_iterable(map(portions, slices)):
            place = batch.topic, batch.partition
            if place in holds:
                holds.keep(batch)
            else:
                apply(batch, holds.waited(place))
        for head in holds.due_heads():
            if apply(head, head.waited_seconds) and holds.release((head.topic, head.partition)):
                return True
        if unread is not None:
            unread -= ended
        listener.spent({"read": read - began, "apply": time.monotonic() - read})
    return False
