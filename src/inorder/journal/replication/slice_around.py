"""A slice around another one: what it does not say itself, the other one does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from inorder.journal.replication.quarantine import Quarantined
from inorder.journal.replication.replica import ReplicaSlice
from inorder.model.journal import Key


class SliceAround:
    """The verbs that nobody has anything to add to."""

    def __init__(self, writing: ReplicaSlice) -> None:
        self._slice = writing

    def attempt(self) -> AbstractContextManager[None]:
        """Passed on."""
        return self._slice.attempt()

    def free(self, purged: Mapping[Key, int]) -> None:
        """Passed on."""
        self._slice.free(purged)

    def lift(self, key: Key, partition: int, offset: int) -> None:
        """Passed on."""
        self._slice.lift(key, partition, offset)

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        """Passed on."""
        self._slice.quarantine(records)
