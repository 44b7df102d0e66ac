"""What the pipeline needs from the database that holds a target table, its pointers and its dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

Value: TypeAlias = bool | int | float | str
"""A column's value; None is never one, it stands for "this update does not touch the column"."""

RowKey: TypeAlias = int | str


class FoldedRow(NamedTuple):
    """What the records of one key in one slice amount to; `values` follow the mapping's fields."""

    key: RowKey
    values: tuple[Value | None, ...]
    offset: int
    """The last of the folded records; with the partition's generation it is the row's version."""
    records: int
    """How many records were folded, so that figures count records and not rows."""
    wavered: bool = False
    """The records disagreed on a field: the row must take the version even if it ends as it was."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The authority on how far a partition is applied: all below `next_offset` is in the table."""

    next_offset: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be applied: where it was, why, and its bytes as they came."""

    offset: int
    code: str
    detail: str
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class Written:
    """How the records handed to `upsert` ended, in records."""

    applied: int = 0
    identical: int = 0
    """The row held these values before each record and after it; it was not touched."""
    stale: int = 0
    """The row held a newer version; it was not touched. Never seen while pointers and keys behave."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What one slice adds to the pointer row's counters."""

    written: Written = Written()
    ignored: int = 0
    rejected: int = 0


class SliceTransaction(Protocol):
    """One open transaction on one partition; its verbs are called once each, in the order they stand here.

    Every verb may block on the database. It raises `TransientError` for a fault of the environment and
    `RejectedError` when the database refuses the data itself.
    """

    def lock_pointer(self) -> Pointer:
        """Locks the partition's pointer row until the transaction ends, making it first if need be.

        It waits for any other holder, and reads what that holder committed. A new row starts at offset 0.
        """

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> Written:
        """Writes rows of distinct, ascending keys; None keeps a column, newer rows stay as they are.

        A row that would not change is not touched, unless the update wavered: then its version moves.
        """

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Stores dead letters; one that is stored already stays as it is."""

    def move_pointer(self, next_offset: int, tally: Tally) -> None:
        """Moves the locked pointer and adds the tally to its counters."""


class TableStore(Protocol):
    """A target table with its pointers and dead letters, for one pipeline. Used by one thread at a time."""

    def slice_transaction(self, topic: str, partition: int) -> AbstractContextManager[SliceTransaction]:
        """Begins a transaction; leaving the block commits it, an exception rolls it back.

        When the answer to COMMIT is lost it raises `UnknownOutcomeError`; the next call must work on a new
        connection if the old one is broken.
        """

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        """The committed pointers of a topic, by partition."""

    def close(self) -> None:
        """Gives the connection back; the store may be used again afterwards."""


class TableStores(Protocol):
    """Opens a store wherever it is called.

    It travels pickled to Spark's workers and is a key of their caches. Two that are equal must open equal
    stores, so make it a frozen dataclass.
    """

    def __call__(self) -> TableStore: ...

    def __hash__(self) -> int: ...
