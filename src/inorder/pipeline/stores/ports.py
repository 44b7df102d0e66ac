"""What the pipeline needs from the database that holds a target table, its pointers and its dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from inorder.engines.slice_work import Pointer
from inorder.model.errors import RejectedError


class Null(Enum):
    """The one value of its kind: the column becomes null. Python's None stands for "keep" instead."""

    NULL = "null"


NULL: Final = Null.NULL

Value: TypeAlias = bool | int | float | str
"""A column's value; what has no type of its own in JSON (a time, a decimal number, …) is canonical text."""

Assigned: TypeAlias = Value | Null | None
"""What an update does to a column: a value is written, NULL empties it, None keeps it."""

RowKey: TypeAlias = int | str | tuple[int | str, ...]
"""A tuple where the key has several columns."""


class FoldedRow(NamedTuple):
    """What the records of one key in one slice amount to."""

    key: RowKey
    values: tuple[Assigned, ...] | None
    """As the mapping's fields stand; None deletes the row and leaves a tombstone."""
    offset: int
    """The last of the folded records; with the partition's generation it is the row's version."""
    records: int
    """How many records were folded, so that figures count records and not rows."""
    wavered: bool = False
    """The records disagreed on a field: the row must take the version even if it ends as it was."""


class DeadLetter(NamedTuple):
    """A record that could not be applied: where it was, why, and its bytes as they came."""

    offset: int
    code: str
    detail: str
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """How the records handed to `upsert` ended. What the mode does not allow is in none of the figures."""

    applied: int = 0
    identical: int = 0
    """The row held these values before each record and after it; it was not touched."""
    stale: int = 0
    """The row or its tombstone held a newer version and was not touched; never seen while pointers and keys behave."""

    def __add__(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(self.applied + other.applied, self.identical + other.identical, self.stale + other.stale)


@dataclass(frozen=True, slots=True)
class SliceCounters:
    """What one slice adds to the pointer row's counters."""

    written: WriteCounts = WriteCounts()
    ignored: int = 0
    rejected: int = 0


class SliceTransaction(Protocol):
    """One open transaction on one partition; its verbs are called in the order they stand here.

    `isolated`, the two `upsert` and `version` may be called many times, the others once. Every verb may block on the
    database. It raises `TransientError` for a fault of the environment and `RejectedError` when the database refuses
    the data.
    """

    def lock_pointer(self) -> Pointer:
        """Locks the partition's pointer row until the transaction ends, making it first if need be.

        It waits for any other holder, and reads what that holder committed. A new row starts at offset 0.
        """

    def isolated(self) -> AbstractContextManager[None]:
        """A block that an exception undoes, itself alone: the transaction then stands as it did before the block.

        Whatever the database would check at the commit only, it checks inside the block.
        """

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        """Writes rows of distinct, ascending keys by the mapping's mode; newer rows and tombstones stay as they are.

        A row that would not change is not touched, unless the update wavered: then its version moves. After a
        `RejectedError` the transaction is of no use, but for an `isolated` block around the call.
        """

    def upsert_each(self, rows: Sequence[FoldedRow], generation: int) -> Sequence[WriteCounts | RejectedError] | None:
        """Writes each row in an isolated block of its own; how each ended, in order.

        None, and nothing is written, where that would be no quicker than an `upsert` for each.
        """

    def version(self, key: RowKey) -> tuple[int, int] | None:
        """The version of a row, or of its tombstone, generation first; None where there is neither."""

    def settle(self, offset: int, action: str, reason: str) -> bool:
        """Takes a dead letter of this partition out and notes why; False where it is not there (any more)."""

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Stores dead letters; one that is stored already stays as it is."""

    def move_pointer(self, next_offset: int, tally: SliceCounters) -> None:
        """Moves the locked pointer and adds the tally to its counters."""


class TableStore(Protocol):
    """A target table with its pointers and dead letters, for one pipeline. Used by one thread at a time."""

    def install(self) -> None:
        """Makes the tables that do not exist and checks those that do; safe to run at every start."""

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


# Dead letters as people meet them: found, looked at, retried and discarded.

Objection = TypeVar("Objection")


class LetterPlace(NamedTuple):
    """A partition as one pipeline reads it."""

    pipeline: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A record that was rejected: where it was, why, and its bytes as they came."""

    pipeline: str
    topic: str
    partition: int
    offset: int
    generation: int
    """With the offset the version that the record has for ever, whenever it is applied."""
    code: str
    detail: str
    key: bytes | None
    value: bytes | None
    record_timestamp: datetime | None
    recorded_at: datetime

    @property
    def place(self) -> LetterPlace:
        """The partition it came from."""
        return LetterPlace(self.pipeline, self.topic, self.partition)

    @property
    def id(self) -> str:
        """Its name on the command line."""
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are meant; None matches everything."""

    pipeline: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    code: str | None = None
    key: bytes | None = None


class DeadLetters(Protocol):
    """The dead letters of all pipelines of a database."""

    def counts(self, wanted: LetterFilter) -> Mapping[str, int]:
        """How many are meant, by code."""

    def places(self, wanted: LetterFilter) -> Sequence[LetterPlace]:
        """Where they are, in order."""

    def page(self, place: LetterPlace, wanted: LetterFilter, above: int, most: int) -> Sequence[StoredLetter]:
        """Those of one place above an offset, in offset order, at most so many."""

    def never_applied(self, place: LetterPlace, above: int) -> frozenset[int]:
        """The offsets above one of all records that are in no table: dead letters, and those that were discarded."""

    def newest_generation(self, pipeline: str) -> int:
        """The highest generation that the pipeline has read anything of."""

    def discard(self, wanted: LetterFilter, reason: str) -> int:
        """Gives letters up, all or none, and notes why; returns how many there were."""

    def close(self) -> None:
        """Gives the connection back; may be called twice."""


class ConditionalLog(Protocol):
    """Sends a letter's record to the end of its partition if nobody objects, knowing all that stands before it."""

    def send_unless(self, letter: StoredLetter, objection: Callable[[int], Objection | None]) -> Objection | int:
        """Sends, then asks with the record's offset, at a time when everything before it is decided.

        No reader passes the record meanwhile. On None it becomes visible, and its offset is returned. On an objection,
        which is returned, or on an error it never does. Raises `TransientError` where Kafka is away or other
        transactions do not end, `RejectedError` where the broker refuses the record.
        """

    def close(self) -> None:
        """Lets the connections go."""
