"""What a replicator needs of the store that it writes journals to.

One slice of a partition is carried out at a time, and the partition's offset moves last. A store with transactions
makes all of it visible at once. One without carries the statements out in their order, so that whoever finds the offset
moved finds everything else too, and repeating the whole is harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from inorder.journal.replication.quarantine import Quarantined
from inorder.journal.replication.statements import Statement
from inorder.model.journal import Key
from inorder.ports.journal_store import JournalHead


class Dated(NamedTuple):
    """A statement and the offset of the action behind it, which decides where a store has no order of its own."""

    offset: int
    statement: Statement


@dataclass(frozen=True, slots=True)
class JournalChange:
    """What a slice comes to for one journal: the statements in their order, and the head that they lead to."""

    key: Key
    statements: Sequence[Dated]
    head: JournalHead | None


class ReplicaSlice(Protocol):
    """One slice being written; the verbs are called in this order."""

    def lock_offset(self) -> int | None:
        """The partition's replicated offset, which nobody else moves until the slice ends; None before the first."""

    def parked(self, keys: Sequence[Key]) -> Collection[Key]:
        """Those of the journals that have records in quarantine."""

    def heads(self, keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
        """The heads of those journals that have one."""

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        """Writes the changes of different journals; `RejectedError` where the store refuses one for its content."""

    def attempt(self) -> AbstractContextManager[None]:
        """A block after whose exception nothing of it is left that anybody sees, and the slice goes on."""

    def free(self, purged: Mapping[Key, int]) -> None:
        """Removes the records of these journals from quarantine: a purge at the offset given has made them void."""

    def lift(self, key: Key, partition: int, offset: int) -> None:
        """Removes one record from quarantine, because it is applied."""

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        """Keeps records that are not applied; one that is there already stays."""

    def move_offset(self, offset: int) -> None:
        """Everything up to the offset is written; it never moves back."""


class JournalReplica(Protocol):
    """The write side of a store. Used by one thread at a time."""

    def slice(self, topic: str, partition: int) -> AbstractContextManager[ReplicaSlice]:
        """Begins a slice; an exception leaves what can be begun again.

        `UnknownOutcomeError` where the answer to the commit is lost: the offset tells. `FencedError` where another
        replicator has moved the offset meanwhile.
        """

    def offsets(self, topic: str) -> Mapping[int, int]:
        """The replicated offsets of a topic, by partition."""

    def close(self) -> None:
        """Gives connections back; may be used again afterwards."""
