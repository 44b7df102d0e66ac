"""What the actions of one journal amount to: the rules of reader, store, head cache, subscription and audit alike.

| what there is   | append f..t                | delete to                    | purge   | mark    |
|---|---|---|---|---|
| nothing         | begins; all below f is gone| a bound, and no event yet    | nothing | nothing |
| a bound         | begins; bound at most f-1  | the larger bound             | nothing | same    |
| a journal       | ends at the larger number  | up to its end at most        | nothing | same    |

**An action counts or is void, as a whole.** `JournalFold.counts` decides it from the order of the log alone:

- An action with a condition counts only if the journal is in that life and ends at that number (`action.Condition`).
- An append with an id counts if it begins above the journal's end. So of two appends that continue the same journal the
  first one wins, whichever writer believes to own it, and an append that is sent twice counts once.
- An append without an id was written by Kafka Journal, or by inorder before it had ids. As in the original its events
  count one by one: each whose number is above every earlier one.

What is void never replaces what is there and never lowers where the journal ends. The rules need nothing but the order
of the log, so a journal reads the same whether its actions are replicated or not.

**A life** is a journal between two purges. It is named by the place of its first append (`life_id`), which the store
has as the journal's record id; so a condition can be checked against the store's head, without a column of its own.
Record ids that Kafka Journal's replicator has chosen are random: such a life is *unnamed*, and every condition on it
holds.

A purge also says at which mark its writer saw the life. A store without transactions may be in the middle of a purge:
the journal is gone, and the partition's offset is still before the purge. Folded over nothing, appends before the purge
seem to begin a journal, which the purge does not mean. But if the mark is after the offset from which on there was
nothing, then there was something: its writer has seen it. So the purge counts (`JournalFold.nothing_since`). What
remains is an append without a condition that came between a mark and its purge, if the mark is in an earlier slice than
both, and if the replicator dies in the middle of that purge: then the journal begins with this append.

An event that does not count is a *fork*: a second writer, or the same append sent twice. It is **proven** if its number
is taken by a known event, else **suspected**. Gaps are no forks, nor is a record that is read twice, nor a journal that
begins again after a purge. Nor is an append whose condition does not hold: its writer learns that, and
decides again, as entities do all the time. Every component that finds a fork reports it.

A delete never removes events that are appended later: it reaches to the end that the journal has at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, assert_never
from uuid import NAMESPACE_OID, UUID, uuid5

from inorder.journal.action import NOT_BEGUN, Action, Append, Condition, Delete, Mark, Purge
from inorder.journal.stores.ports import JournalHead
from inorder.model.journal import DeleteTo, EventRecord, Key, SeqNr, SeqRange


@dataclass(frozen=True, slots=True)
class Life:
    """A journal between two purges: where it ends, and up to where it is deleted (0 if nowhere)."""

    seq_nr: SeqNr
    delete_to: DeleteTo = 0
    is_begun: bool = True
    """Whether it ever had an event; until then both numbers are the bound that deletes have set."""
    stored_id: UUID | None = field(default=None, compare=False, repr=False)
    """Its name in the store, if that follows from the log."""
    began_at: int | None = field(default=None, compare=False, repr=False)
    """The offset of its first append, if that is known."""

    @property
    def end(self) -> SeqNr:
        """The largest number that was appended, 0 if none was: an event counts if it is above."""
        return self.seq_nr if self.is_begun else 0


_NAMED: Final = 5
"""The version of ids that are computed from a name; random ones have another."""


def is_named(id: UUID) -> bool:
    """Whether the record id of a life follows from the log; those of Kafka Journal's replicator are random."""
    return id.version == _NAMED


def life_of(head: JournalHead | None) -> Life | None:
    """The life that a store's head describes; heads of old versions may be deleted further than they reach."""
    if head is None:
        return None
    delete_to, id = head.delete_to or 0, head.record_id
    stored_id = id if id is not None and is_named(id) else None
    return Life(max(head.seq_nr, delete_to), delete_to, head.is_begun, stored_id)


def life_id(key: Key, partition: int, offset: int) -> UUID:
    """The record id of the life that an append begins; the same when it is replicated again, in any chunking."""
    return uuid5(NAMESPACE_OID, f"{key}/{partition}/{offset}")


class JournalFold(NamedTuple):
    """The rules for one journal, whose records are in one partition."""

    key: Key
    partition: int
    nothing_since: int | None = None
    """The offset at which the store showed no journal, or of the last purge that counted; None if there was one."""

    def counts(self, life: Life | None, action: Action) -> bool:
        """Whether an action counts that finds the journal in this life; a mark changes nothing, and always does."""
        if isinstance(action, Append):
            first_that_counts = action.range.last if action.id is None else action.range.first
            is_above = life is None or first_that_counts > life.end
            return is_above and (action.condition is None or self._holds(life, action.condition))
        if isinstance(action, Mark) or action.condition is None or self._holds(life, action.condition):
            return True
        return isinstance(action, Purge) and self._was_seen(life, action.condition)

    def after(self, life: Life | None, action: Action, offset: int) -> Life | None:
        """The life after an action, the same if that is void; None is no journal at all."""
        return self.apply(life, action, offset) if self.counts(life, action) else life

    def apply(self, life: Life | None, action: Action, offset: int) -> Life | None:
        """The life after an action that counts."""
        match action:
            case Append():
                after = after_append(life, action.range)
                is_beginning = life is None or not life.is_begun
                return replace(after, began_at=offset) if is_beginning else after
            case Delete():
                return after_delete(life, action.to)
            case Purge():
                return None
            case Mark():
                return life
        assert_never(action)

    def name(self, life: Life | None) -> UUID | None:
        """The name of a life for a condition; None if it has none."""
        if life is None or not life.is_begun:
            return NOT_BEGUN
        return life.stored_id if life.began_at is None else life_id(self.key, self.partition, life.began_at)

    def frees(self, life: Life | None, purge: Purge) -> bool:
        """Whether a purge ends the quarantine of a journal that was in this life when it was parked.

        Without an event until then, a life may have begun with the records in quarantine.
        """
        return self.counts(life, purge) or life is None or not life.is_begun

    def _holds(self, life: Life | None, condition: Condition) -> bool:
        if condition.seq_nr is not None and condition.seq_nr != (0 if life is None else life.seq_nr):
            return False
        named = self.name(life)
        return condition.life is None or named is None or named == condition.life

    def _was_seen(self, life: Life | None, condition: Condition) -> bool:
        """Whether the writer of a purge has seen another journal where the fold began with nothing."""
        if self.nothing_since is None or condition.seen is None or condition.life == NOT_BEGUN:
            return False
        if life is not None and (life.began_at is None or condition.seq_nr not in (None, life.seq_nr)):
            return False
        return condition.seen.partition == self.partition and condition.seen.offset > self.nothing_since


def after_append(life: Life | None, numbers: SeqRange) -> Life:
    """The life after these numbers were appended.

    >>> after_append(Life(5, 5, is_begun=False), SeqRange(1, 2))
    Life(seq_nr=2, delete_to=0, is_begun=True)
    """
    if life is None:
        return Life(numbers.last, numbers.first - 1)
    if not life.is_begun:
        return Life(numbers.last, min(life.delete_to, numbers.first - 1))
    end = max(life.seq_nr, numbers.last)
    return Life(end, life.delete_to, True, life.stored_id, life.began_at)


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


def judge_events(
    fold: JournalFold, before: Life | None, action: Append, records: Sequence[EventRecord]
) -> EventsAndForks:
    """Separates the events of an append that found a journal in a life.

    Those of a void one are all forks, unless it has a condition.
    """
    end = 0 if before is None else before.end
    if fold.counts(before, action):
        return separate_forks(end, records)
    forks = [] if action.condition is not None else [Fork(record, end, record.seq_nr == end) for record in records]
    return EventsAndForks([], forks)


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
