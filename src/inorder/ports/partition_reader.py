"""What engines need from Kafka: which partitions there are, what they hold, and their records as slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from inorder.ports.slice_work import Slice

Place: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets that a partition holds: from `first` up to, not including, `end`; open transactions are beyond it."""

    first: int
    end: int


class Reading(NamedTuple):
    """What one look brought."""

    slices: list[Slice]
    """In offset order within each partition; the offsets of one partition rise from look to look."""
    ended: frozenset[Place]
    """Partitions whose end was reached, behind all slices; only told by readers that were asked for it."""


class PartitionReader(Protocol):
    """Some partitions being read, committed records only. Used by one thread."""

    def read(self, most: int, seconds: float) -> Reading:
        """Waits so long for the first record, then takes what is there, at most so many records.

        A broker that is away is waited for. Raises `TransientError` where reading must begin anew, `GuaranteeError`
        where the record that is due is no longer there.
        """

    def close(self) -> None:
        """Lets the connections go."""


class TopicSource(Protocol):
    """A cluster; it travels pickled to Spark's workers."""

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        """The partitions of a topic, or None while there is no such topic. Raises `UnreachableError`."""

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has, or None while there is no such topic. Raises `UnreachableError`."""

    def open(
        self, starts: Mapping[Place, int | None], *, headers: bool = False, tells_ends: bool = False
    ) -> PartitionReader:
        """Reads each partition from an offset on, or from its first record where that is None."""
