"""What an action does to a journal in the store: (head, action) → the next head, and the statements that lead there.

An action that the head already includes (by its offset) does nothing, so replaying a topic from any offset is harmless.
The rules are those of `life.py`, so that a journal reads the same before and after it is replicated:

| the original                                             | here                                                      |
|---|---|
| an append with lower numbers lowers the head's seq_nr    | the first writer wins; the rest are forks, and reported   |
| a delete with a lower number lowers delete_to            | the larger one stays                                      |
| after a delete of a journal that is not there, an append | the append begins the journal: delete_to falls below it,  |
| of smaller numbers is never visible                      | and it gets a record id                                   |

Statements are values: the decision is made once, each store only translates it. They are executed in this order. In a
store without transactions a crash may fall between any two; the order is such that executing all again is correct.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Generic, NamedTuple, TypeAlias, TypeVar, assert_never
from uuid import UUID

from inorder.journal.action import (
    KEEP_EXPIRY,
    Action,
    Append,
    Delete,
    ExpiryChange,
    Mark,
    Purge,
    RemoveExpiry,
    SetExpiry,
    apply_expiry_change,
    decide_expiry_change,
    expiry_at,
)
from inorder.journal.life import Fork, Life, after_append, after_delete, life_of, separate_forks
from inorder.journal.segments import SegmentSpan, add_gaps, journal_segment
from inorder.journal.stores.ports import JournalHead
from inorder.model.journal import MIN_SEQ_NR, DeleteTo, EventRecord, PartitionOffset, SeqNr, SeqRange


@dataclass(frozen=True, slots=True)
class InsertEvents:
    """Rows of one segment of `journal`; each carries the record id of its journal's life."""

    segment: int
    events: tuple[EventRecord, ...]
    record_id: UUID | None


@dataclass(frozen=True, slots=True)
class InsertHead:
    """A new row of `metajournal`; it is created and updated at the time given."""

    head: JournalHead
    created: datetime
    origin: str | None


@dataclass(frozen=True, slots=True)
class UpdateHead:
    """Columns of a row of `metajournal`; None leaves a column as it is."""

    partition_offset: PartitionOffset
    updated: datetime
    seq_nr: SeqNr | None = None
    delete_to: DeleteTo | None = None
    clears_delete_to: bool = False
    record_id: UUID | None = None
    expiry: ExpiryChange = KEEP_EXPIRY
    gaps: tuple[SegmentSpan, ...] | None = None
    """Not a column of the original; a store that needs no gaps ignores it."""


@dataclass(frozen=True, slots=True)
class DeleteEvents:
    """All rows of some segments of `journal`; of the last one only those up to `to`, if that is given."""

    segments: SegmentSpan
    to: SeqNr | None = None
    gaps: tuple[SegmentSpan, ...] = ()
    """Segments among them that have no rows, so that a store may leave them out."""


@dataclass(frozen=True, slots=True)
class DeleteHead:
    """The row of `metajournal`; before it the snapshots of the life that ends: those placed below the purge."""


Statement: TypeAlias = InsertEvents | InsertHead | UpdateHead | DeleteEvents | DeleteHead


@dataclass(frozen=True, slots=True)
class Change:
    """The head after an action, the statements for it, and events that do not count."""

    head: JournalHead | None
    statements: tuple[Statement, ...] = ()
    forks: tuple[Fork, ...] = ()

    @property
    def is_change(self) -> bool:
        return bool(self.statements)


@dataclass(frozen=True, slots=True)
class ActionPlace:
    """Where and when an action, or the last of several that are applied together, was written."""

    partition_offset: PartitionOffset
    timestamp: datetime


def append(
    head: JournalHead | None,
    at: ActionPlace,
    events: Sequence[EventRecord],
    *,
    segment_size: int,
    record_id: UUID,
    begun: Life | None = None,
    rewrites_expiry: bool = False,
    dropped: Sequence[EventRecord] = (),
) -> Change:
    """Appends events, perhaps of several records; `segment_size` and `record_id` are for a journal that begins.

    `begun` is the life after the first append of such a journal, for the case that this append is left out because it
    is deleted again: what is deleted must not depend on how the log is cut into slices. `rewrites_expiry` writes the
    expiry even if it ends as it was: in a store that goes by the time of each cell, a slow replicator may still write
    the one that it had in between. `dropped` are events that are left out because they are deleted again: another
    replicator may write them, so their segments are no gaps.
    """
    if head is None:
        return _begin(at, events, segment_size, record_id, begun, dropped)
    if _includes(head, at.partition_offset):
        return Change(head)
    life = life_of(head)
    counted = separate_forks(life.end if life else 0, _unseen(head, events))
    if not counted.kept:
        moved = replace(head, partition_offset=at.partition_offset)
        return Change(moved, (UpdateHead(at.partition_offset, at.timestamp),), tuple(counted.forks))
    after = _after(life, counted.kept, begun)
    grown = replace(
        head,
        partition_offset=at.partition_offset,
        seq_nr=after.seq_nr,
        delete_to=after.delete_to or None,
        record_id=head.record_id if head.is_begun else record_id,
    )
    grown = replace(grown, gaps=_gaps(head, grown, counted.kept, dropped))
    change = decide_expiry_change(head.expiry, counted.kept[-1].metadata.payload.expire_after, at.timestamp)
    if rewrites_expiry and change == KEEP_EXPIRY:
        change = RemoveExpiry() if head.expiry is None else SetExpiry(head.expiry)
    grown = replace(grown, expiry=apply_expiry_change(head.expiry, change))
    update = replace(_update(head, grown, at), expiry=change)
    return Change(grown, (*_inserts(grown, counted.kept), update), tuple(counted.forks))


def delete(head: JournalHead | None, at: ActionPlace, to: DeleteTo, *, segment_size: int, origin: str | None) -> Change:
    """Deletes all events up to a number, the journal's last one at most."""
    if head is None:
        made = JournalHead(at.partition_offset, segment_size, to, to)
        return Change(made, (InsertHead(made, at.timestamp, origin),))
    if _includes(head, at.partition_offset):
        return Change(head)
    life = after_delete(life_of(head), to)
    left = replace(head, partition_offset=at.partition_offset, seq_nr=life.seq_nr, delete_to=life.delete_to or None)
    left = replace(left, gaps=_gaps(head, left, (), ()) if head.gaps else ())
    return Change(left, (_update(head, left, at), *_deletes(head, life)))


def purge(head: JournalHead | None, at: ActionPlace) -> Change:
    """Removes the journal.

    The head's offset stays until its row is deleted, so that the purge is repeated after a crash midway. One segment
    more than needed is deleted at either end, for rows that a crash may have left there.
    """
    if head is None or (_includes(head, at.partition_offset) and at.partition_offset != head.partition_offset):
        return Change(head)
    delete_to = head.delete_to or 0
    all_gone = max(head.seq_nr, delete_to)
    hidden = replace(head, seq_nr=all_gone, delete_to=all_gone)
    first = journal_segment(min(delete_to or MIN_SEQ_NR, head.seq_nr), head.segment_size)
    last = journal_segment(all_gone, head.segment_size)
    rows = DeleteEvents(SegmentSpan(max(0, first - 1), last + 1), gaps=head.gaps)
    hiding = _update(head, hidden, replace(at, partition_offset=head.partition_offset))
    return Change(None, (hiding, rows, DeleteHead()) if hidden != head else (rows, DeleteHead()))


def _begin(
    at: ActionPlace,
    events: Sequence[EventRecord],
    segment_size: int,
    record_id: UUID,
    begun: Life | None,
    dropped: Sequence[EventRecord],
) -> Change:
    counted = separate_forks(0, events)
    first, last = counted.kept[0], counted.kept[-1]
    life = _after(None, counted.kept, begun)
    after = last.metadata.payload.expire_after
    head = JournalHead(
        at.partition_offset,
        segment_size,
        life.seq_nr,
        life.delete_to or None,
        None if after is None else expiry_at(at.timestamp, after),
        record_id,
    )
    head = replace(head, gaps=_gaps(None, head, counted.kept, dropped))
    inserted = InsertHead(head, at.timestamp, first.origin)
    return Change(head, (*_inserts(head, counted.kept), inserted), tuple(counted.forks))


def _after(life: Life | None, events: Sequence[EventRecord], begun: Life | None) -> Life:
    after = after_append(life, SeqRange(events[0].seq_nr, events[-1].seq_nr))
    is_first = life is None or not life.is_begun
    return after if begun is None or not is_first else replace(after, delete_to=begun.delete_to)


def _includes(head: JournalHead, place: PartitionOffset) -> bool:
    # Offsets of two partitions cannot be compared: a journal that moved takes whatever comes.
    moved = head.partition_offset.partition != place.partition
    return not moved and place.offset <= head.partition_offset.offset


def _unseen(head: JournalHead, events: Sequence[EventRecord]) -> Sequence[EventRecord]:
    """The events after the head; they come in the order of the log, so if the first is, all are."""
    if not _includes(head, events[0].partition_offset):
        return events
    return [event for event in events if not _includes(head, event.partition_offset)]


def _inserts(head: JournalHead, events: Sequence[EventRecord]) -> Iterator[InsertEvents]:
    first, last = (journal_segment(event.seq_nr, head.segment_size) for event in (events[0], events[-1]))
    if first == last:  # numbers rise
        yield InsertEvents(first, tuple(events), head.record_id)
        return
    for segment, rows in groupby(events, lambda event: journal_segment(event.seq_nr, head.segment_size)):
        yield InsertEvents(segment, tuple(rows), head.record_id)


def _gaps(
    old: JournalHead | None, new: JournalHead, kept: Sequence[EventRecord], dropped: Sequence[EventRecord]
) -> tuple[SegmentSpan, ...]:
    """The gaps of a head that has grown by some events, or that was deleted further."""
    size = new.segment_size
    first = journal_segment((new.delete_to or 0) + 1, size)
    is_begun = old is not None and old.is_begun
    last = journal_segment(old.seq_nr, size) if old is not None and is_begun else first - 1
    gaps = () if old is None else old.gaps
    if not kept or journal_segment(kept[-1].seq_nr, size) <= last + 1:  # as nearly always
        return add_gaps(gaps, last, (), first) if gaps else ()
    end = old.seq_nr if old is not None and is_begun else 0
    written = [event.seq_nr for event in (*kept, *dropped) if end < event.seq_nr <= new.seq_nr]
    return add_gaps(gaps, last, sorted({journal_segment(number, size) for number in written}), first)


def _update(old: JournalHead, new: JournalHead, at: ActionPlace) -> UpdateHead:
    return UpdateHead(
        at.partition_offset,
        at.timestamp,
        seq_nr=new.seq_nr if new.seq_nr != old.seq_nr else None,
        delete_to=new.delete_to if new.delete_to != old.delete_to else None,
        clears_delete_to=new.delete_to is None and old.delete_to is not None,
        record_id=new.record_id if new.record_id != old.record_id else None,
        gaps=new.gaps if new.gaps != old.gaps else None,
    )


def _deletes(head: JournalHead, life: Life) -> Iterator[DeleteEvents]:
    old = head.delete_to or 0
    if not life.is_begun or life.delete_to <= old:
        return
    first = journal_segment(old + 1, head.segment_size)
    last = journal_segment(life.delete_to, head.segment_size)
    to = None if life.delete_to == life.seq_nr else life.delete_to
    yield DeleteEvents(SegmentSpan(first, last), to, head.gaps)


R = TypeVar("R")
"""What the caller needs to write a record."""


class ActionRecord(NamedTuple, Generic[R]):
    """An action, its offset, and its record."""

    offset: int
    action: Action
    record: R


@dataclass(frozen=True, slots=True)
class CollapsedAppends(Generic[R]):
    """Appends that are written together; `offset` is that of the newest."""

    offset: int
    records: tuple[ActionRecord[R], ...]


@dataclass(frozen=True, slots=True)
class CollapsedDelete(Generic[R]):
    offset: int
    action: Delete
    record: R


@dataclass(frozen=True, slots=True)
class CollapsedPurge(Generic[R]):
    offset: int
    record: R


Collapsed: TypeAlias = CollapsedAppends[R] | CollapsedDelete[R] | CollapsedPurge[R]

_Kept: TypeAlias = list[ActionRecord[R]] | CollapsedDelete[R] | CollapsedPurge[R]
"""While collapsing: appends as a list, the newest first."""


def collapse(records: Sequence[ActionRecord[R]]) -> list[Collapsed[R]]:
    """What the records of one journal, in offset order, amount to: fewer writes for the same result, in offset order.

    Records are taken from the newest to the oldest, so that what comes later is known:

    - a mark is nothing; before a purge nothing matters;
    - of two deletes in a row the one that reaches further stays, with its own offset;
    - a delete before appends is dropped if a later delete reaches as far;
    - appends in a row become one, with the newest offset; an append is dropped if a later delete covers all of it;
    - but the last append before a delete always stays: it says where the journal ends, and how long it lives;
    - and so does an append that reaches as far as those between it and the delete: they are forks, and must not count
      instead. (Not as far as those after the delete too: the delete reaches at most to where the journal ends then.)
    """
    newer: list[_Kept[R]] = []
    furthest = end = 0
    for record in reversed(records):
        if newer and isinstance(newer[-1], CollapsedPurge):
            break
        match record.action:
            case Mark():
                pass
            case Purge():
                newer.append(CollapsedPurge(record.offset, record.record))
            case Delete():
                _delete(newer, record, record.action, furthest)
                furthest = max(furthest, record.action.to)
            case Append():
                end = _append(newer, record, record.action, furthest, end)
            case _:
                assert_never(record.action)
    return [
        CollapsedAppends(kept[0].offset, tuple(kept[::-1])) if isinstance(kept, list) else kept
        for kept in reversed(newer)
    ]


def _delete(newer: list[_Kept[R]], record: ActionRecord[R], action: Delete, furthest: int) -> None:
    deletion = CollapsedDelete(record.offset, action, record.record)
    following = newer[-1] if newer else None
    if isinstance(following, CollapsedDelete):
        if action.to >= following.action.to:
            newer[-1] = deletion
    elif action.to > furthest:
        newer.append(deletion)


def _append(newer: list[_Kept[R]], record: ActionRecord[R], action: Append, furthest: int, end: int) -> int:
    """Keeps the append if it matters; returns where the appends that are now to be written together end."""
    following, last = newer[-1] if newer else None, action.range.last
    if not isinstance(following, list):
        newer.append([record])
        return last
    if last > furthest or last >= end:
        following.append(record)
    return max(end, last)
