"""Says after each slice how far the store is, for readers that would rather wait for it than read Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Protocol

from inorder.ports.slice_work import Slice, SliceOutcome, SliceWorker
from inorder.ports.table_store import Pointer


class Announcer(Protocol):
    """Publishes notices. Used by one thread, which never waits for it; nothing that it meets is raised."""

    def announce(self, topic: str, partition: int, offset: int) -> None:
        """The store has everything of the partition up to the offset; only the newest of several need be told."""

    def close(self) -> None:
        """Sends what is waiting, within a limit; may be used again afterwards."""


class AnnouncingWorker:
    """A worker that announces what it has applied, right after the commit and in the process that made it.

    The driver hears of slices too, but later: reports of resident tasks are a twentieth of a second apart.
    """

    def __init__(self, worker: SliceWorker, announcer: Announcer) -> None:
        self._worker = worker
        self._announcer = announcer

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        """Where each partition goes on."""
        return self._worker.pointers(topic)

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        """Applies a slice, then tells how far the store is: also where another replicator was first."""
        outcome = self._worker.apply(batch, expected)
        if outcome.next_offset > 0:
            self._announcer.announce(outcome.topic, outcome.partition, outcome.next_offset - 1)
        return outcome

    def close(self) -> None:
        """Gives connections back."""
        with closing(self._worker):
            self._announcer.close()
