"""Events that do not count, because their number is not above every earlier one of their journal.

Two writers that both believe to own a journal append the same numbers. The first one in the log wins (see `life`); the
second is a fork, and whoever finds one reports it. It is **proven** if its number is taken by an event that we know of,
else **suspected**: appends sent in parallel may also arrive in another order. Gaps are no forks, nor is a record that
is read twice, nor a journal that begins again after a purge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from inorder.model.journal import EventRecord, SeqNr


@dataclass(frozen=True, slots=True)
class Fork:
    """An event that came when its journal had already reached `end`."""

    record: EventRecord
    end: SeqNr
    is_proven: bool

    def __str__(self) -> str:
        certainty = "proven" if self.is_proven else "suspected"
        return f"{certainty} fork: seq_nr {self.record.seq_nr} at {self.record.partition_offset} after {self.end}"


class Counted(NamedTuple):
    """Events of a journal, told apart."""

    kept: list[EventRecord]
    forks: list[Fork]


def count(end: SeqNr, records: Sequence[EventRecord]) -> Counted:
    """Which of the records, in the order of the log, count in a journal that ends at `end` (0 if it has no event).

    A fork does not raise the end.
    """
    return Counted(list(records), []) if _rises(end, records) else _told_apart(end, records)


def _rises(end: SeqNr, records: Sequence[EventRecord]) -> bool:
    """Whether every number is above all before it, as next to always."""
    for record in records:
        number = record.event.seq_nr
        if number <= end:
            return False
        end = number
    return True


def _told_apart(end: SeqNr, records: Sequence[EventRecord]) -> Counted:
    kept: list[EventRecord] = []
    forks: list[Fork] = []
    taken = {end}
    for record in records:
        if record.seq_nr > end:
            end = record.seq_nr
            taken.add(end)
            kept.append(record)
        else:
            forks.append(Fork(record, end, record.seq_nr in taken))
    return Counted(kept, forks)
