"""What a journal came to at one of its numbers, and which of several such snapshots somebody wants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from inorder.model.errors import ValidationError
from inorder.model.journal.event import Payload
from inorder.model.journal.seq_nr import MAX_SEQ_NR, MIN_SEQ_NR, SeqNr, checked_seq_nr


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the events up to `seq_nr` amount to; the payload is of the kinds that an event's is, see `Event`."""

    seq_nr: SeqNr
    payload: Payload
    timestamp: datetime
    metadata: object = None
    """JSON of the application's own; None is none."""
    origin: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class SnapshotCriteria:
    """Bounds of number and time, all included; without any, every snapshot fits.

    >>> SnapshotCriteria(max_seq_nr=5).fits(6, datetime(2026, 1, 1).astimezone())
    False
    """

    min_seq_nr: SeqNr = MIN_SEQ_NR
    max_seq_nr: SeqNr = MAX_SEQ_NR
    min_time: datetime | None = None
    max_time: datetime | None = None

    def __post_init__(self) -> None:
        checked_seq_nr(self.min_seq_nr, "min_seq_nr")
        checked_seq_nr(self.max_seq_nr, "max_seq_nr")
        for field, time in (("min_time", self.min_time), ("max_time", self.max_time)):
            if time is not None and time.tzinfo is None:
                raise ValidationError(field, f"{time} has no time zone.", hint="Give an aware datetime.")

    @classmethod
    def of(cls, seq_nr: SeqNr) -> SnapshotCriteria:
        """Only the snapshot at one number."""
        return cls(seq_nr, seq_nr)

    def fits(self, seq_nr: SeqNr, time: datetime) -> bool:
        """Whether a snapshot of this number and time is wanted."""
        is_early = self.min_time is not None and time < self.min_time
        is_late = self.max_time is not None and time > self.max_time
        return self.min_seq_nr <= seq_nr <= self.max_seq_nr and not is_early and not is_late


ANY_SNAPSHOT = SnapshotCriteria()
