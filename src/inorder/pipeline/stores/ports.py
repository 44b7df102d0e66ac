"""What the pipeline needs from its stores: the target table with pointers and dead letters, and the log for retries.

The SQL stores implement these protocols, and so do the fakes of the tests, which check the decisions without a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from inorder.engines.slice_work import Pointer
from inorder.model.errors import RejectedError

MOST_UNKNOWN: Final = 50
OTHER_FIELDS: Final = "other"
_LONGEST_NAME: Final = 63
"""As long as a column can be named."""


def add_unknown(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """The counts of unknown fields with those of a slice; a record may have any name, so their number is bounded.

    >>> add_unknown({"colour": 2}, {"size": 1, "colour": 3})
    {'colour': 5, 'size': 1}
    """
    found = dict(before)
    for name, number in sorted(more.items(), key=lambda each: -each[1]):
        shown = name[:_LONGEST_NAME]
        place = shown if shown in found or len(found) < MOST_UNKNOWN else OTHER_FIELDS
        found[place] = found.get(place, 0) + number
    return dict(sorted(found.items()))


class Null(Enum):
    """The type of `NULL`: the column is set to null. Python's None means "keep" instead."""

    NULL = "null"


NULL: Final = Null.NULL

Value: TypeAlias = bool | int | float | str
"""The value of a column; a type that JSON lacks (a time, a decimal number, …) is canonical text."""

Assigned: TypeAlias = Value | Null | None
"""What an update does to a column: write a value, set it to null (NULL), or keep it (None)."""

RowKey: TypeAlias = int | str | tuple[int | str, ...]
"""A tuple if the key has several columns."""


class FoldedRow(NamedTuple):
    """The combined change of the records of one key in one slice."""

    key: RowKey
    values: tuple[Assigned, ...] | None
    """In the order of the mapping's fields; None deletes the row and leaves a tombstone."""
    offset: int
    """Of the last folded record; with the partition's generation it is the version of the row."""
    records: int
    """How many records were folded; counters count records, not rows."""
    wavered: bool = False
    """The records disagreed on a field: the row must take the version even if it ends as it was."""


class DeadLetter(NamedTuple):
    """A record that could not be applied: its offset, the reason, and its original bytes."""

    offset: int
    code: str
    detail: str
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """What became of the records passed to `upsert`; records that the mode does not allow are not counted."""

    applied: int = 0
    identical: int = 0
    """The row had these values already; it was not touched."""
    stale: int = 0
    """The row or its tombstone has a newer version and was not touched; 0 unless pointers were lost or keys moved."""

    stale_keys: tuple[RowKey, ...] = field(default=(), compare=False)
    """The rows of the stale records, one after the other."""

    def __add__(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(
            self.applied + other.applied,
            self.identical + other.identical,
            self.stale + other.stale,
            self.stale_keys + other.stale_keys,
        )


@dataclass(frozen=True, slots=True)
class SliceCounters:
    """What one slice adds to the counters of the pointer row."""

    written: WriteCounts = WriteCounts()
    ignored: int = 0
    rejected: int = 0
    codes: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Of the rejected records; they are not stored with the pointer, as the dead letters have them."""


class SliceTransaction(Protocol):
    """One open transaction on one partition; its methods are called in the order given here.

    `partitions`, `savepoint`, the two `upsert` methods and `version` may be called many times, the others once. Every
    method may block on the database, and raises `TransientError` when the environment fails and `RejectedError` when
    the database refuses the data.
    """

    def lock_pointer(self) -> Pointer:
        """Locks the pointer row of the partition until the transaction ends, and creates it if it does not exist.

        Waits for any other holder, and reads what that holder committed. A new row starts at offset 0. Its leader epoch
        is not read.
        """

    def partitions(self) -> int:
        """How many partitions of the topic have a pointer: all of them, once an engine has surveyed the topic."""

    def savepoint(self) -> AbstractContextManager[None]:
        """A block that is rolled back alone if an exception leaves it.

        Constraints that the database would check at the commit are checked inside the block.
        """

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        """Writes rows of distinct, ascending keys by the mapping's mode; newer rows and tombstones stay as they are.

        A row that would not change is not touched, unless the update wavered: then its version moves. After a
        `RejectedError` the transaction cannot continue, unless a `savepoint` block surrounds the call.
        """

    def upsert_each(self, rows: Sequence[FoldedRow], generation: int) -> Sequence[WriteCounts | RejectedError] | None:
        """Writes each row in a savepoint of its own; returns the result of each, in order.

        None, and nothing is written, if that would be no quicker than an `upsert` for each.
        """

    def version(self, key: RowKey) -> tuple[int, int] | None:
        """The version (generation, offset) of a row or of its tombstone; None if there is neither."""

    def settle(self, offset: int, action: str, reason: str) -> bool:
        """Deletes a dead letter of this partition and records the reason; False if it does not exist."""

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Stores dead letters; an existing one stays as it is."""

    def note_unknown(self, fields: Mapping[str, int]) -> None:
        """Adds to the pointer how many records had which fields that the mapping does not name.

        At most `MOST_UNKNOWN` names are kept; the others count as `other`.
        """

    def move_pointer(self, next_offset: int, counters: SliceCounters, leader_epoch: int | None = None) -> None:
        """Moves the locked pointer and adds to its counters; `leader_epoch` is that of the record before it."""


class TableStore(Protocol):
    """A target table with its pointers and dead letters, for one pipeline. Used by one thread at a time."""

    def install(self) -> None:
        """Creates missing tables, the target too, and checks existing ones; may be run again."""

    def check(self) -> None:
        """Raises `ConfigurationError` for a target table that cannot hold the rows; changes nothing."""

    def slice_transaction(self, topic: str, partition: int) -> AbstractContextManager[SliceTransaction]:
        """Begins a transaction; leaving the block commits it, an exception rolls it back.

        Raises `UnknownOutcomeError` if the answer to COMMIT is lost; the next call then opens a new connection.
        """

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        """The committed pointers of a topic, by partition."""

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        """Creates missing pointers and stores the topic's id where there is none; see `SliceWorker.begin`.

        A new partition has the generation of the others.
        """

    def note_waiting(self, topic: str, partition: int, reason: str) -> None:
        """Writes beside the pointer why a partition waits, for people; the next slice that is applied ends it."""

    def close(self) -> None:
        """Closes the connection; the store may be used again afterwards."""


class TableStores(Protocol):
    """Opens a store in the process that calls it.

    It is pickled to Spark's workers and is a key of their caches. Equal objects must open equal stores, so make it a
    frozen dataclass.
    """

    def __call__(self) -> TableStore: ...

    def __hash__(self) -> int: ...


# Dead letters for operators: list, retry, discard.

Objection = TypeVar("Objection")


class LetterPlace(NamedTuple):
    """A partition as one pipeline reads it."""

    pipeline: str
    topic: str
    partition: int


class LetterPosition(NamedTuple):
    """The place of a letter among all, by which the next page is found; the default is before the first."""

    pipeline: str = ""
    topic: str = ""
    partition: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters of one topic that a pipeline rejected with the same code."""

    pipeline: str
    topic: str
    code: str
    count: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A rejected record: its coordinates, the reason, and its original bytes."""

    pipeline: str
    topic: str
    partition: int
    offset: int
    generation: int
    """With the offset the version of the record, whenever it is applied."""
    code: str
    detail: str
    key: bytes | None
    value: bytes | None
    record_timestamp: datetime | None
    recorded_at: datetime

    @property
    def place(self) -> LetterPlace:
        return LetterPlace(self.pipeline, self.topic, self.partition)

    @property
    def position(self) -> LetterPosition:
        return LetterPosition(self.pipeline, self.topic, self.partition, self.offset)

    @property
    def id(self) -> str:
        """How commands name it."""
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters to select; None matches everything."""

    pipeline: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    code: str | None = None
    key: bytes | None = None


class SettledLetter(NamedTuple):
    """A letter that an action has settled."""

    pipeline: str
    topic: str
    partition: int
    offset: int
    code: str
    key: bytes | None

    @property
    def id(self) -> str:
        """How commands name it."""
        return f"{self.topic}:{self.partition}:{self.offset}"


class DeadLetters(Protocol):
    """The dead letters of all pipelines of a database."""

    def counts(self, wanted: LetterFilter) -> Mapping[str, int]:
        """The number of selected letters, by code."""

    def places(self, wanted: LetterFilter) -> Sequence[LetterPlace]:
        """The partitions of the selected letters, in order."""

    def page(self, place: LetterPlace, wanted: LetterFilter, above: int, most: int) -> Sequence[StoredLetter]:
        """The selected letters of one partition above an offset, in offset order, at most `most`."""

    def never_applied(self, place: LetterPlace, above: int) -> frozenset[int]:
        """The offsets, above one, of all records that are in no table: dead letters and discarded ones."""

    def newest_generation(self, pipeline: str) -> int:
        """The highest generation of which the pipeline has read a record."""

    def discard(self, wanted: LetterFilter, reason: str) -> int:
        """Deletes the selected letters, all or none, and records the reason; returns their number."""

    def close(self) -> None:
        """May be called twice."""


class ConditionalLog(Protocol):
    """Sends the record of a letter to the end of its partition, on a condition about all records before it."""

    def send_unless(self, letter: StoredLetter, objection: Callable[[int], Objection | None]) -> Objection | int:
        """Sends the record, then calls `objection` with its offset once all records before it are decided.

        No reader passes the record meanwhile. If `objection` returns None, the record becomes visible, and its offset
        is returned. Else, or after an error, it never becomes visible, and the objection is returned. Raises
        `TransientError` if Kafka is away or other transactions do not end, `RejectedError` if the broker refuses the
        record.
        """

    def close(self) -> None: ...
