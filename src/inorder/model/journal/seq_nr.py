"""Sequence numbers of a journal's events: they begin at 1, fit 64 bits, and have no zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from inorder.model.errors import ValidationError

SeqNr: TypeAlias = int
"""The number of an event in its journal, from `MIN_SEQ_NR` to `MAX_SEQ_NR`."""

DeleteTo: TypeAlias = int
"""The last number that is deleted; all up to it are."""

MIN_SEQ_NR: Final = 1
MAX_SEQ_NR: Final = 2**63 - 1


def checked_seq_nr(value: object, field: str = "seq_nr") -> SeqNr:
    """The value, if it is a sequence number; else `ValidationError` naming the field.

    >>> checked_seq_nr(0)
    Traceback (most recent call last):
    inorder.model.errors.ValidationError: seq_nr: 0 is not a sequence number, which are 1 to 9223372036854775807.
    """
    if isinstance(value, int) and not isinstance(value, bool) and MIN_SEQ_NR <= value <= MAX_SEQ_NR:
        return value
    raise ValidationError(field, f"{value!r} is not a sequence number, which are {MIN_SEQ_NR} to {MAX_SEQ_NR}.")


def next_seq_nr(value: SeqNr) -> SeqNr | None:
    """The number after this one; None after the last.

    >>> next_seq_nr(1), next_seq_nr(MAX_SEQ_NR)
    (2, None)
    """
    return value + 1 if value < MAX_SEQ_NR else None


def previous_seq_nr(value: SeqNr) -> SeqNr | None:
    """The number before this one; None before the first.

    >>> previous_seq_nr(2), previous_seq_nr(MIN_SEQ_NR)
    (1, None)
    """
    return value - 1 if value > MIN_SEQ_NR else None


@dataclass(frozen=True, slots=True)
class SeqRange:
    """The numbers from `first` to `last`, both included.

    >>> str(SeqRange(1, 5)), str(SeqRange.single(5)), 3 in SeqRange(1, 5)
    ('1..5', '5', True)
    """

    first: SeqNr
    last: SeqNr

    def __post_init__(self) -> None:
        checked_seq_nr(self.first, "from")
        checked_seq_nr(self.last, "to")
        if self.first > self.last:
            raise ValidationError("range", f"{self.first} to {self.last} ends before it begins.")

    @classmethod
    def single(cls, seq_nr: SeqNr) -> SeqRange:
        """The range of one number."""
        return cls(seq_nr, seq_nr)

    @classmethod
    def all(cls) -> SeqRange:
        """Every number there is."""
        return cls(MIN_SEQ_NR, MAX_SEQ_NR)

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}..{self.last}"

    def __contains__(self, part: SeqNr | SeqRange) -> bool:
        if isinstance(part, SeqRange):
            return self.first <= part.first and part.last <= self.last
        return self.first <= part <= self.last

    def __iter__(self) -> Iterator[SeqNr]:
        return iter(range(self.first, self.last + 1))

    def __lt__(self, other: SeqRange) -> bool:
        """Whether it ends before the other begins."""
        return self.last < other.first

    def __gt__(self, other: SeqRange) -> bool:
        """Whether it begins after the other ends."""
        return self.first > other.last

    def intersects(self, other: SeqRange) -> bool:
        """Whether a number is in both."""
        return self.first <= other.last and other.first <= self.last
