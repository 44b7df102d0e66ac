"""Partitions attended to by one process: read from the pointers on, applied slice after slice.

Nothing that it knows outlives it. Whoever takes the partitions next asks the pointers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Protocol

from inorder.ports.partition_reader import PartitionReader, Place
from inorder.ports.slice_work import SliceOutcome, SliceWorker, portions

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
