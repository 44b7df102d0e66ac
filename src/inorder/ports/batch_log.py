"""A log that takes batches which an engine may run again: what Spark's tasks write records to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from inorder.ports.outbox_store import OutboxRow


@dataclass(frozen=True, slots=True)
class BatchId:
    """Which batch this is. A batch that is run again has the same, and the one after it has `number` + 1."""

    query: str
    """Whoever counts: a number means nothing to another."""
    number: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one part of a batch."""

    records: int
    is_replayed: bool = False
    """Whether an earlier run of the batch had sent it, so that nothing was sent now."""


class Part(Protocol):
    """One part of a batch: all of it is sent, or nothing.

    Raises `TransientError` if the part may be tried again, `RejectedError` for a record that is refused,
    `GuaranteeError` where the batch is not what it was before.
    """

    def add(self, rows: Sequence[OutboxRow]) -> None:
        """Takes the next rows, in order; the id of a row is its place."""

    def commit(self) -> Sent:
        """Makes them visible; returns once that is sure."""

    def abort(self) -> None:
        """Lets go of what is not committed; raises nothing, and may be called at any time."""


class BatchLog(Protocol):
    """Travels pickled to tasks; used by one thread at a time there."""

    def open(self, lane: int, batch: BatchId | None, topics: Collection[str]) -> Part:
        """Begins on the part of a batch that belongs to a lane, and takes the lane from whoever holds it.

        A part that was sent in an earlier run of the batch takes rows and sends none. Where `batch` is None nobody
        knows about earlier runs. `topics` are those of the first rows.
        """
