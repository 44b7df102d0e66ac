"""Where the events of a read come from, decided from the store's head and the log.

There are two ways to the same plan. `Replay` applies the log's actions one by one to the store's head: always exact,
but it must have seen them. `plan_from_cache` takes the numbers that the head cache has kept of them, and gives up
(None) where these are doubtful.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inorder.journal.action import Action, Append, Purge
from inorder.journal.life import Life, after, after_delete, life_of
from inorder.journal.reading.head import HeadInfo
from inorder.model.journal import SeqNr
from inorder.ports.journal_store import JournalHead


@dataclass(frozen=True, slots=True)
class Plan:
    """What a journal is at a reader's mark, and where its events are."""

    life: Life | None
    """The journal at the mark; None if there is none."""
    head: JournalHead | None
    """The store's head, if the store holds events of this life."""
    end: SeqNr
    """The number up to which the store has events, 0 if the log has them all: only larger ones count in the log."""
    log_from: int | None
    """The offset of the first append that may be in the log alone; None if the store has them all."""
    purged_at: int | None = None
    """The offset of the last purge that the log is known to have beyond the store; what was before it is void."""

    @property
    def pointer(self) -> SeqNr | None:
        """The last number of the journal, whether it is deleted or not; None where there is no journal."""
        return None if self.life is None else self.life.seq_nr

    def needs_log(self, from_seq_nr: SeqNr) -> bool:
        """Whether events from a number on may be in the log alone."""
        return self.log_from is not None and self.life is not None and self.life.seq_nr >= self.start(from_seq_nr)

    def start(self, from_seq_nr: SeqNr) -> SeqNr:
        """The first number that is to be shown to somebody who asks for those from a number on."""
        return from_seq_nr if self.life is None else max(from_seq_nr, self.life.delete_to + 1)


def plan_from_store(head: JournalHead | None) -> Plan:
    """The plan when everything before the mark is in the store."""
    life = life_of(head)
    return Plan(life, head, 0 if life is None else life.end, None)


@dataclass(frozen=True, slots=True)
class Replay:
    """The log's actions applied to a store's head so far; `plan` is what they lead to."""

    plan: Plan

    @classmethod
    def over(cls, head: JournalHead | None) -> Replay:
        """Begins with what the store has."""
        return cls(plan_from_store(head))

    def then(self, action: Action, offset: int) -> Replay:
        """Applies the next action of the log; it must not be in the store's head already."""
        life = after(self.plan.life, action)
        if isinstance(action, Purge):
            return Replay(Plan(None, None, 0, None, offset))
        log_from = self.plan.log_from
        if log_from is None and isinstance(action, Append):
            log_from = offset
        return Replay(replace(self.plan, life=life, log_from=log_from))


def plan_from_cache(info: HeadInfo, head: JournalHead | None, partition: int, replicated: int | None) -> Plan | None:
    """The plan from what the cache has kept, over a head read from the store **after** the cache was asked.

    `replicated` is an offset that the store had passed when its head was read. A head that is read later may already
    include some of the actions; to apply them again changes nothing.
    """
    if info.is_doubtful:
        return None
    if info.purged_at is not None and (replicated is None or replicated < info.purged_at):
        head = None
    base = life_of(head)
    applied = head.partition_offset.offset if head and head.partition_offset.partition == partition else -1
    if info.append_offset is None:
        life = after_delete(base, info.delete_to) if info.delete_to else base
        return Plan(life, head, 0 if base is None else base.end, None, info.purged_at)
    if base is None or not base.is_begun:
        return Plan(Life(info.seq_nr, info.delete_to), None, 0, info.append_offset, info.purged_at)
    if info.first_seq_nr <= base.end and applied < info.append_offset:
        return None
    life = Life(max(base.seq_nr, info.seq_nr), max(base.delete_to, info.delete_to))
    in_store = max(applied, -1 if replicated is None else replicated)
    log_from = max(info.append_offset, in_store + 1) if info.seq_nr > base.end else None
    return Plan(life, head, base.end, log_from, info.purged_at)
