"""The engine without Spark, and the loop that it shares with resident tasks: read slices, apply them in order.

The loop keeps no state that outlives it. The next process that consumes the partitions begins at the pointers.

Unlike the Spark engines, `InProcess` does not wait out failures of the environment: it serves commands, which people
run again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import chain

from inorder.engines.progress import NULL_LISTENER, Listener, LoggingListener
from inorder.engines.slice_work import PartitionReader, SliceWork, SliceWorker, TopicSource, portions
from inorder.engines.survey import survey
from inorder.model.partitioning import Place

SLICE_RECORDS = 10_000
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
        with closing(self._work.open()) as worker:
            begin = starts(worker, found.places)
            reader = self._source.open(begin, headers=self._work.needs_headers, reports_ends=once)
            with closing(reader):
                apply_all(
                    reader,
                    worker,
                    LoggingListener(listener),
                    expected=dict(found.pointers),
                    goes_on=lambda: not stop.is_set(),
                    unread=set(found.places) if once else None,
                )


def starts(worker: SliceWorker, places: Iterable[Place]) -> dict[Place, int | None]:
    """Where reading begins: at the pointer of each partition, or None, its first record, if it has no pointer."""
    places = list(places)
    pointers = {topic: worker.pointers(topic) for topic in {topic for topic, _ in places}}
    return {
        (topic, number): pointers[topic][number].next_offset if number in pointers[topic] else None
        for topic, number in places
    }


def apply_all(
    reader: PartitionReader,
    worker: SliceWorker,
    listener: Listener,
    *,
    expected: dict[Place, int],
    goes_on: Callable[[], bool],
    unread: set[Place] | None = None,
) -> None:
    """Applies all slices of the reader until `goes_on()` is false or all of `unread` are read to their end.

    `expected` are the pointers that were seen committed; they are updated.
    """
    while goes_on() and (unread is None or unread):
        began = time.monotonic()
        slices, ended = reader.read(SLICE_RECORDS, WAIT_SECONDS)
        read = time.monotonic()
        for batch in chain.from_iterable(map(portions, slices)):
            place = batch.topic, batch.partition
            outcome = worker.apply(batch, expected.get(place, 0))
            expected[place] = outcome.next_offset
            listener.applied(outcome)
        if unread is not None:
            unread -= ended
        listener.spent({"read": read - began, "apply": time.monotonic() - read})
