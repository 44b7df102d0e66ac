"""Dead letters as people meet them: found, looked at, retried and discarded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

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
class Filter:
    """Which dead letters are meant; None matches everything."""

    pipeline: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    code: str | None = None
    key: bytes | None = None


class DeadLetters(Protocol):
    """The dead letters of all pipelines of a database."""

    def counts(self, wanted: Filter) -> Mapping[str, int]:
        """How many are meant, by code."""

    def places(self, wanted: Filter) -> Sequence[LetterPlace]:
        """Where they are, in order."""

    def page(self, place: LetterPlace, wanted: Filter, above: int, most: int) -> Sequence[StoredLetter]:
        """Those of one place above an offset, in offset order, at most so many."""

    def never_applied(self, place: LetterPlace, above: int) -> frozenset[int]:
        """The offsets above one of all records that are in no table: dead letters, and those that were discarded."""

    def newest_generation(self, pipeline: str) -> int:
        """The highest generation that the pipeline has read anything of."""

    def discard(self, wanted: Filter, reason: str) -> int:
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
