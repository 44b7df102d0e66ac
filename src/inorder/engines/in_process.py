"""A work without Spark: this process reads all partitions itself, one slice after the other.

It is an engine like the others, with one difference: it does not wait out what fails it. A command is run again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import chain
from typing import Protocol

from inorder.engines.progress import NOBODY, Listener, tell
from inorder.engines.slice_work import PartitionReader, SliceOutcome, SliceWork, SliceWorker, TopicSource, portions
from inorder.engines.survey import survey
from inorder.kafka.admin import Place


class InProcess:
    """Runs one work on the thread that calls it."""

    def __init__(self, work: SliceWork, source: TopicSource) -> None:
        self._work = work
        self._source = source

    def run(self, stop: threading.Event, once: bool = False, listener: Listener = NOBODY) -> None:
        """Blocks until `stop` is set or, with `once`, until the topics are read to their end; raises what fails it."""
        found = survey(self._work, self._source)
        expected: dict[Place, int] = dict(found.pointers)
        with closing(self._work.open()) as worker:
            begin = starts(worker, found.places)
            reader = self._source.open(begin, headers=self._work.needs_headers, tells_ends=once)
            with closing(reader):
                apply_all(
                    reader,
                    worker,
                    _Telling(listener),
                    expected=expected,
                    goes_on=lambda: not stop.is_set(),
                    unread=set(found.places) if once else None,
                )


class _Telling:
    """Hands everything on at once."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def note(self, outcome: SliceOutcome) -> None:
        tell(self._listener, outcome)

    def spent(self, reading: float, applying: float) -> None:
        self._listener.spent({"read": reading, "apply": applying})


# Partitions attended to by one process: read from the pointers on, applied slice after slice.
#
# Nothing that it knows outlives it. Whoever takes the partitions next asks the pointers.

SLICE_RECORDS = 10_000
WAIT_SECONDS = 0.1
"""How long a look waits for a record, and so how late a stop may be noticed while nothing comes."""


class Notes(Protocol):
    """Takes down what was done."""

    def note(self, outcome: SliceOutcome) -> None:
        """A slice was applied."""

    def spent(self, reading: float, applying: float) -> None:
        """So many seconds have gone."""


def starts(worker: SliceWorker, places: Iterable[Place]) -> dict[Place, int | None]:
    """Where reading begins: at the pointers, and with the first record where there is none."""
    places = list(places)
    pointers = {topic: worker.pointers(topic) for topic in {topic for topic, _ in places}}
    return {
        (topic, number): pointers[topic][number].next_offset if number in pointers[topic] else None
        for topic, number in places
    }


def apply_all(
    reader: PartitionReader,
    worker: SliceWorker,
    notes: Notes,
    *,
    expected: dict[Place, int],
    goes_on: Callable[[], bool],
    unread: set[Place] | None = None,
) -> None:
    """Applies what the reader brings until it is told to end or all of `unread` have been read to their end.

    `expected` are the pointers that were seen committed; it is kept up to date.
    """
    while goes_on() and (unread is None or unread):
        began = time.monotonic()
        slices, ended = reader.read(SLICE_RECORDS, WAIT_SECONDS)
        read = time.monotonic()
        for batch in chain.from_iterable(map(portions, slices)):
            place = batch.topic, batch.partition
            outcome = worker.apply(batch, expected.get(place, 0))
            expected[place] = outcome.next_offset
            notes.note(outcome)
        if unread is not None:
            unread -= ended
        notes.spent(read - began, time.monotonic() - read)
