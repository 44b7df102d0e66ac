"""Appending events that somebody may have appended before: what the journal has is left out, and the rest appended.

A task that is run again brings the events that it brought before, and the journal's end tells how far it came. What is
at or below the end must be there, or it was overtaken: somebody appended higher numbers of the same journal first, and
a journal never goes back. Such events are lost to it, and that is said loudly. What is below the number that
a journal began with counts as deleted (`life.py`), so there nobody can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import uuid4

from inorder.journal.action import Mark
from inorder.journal.client import Journals
from inorder.journal.life import Life
from inorder.model.errors import GuaranteeError
from inorder.model.journal import MAX_SEQ_NR, Event, Key

MOST_EVENTS: Final = 500
MOST_BYTES: Final = 256 * 1024
"""What one append takes: it is one record of Kafka, and brokers refuse large ones."""


def append_missing(journals: Journals, key: Key, events: Sequence[Event]) -> int:
    """Appends those events, of rising numbers, that the journal lacks; how many these were."""
    life = _life(journals, key)
    ahead = [event for event in events if event.seq_nr > (life.seq_nr if life else 0)]
    _require_there(journals, key, life, events[: len(events) - len(ahead)])
    for some in portions(ahead):
        journals.journal(key).append(some)  # it waits, since nothing may pass what fails
    return len(ahead)


def portions(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """The events in pieces that one append can carry, or the one event that is larger."""
    first = size = 0
    for index, event in enumerate(events):
        length = len(event.payload) if isinstance(event.payload, bytes | str) else 0
        if index > first and (size + length > MOST_BYTES or index - first >= MOST_EVENTS):
            yield events[first:index]
            first, size = index, 0
        size += length
    if events:
        yield events[first:]


def _life(journals: Journals, key: Key) -> Life | None:
    mark = journals.send(key, Mark(str(uuid4()), *journals.sender))
    return journals.reader.moment(key, mark, MAX_SEQ_NR).plan.life


def _require_there(journals: Journals, key: Key, life: Life | None, events: Sequence[Event]) -> None:
    wanted = [event.seq_nr for event in events if life is not None and event.seq_nr > life.delete_to]
    if not wanted:
        return
    found = {record.seq_nr for record in journals.journal(key).read(wanted[0], wanted[-1])}
    lost = [number for number in wanted if number not in found]
    if lost:
        raise GuaranteeError(
            f"The journal {key} is past event {lost[0]} and does not have it: it comes too late.",
            hint="Somebody appended higher numbers first. A journal has one writer at a time, who appends in order.",
        )
