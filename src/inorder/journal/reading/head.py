"""What the log says about one journal beyond the store, and the plan that follows: which events come from where.

`HeadInfo` is what the head cache keeps of the log's actions, a few numbers:

| there is            | append f..t @o                          | delete to                      | purge @o     |
|---|---|---|---|
| no append           | first append o, ends at t,              | delete_to is the larger one    | purged at o  |
|                     | delete_to at most f-1                   |                                |              |
| appends, end s      | ends at the larger of s and t           | the larger one, but at most s  | purged at o  |

A purge forgets what was before it and is itself remembered: **what the store holds is then of an earlier life**, until
the purge is replicated too. The original forgets the purge with the next append, and reads old events in place of new.

These numbers are computed without the store. That is exact as long as numbers ascend. If they do not (a fork), or if a
record cannot be read, `is_doubtful` is set, and the reader replays the log over the store's head instead.

Records are folded one by one, in offset order, whatever batches they come in. There is no second algebra that merges
batches, so none can disagree: the original's loses a purge that is followed by an append in one batch.

There are two ways to the same `ReadPlan`. `PlanReplay` applies the log's actions one by one to the store's head: always
exact, but it must have read them. `plan_from_cache` takes the cached numbers, and returns None if these are doubtful.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, assert_never

from inorder.journal.action import Action, Append, Delete, Mark, Purge
from inorder.journal.codec import action_of
from inorder.journal.life import Life, after, after_delete, life_of
from inorder.journal.stores.ports import JournalHead, LogRecord, Window
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import DeleteTo, SeqNr


@dataclass(frozen=True, slots=True)
class HeadInfo:
    """The actions of one journal that may not be in the store; all defaults: there are none."""

    purged_at: int | None = None
    """The offset of the last purge."""
    append_offset: int | None = None
    """The first append since then."""
    first_seq_nr: SeqNr = 0
    """The first number of that append."""
    seq_nr: SeqNr = 0
    """The largest number appended since then."""
    delete_to: DeleteTo = 0
    is_doubtful: bool = False


EMPTY = HeadInfo()


def fold(head: HeadInfo, action: Action, offset: int) -> HeadInfo:
    """The head after one more action."""
    match action:
        case Append():
            return _append(head, action, offset)
        case Delete():
            to = action.to if head.append_offset is None else min(action.to, head.seq_nr)
            return replace(head, delete_to=max(head.delete_to, to))
        case Purge():
            return HeadInfo(purged_at=offset)
        case Mark():
            return head
    assert_never(action)


def doubt(head: HeadInfo) -> HeadInfo:
    """The head after a record that cannot be read."""
    return replace(head, is_doubtful=True)


def _append(head: HeadInfo, action: Append, offset: int) -> HeadInfo:
    first, last = action.range.first, action.range.last
    if head.append_offset is None:
        return replace(
            head, append_offset=offset, first_seq_nr=first, seq_nr=last, delete_to=min(head.delete_to, first - 1)
        )
    return replace(head, seq_nr=max(head.seq_nr, last), is_doubtful=head.is_doubtful or first <= head.seq_nr)


@dataclass(frozen=True, slots=True)
class ReadPlan:
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
        """The last number of the journal, deleted or not; None if there is no journal."""
        return None if self.life is None else self.life.seq_nr

    def needs_log(self, from_seq_nr: SeqNr) -> bool:
        """Whether events from a number on may be in the log alone."""
        return self.log_from is not None and self.life is not None and self.life.seq_nr >= self.start(from_seq_nr)

    def start(self, from_seq_nr: SeqNr) -> SeqNr:
        """The first number to show to a reader of the events from `from_seq_nr` on."""
        return from_seq_nr if self.life is None else max(from_seq_nr, self.life.delete_to + 1)


def plan_from_store(head: JournalHead | None) -> ReadPlan:
    """The plan when everything before the mark is in the store."""
    life = life_of(head)
    return ReadPlan(life, head, 0 if life is None else life.end, None)


@dataclass(frozen=True, slots=True)
class PlanReplay:
    """The log's actions so far, applied to a store's head; `plan` is the result."""

    plan: ReadPlan

    @classmethod
    def over(cls, head: JournalHead | None) -> PlanReplay:
        return cls(plan_from_store(head))

    def then(self, action: Action, offset: int) -> PlanReplay:
        """Applies the next action of the log, which the store's head must not include."""
        life = after(self.plan.life, action)
        if isinstance(action, Purge):
            return PlanReplay(ReadPlan(None, None, 0, None, offset))
        log_from = self.plan.log_from
        if log_from is None and isinstance(action, Append):
            log_from = offset
        return PlanReplay(replace(self.plan, life=life, log_from=log_from))


def plan_from_cache(
    info: HeadInfo, head: JournalHead | None, partition: int, replicated: int | None
) -> ReadPlan | None:
    """The plan from what the cache has kept, over a head read from the store **after** the cache was read.

    `replicated` is an offset that the store had passed when its head was read. A head that is read later may already
    include some of the actions; applying them again changes nothing.
    """
    if info.is_doubtful:
        return None
    if info.purged_at is not None and (replicated is None or replicated < info.purged_at):
        head = None
    base = life_of(head)
    applied = head.partition_offset.offset if head and head.partition_offset.partition == partition else -1
    if info.append_offset is None:
        life = after_delete(base, info.delete_to) if info.delete_to else base
        return ReadPlan(life, head, 0 if base is None else base.end, None, info.purged_at)
    if base is None or not base.is_begun:
        return ReadPlan(Life(info.seq_nr, info.delete_to), None, 0, info.append_offset, info.purged_at)
    if info.first_seq_nr <= base.end and applied < info.append_offset:
        return None
    life = Life(max(base.seq_nr, info.seq_nr), max(base.delete_to, info.delete_to))
    in_store = max(applied, -1 if replicated is None else replicated)
    log_from = max(info.append_offset, in_store + 1) if info.seq_nr > base.end else None
    return ReadPlan(life, head, base.end, log_from, info.purged_at)


RECORD_BYTES: Final = 1_000
"""The memory of a kept record without its value: action and headers. Many small records are large, too."""


class LogAppend(NamedTuple):
    """An append and the record with its events, not decoded yet."""

    action: Append
    record: LogRecord


class LogReplay:
    """Replays the log's records of one journal over the store's head, and keeps them as long as they are few.

    Takes the records of a window in offset order; a record that comes twice counts once.
    """

    def __init__(self, head: JournalHead | None, window: Window, from_seq_nr: SeqNr, limit_bytes: int) -> None:
        self._replay = PlanReplay.over(head)
        self._window = window
        self._from = from_seq_nr
        self._left = self._limit = limit_bytes
        self._kept: list[LogAppend] | None = []
        self._damage: DamagedRecordError | None = None
        self._last = -1

    def take(self, record: LogRecord) -> None:
        if record.offset <= self._last:
            return
        self._last = record.offset
        try:
            action = action_of(record, self._window.topic, self._window.partition)
        except DamagedRecordError as error:
            # Only a purge makes it certain that this record does not matter.
            self._damage = self._damage or error
            return
        if action is None:
            return
        self._replay = self._replay.then(action, record.offset)
        if isinstance(action, Purge):
            self._damage, self._kept, self._left = None, [], self._limit
        elif isinstance(action, Append) and action.range.last >= self._from:
            self._keep(LogAppend(action, record))

    def plan(self) -> ReadPlan:
        """The plan after all records; raises `DamagedRecordError` if one of them cannot be read."""
        if self._damage is not None:
            raise self._damage
        return self._replay.plan

    @property
    def kept(self) -> list[LogAppend] | None:
        """The appends since the last purge that matter, in order; None if they were too large to keep."""
        return self._kept

    def _keep(self, appended: LogAppend) -> None:
        self._left -= RECORD_BYTES + len(appended.record.value or b"")
        if self._kept is not None and self._left >= 0:
            self._kept.append(appended)
        else:
            self._kept = None
