"""What the log says about one journal beyond the store, and the plan that follows: which events come from where.

`HeadInfo` is what the head cache keeps of a journal: the actions that may not be in the store, without their events.
`PlanReplay` applies them one by one to the store's head, with the rules of `life.py`. A reader without a cache reads
the same actions from the log and applies them in the same way. So there is one algebra, which no batch, cache or merge
can disagree with: the original has a second one for batches, which loses a purge that is followed by an append.

What counts depends on the store's head, which the cache does not know, so it keeps the actions and not their result. A
purge without a condition makes everything before it void. Of more than `MAX_ACTIONS` the newest are kept. Until the
store has those that are not, or that cannot be read, the reader replays the log from the journal's first record.

**After a purge that counts, what the store holds is of an earlier life**, until the purge is replicated too. The
original forgets the purge with the next append, and reads old events in place of new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from inorder.journal.action import Action, Append, Mark, Purge
from inorder.journal.codec import action_of
from inorder.journal.life import JournalFold, Life, life_of
from inorder.journal.stores.ports import JournalHead, LogRecord, Window
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Key, SeqNr

MAX_ACTIONS: Final = 100
"""Of one journal in the head cache; each takes some 200 bytes."""


class LogAction(NamedTuple):
    """An action and its offset."""

    offset: int
    action: Action


@dataclass(frozen=True, slots=True)
class HeadInfo:
    """The actions of one journal that may not be in the store; all defaults: there are none."""

    actions: tuple[LogAction, ...] = ()
    first: int | None = None
    """The offset of the first record that may matter."""
    lacks: int = -1
    """The last record that is missing in `actions`: one of too many, or one that cannot be read."""


EMPTY = HeadInfo()


def keep(head: HeadInfo, action: Action, offset: int, replicated: int = -1) -> HeadInfo:
    """The head with one more action; those up to the store's offset are dropped."""
    if isinstance(action, Mark):
        return head
    if isinstance(action, Purge) and action.condition is None:
        return HeadInfo((LogAction(offset, action),), offset)
    if isinstance(action, Append) and action.metadata is not None:
        action = replace(action, metadata=None)
    lacks, actions = head.lacks, [each for each in head.actions if each.offset > replicated]
    if len(actions) >= MAX_ACTIONS:
        lacks = max(lacks, actions.pop(0).offset)
    return HeadInfo((*actions, LogAction(offset, action)), offset if head.first is None else head.first, lacks)


def doubt(head: HeadInfo, offset: int) -> HeadInfo:
    """The head after a record that cannot be read."""
    return replace(head, first=offset if head.first is None else head.first, lacks=offset)


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
    """The offset of the first append that is in the log alone; None if the store has them all."""
    purged_at: int | None = None
    """The offset of the last purge that the log is known to have beyond the store; what was before it is void."""
    before: Life | None = None
    """The journal before the append at `log_from`."""
    is_headless: bool = False
    """Whether the store shows nothing and the log begins above 1: perhaps the middle of a journal that is purged."""

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

    fold: JournalFold
    plan: ReadPlan

    @classmethod
    def over(cls, head: JournalHead | None, key: Key, partition: int, replicated: int) -> PlanReplay:
        """Begins with the store's head, which includes everything up to an offset."""
        return cls(JournalFold(key, partition, replicated if head is None else None), plan_from_store(head))

    def then(self, action: Action, offset: int) -> PlanReplay:
        """Applies the next action of the log, which the store's head must not include."""
        plan, before = self.plan, self.plan.life
        if not self.fold.counts(before, action):
            return self
        if isinstance(action, Purge):
            return PlanReplay(self.fold._replace(nothing_since=offset), ReadPlan(None, None, 0, None, offset))
        plan = replace(plan, life=self.fold.apply(before, action, offset))
        if plan.log_from is None and isinstance(action, Append):
            # A purge under way first hides all that the store has, as a delete would, and removes the head last.
            shows_nothing = before is None or (before.is_begun and before.delete_to >= before.seq_nr)
            is_headless = shows_nothing and plan.purged_at is None and action.range.first > 1
            plan = replace(plan, log_from=offset, before=before, is_headless=is_headless)
        return PlanReplay(self.fold, plan)


def plan_from_cache(
    info: HeadInfo, head: JournalHead | None, key: Key, partition: int, replicated: int | None
) -> ReadPlan | None:
    """The plan from what the cache has kept, over a head read from the store **after** the cache was read.

    `replicated` is an offset that the store had passed when its head was read. The head names the last action that it
    includes, so those up to there are left out. None if the cache lacks an action that the store has not.
    """
    applied = head.partition_offset.offset if head and head.partition_offset.partition == partition else -1
    applied = max(applied, -1 if replicated is None else replicated)
    if info.lacks > applied:
        return None
    replay = PlanReplay.over(head, key, partition, applied)
    for offset, action in info.actions:
        if offset > applied:
            replay = replay.then(action, offset)
    return replay.plan


RECORD_BYTES: Final = 1_000
"""The memory of a kept record without its value: action and headers. Many small records are large, too."""


class LogAppend(NamedTuple):
    """An append, the record with its events, not decoded yet, and the journal that it found."""

    action: Append
    record: LogRecord
    before: Life | None


class LogReplay:
    """Replays the log's records of one journal over the store's head, and keeps them as long as they are few.

    Takes the records of a window in offset order; a record that comes twice counts once.
    """

    def __init__(
        self, head: JournalHead | None, key: Key, window: Window, from_seq_nr: SeqNr, limit_bytes: int
    ) -> None:
        self._replay = PlanReplay.over(head, key, window.partition, window.first - 1)
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
        if action is None or isinstance(action, Mark):
            return
        before = self._replay.plan.life
        if self._damage is not None:
            # Parked: the journal stays as it was before the damage, until a purge ends that.
            if not isinstance(action, Purge) or not self._replay.fold.frees(before, action):
                return
            action = Purge()
        self._replay = self._replay.then(action, record.offset)
        if self._replay.plan.purged_at == record.offset:
            self._damage, self._kept, self._left = None, [], self._limit
        elif isinstance(action, Append) and action.range.last >= self._from:
            self._keep(LogAppend(action, record, before))

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
