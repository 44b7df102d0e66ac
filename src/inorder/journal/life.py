"""What the actions of one journal amount to: the one set of rules that reader, store and head cache follow.

| what there is   | append f..t                | delete to                    | purge   | mark    |
|---|---|---|---|---|
| nothing         | begins; all below f is gone| a bound, and no event yet    | nothing | nothing |
| a bound         | begins; bound at most f-1  | the larger bound             | nothing | same    |
| a journal       | ends at the larger number  | up to its end at most        | nothing | same    |

**The first writer wins.** An event counts if its number is above every earlier one of its journal's life, in the order
of the log. One that is not is a *fork*: a second writer, or the same append sent twice. It never replaces what is
there and never lowers where the journal ends. The rule needs nothing but the log's order, so a journal reads the same
whether its actions are replicated or not.

Two writers that both believe to own a journal append the same numbers. A fork is **proven** if its number is taken by a
known event, else **suspected**: appends sent in parallel may also arrive in another order. Gaps are no forks, nor is a
record that is read twice, nor a journal that begins again after a purge. Every component that finds a fork reports it.

A delete never removes events that are appended later: it reaches to the end that the journal has at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never
from uuid import NAMESPACE_OID, UUID, uuid5

from inorder.journal.action import Action, Append, Delete, Mark, Purge
from inorder.journal.stores.ports import JournalHead
from inorder.model.journal import DeleteTo, EventRecord, Key, SeqNr, SeqRange


@dataclass(frozen=True, slots=True)
class Life:
    """A journal between two purges: where it ends, and up to where it is deleted (0 if nowhere)."""

    seq_nr: SeqNr
    delete_to: DeleteTo = 0
    is_begun: bool = True
    """Whether it ever had an event; until then both numbers are the bound that deletes have set."""

    @property
    def end(self) -> SeqNr:
        """The largest number that was appended, 0 if none was: an event counts if it is above."""
        return self.seq_nr if self.is_begun else 0


def life_of(head: JournalHead | None) -> Life | None:
    """The life that a store's head describes; heads of old versions may be deleted further than they reach."""
    if head is None:
        return None
    delete_to = head.delete_to or 0
    return Life(max(head.seq_nr, delete_to), delete_to, head.is_begun)


def life_id(key: Key, partition: int, offset: int) -> UUID:
    """The record id of the life that an append begins; the same when it is replicated again, in any chunking."""
    return uuid5(NAMESPACE_OID, f"{key}/{partition}/{offset}")


def after(life: Life | None, action: Action) -> Life | None:
    """The life after an action; None is no journal at all."""
    match action:
        case Append():
            return after_append(life, action.range)
        case Delete():
            return after_delete(life, action.to)
        case Purge():
            return None
        case Mark():
            return life
    assert_never(action)


def after_append(life: Life | None, numbers: SeqRange) -> Life:
    """The life after these numbers were appended.

    >>> after_append(Life(5, 5, is_begun=False), SeqRange(1, 2))
    Life(seq_nr=2, delete_to=0, is_begun=True)
    """
    if life is None:
        return Life(numbers.last, numbers.first - 1)
    if not life.is_begun:
        return Life(numbers.last, min(life.delete_to, numbers.first - 1))
    return replace(life, seq_nr=max(life.seq_nr, numbers.last))


def after_delete(life: Life | None, to: DeleteTo) -> Life:
    """The life after a delete.

    >>> after_delete(Life(574, 544), 575)
    Life(seq_nr=574, delete_to=574, is_begun=True)
    """
    if life is None:
        return Life(to, to, is_begun=False)
    if not life.is_begun:
        return replace(life, seq_nr=max(life.seq_nr, to), delete_to=max(life.delete_to, to))
    return replace(life, delete_to=max(life.delete_to, min(to, life.seq_nr)))


@dataclass(frozen=True, slots=True)
class Fork:
    """An event that came when its journal had already reached `end`."""

    record: EventRecord
    end: SeqNr
    is_proven: bool

    def __str__(self) -> str:
        certainty = "proven" if self.is_proven else "suspected"
        return f"{certainty} fork: seq_nr {self.record.seq_nr} at {self.record.partition_offset} after {self.end}"


class EventsAndForks(NamedTuple):
    kept: list[EventRecord]
    forks: list[Fork]


def separate_forks(end: SeqNr, records: Sequence[EventRecord]) -> EventsAndForks:
    """Separates the records, in the order of the log, that count in a journal that ends at `end` (0 without events).

    A fork does not raise the end.
    """
    return EventsAndForks(list(records), []) if _rises(end, records) else _separate(end, records)


def _rises(end: SeqNr, records: Sequence[EventRecord]) -> bool:
    """Whether every number is above all before it, as it nearly always is."""
    for record in records:
        number = record.event.seq_nr
        if number <= end:
            return False
        end = number
    return True


def _separate(end: SeqNr, records: Sequence[EventRecord]) -> EventsAndForks:
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
    return EventsAndForks(kept, forks)
