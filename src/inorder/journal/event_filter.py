"""Which events of a topic's records count, for a subscription, which reads all journals of the topic at once.

A reader of one journal takes its state from the store's head and replays the log over it. Here records of all journals
come in offset order, from some offset on that the store had reached. What was seen is remembered (`JournalStates`); the
rest is read from the store, which may be behind the record, or past it.

| the store's head is   | and nothing of the journal is forgotten    | something may be forgotten                |
|---|---|---|
| before the record     | the actions that were seen since are       | the log is replayed over the head, unless |
|                       | applied to the head                        | the store has passed what was forgotten   |
| at it, or past it     | those events count that the store has from this very record                            |
| gone, the store past  | the journal is purged, and its events with it                                          |

What was seen of a journal is its state once that is known: after a purge without a condition, or after the store was
read. Until then it is the actions themselves, as in the head cache (`reading/head.py`). Of more journals than memory is
to hold, the least recently written are forgotten if the store has passed their last record: nothing is lost. The others
go to disk until the store has passed them, since replaying the log for each would read it again and again.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from inorder.journal.action import Action, Append, Mark, Purge
from inorder.journal.codec import action_of, events_of
from inorder.journal.life import Fork, JournalFold, Life, judge_events, life_of
from inorder.journal.reading.head import EMPTY, HeadInfo, keep, plan_from_cache
from inorder.journal.stores.ports import EventualJournal, JournalHead, JournalLog, LogRecord, Window
from inorder.journal.stores.state_spill import SpilledState, StateSpill
from inorder.model.deadline import Deadline
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import EventRecord, Key, SeqRange


@dataclass(frozen=True, slots=True)
class _StorePassed:
    """The store has applied the record, or more; without a head the journal is purged."""

    head: JournalHead | None


OpenRecord: TypeAlias = Callable[[Key, EventRecord], EventRecord | None]
"""Returns an event as it was written; None leaves it out, because its key is destroyed (`keys.py`)."""


def open_as_is(_key: Key, record: EventRecord) -> EventRecord:
    return record


# Building a key checks it, which takes longer than filtering an event.
@lru_cache(maxsize=10_000)
def key_of(id: bytes, topic: str) -> Key:
    return Key(id.decode(errors="backslashreplace"), topic)


class EventFilter:
    """Takes the records of a topic in the order of their offsets; used by one thread."""

    def __init__(
        self,
        log: JournalLog,
        store: EventualJournal,
        topic: str,
        max_journals: int,
        deadline: Callable[[str], Deadline],
        on_fork: Callable[[Key, Fork], None],
    ) -> None:
        self._log = log
        self._store = store
        self._topic = topic
        self._states = JournalStates(max_journals, self._replicated)
        self._deadline = deadline
        self._on_fork = on_fork

    def close(self) -> None:
        """Removes what it has remembered; may be called twice."""
        self._states.close()

    def learn(self, partition: int, record: LogRecord) -> None:
        """Takes a record whose events are not needed."""
        self._see(partition, record, self._read_action(partition, record))

    def filter(self, partition: int, record: LogRecord) -> list[EventRecord]:
        """The events of a record that count; raises `DamagedRecordError` if it cannot be read."""
        action = action_of(record, self._topic, partition)
        before = self._see(partition, record, action)
        if not isinstance(action, Append) or not record.key:
            return []
        events = events_of(action, record, self._topic, partition)
        key = key_of(record.key, self._topic)
        fold = JournalFold(key, partition)
        found = before if before.is_known else self._before(fold, record.offset, before)
        if isinstance(found, _StorePassed):
            kept = self._in_store(key, found.head, action.range, events)
            if kept and found.head is not None:
                # Of the same life as the head, and it ended with this record.
                life = replace(life_of(found.head) or Life(0), seq_nr=kept[-1].seq_nr, is_begun=True)
                self._states.set(partition, record.key, JournalState(is_known=True, life=life), record.offset)
            return kept
        kept, forks = judge_events(fold, found.life, action, events)
        after = fold.after(found.life, action, record.offset)
        self._states.set(partition, record.key, JournalState(is_known=True, life=after), record.offset)
        for fork in forks:
            self._on_fork(key, fork)
        return kept

    def _see(self, partition: int, record: LogRecord, action: Action | None) -> JournalState:
        """Remembers what a record says about its journal; returns what was known before."""
        id = record.key or b""
        before = self._states.of(partition, id)
        if id and action is not None and not isinstance(action, Mark):
            fold = JournalFold(key_of(id, self._topic), partition)
            self._states.set(partition, id, after(before, fold, action, record.offset), record.offset)
        return before

    def _before(self, fold: JournalFold, offset: int, seen: JournalState) -> JournalState | _StorePassed:
        """The journal before a record, unless the store has passed it."""
        key, partition = fold.key, fold.partition
        forgotten = self._states.forgotten(partition)
        # Read before the head, so that the head includes it.
        applied = self._replicated(partition)
        head = self._store.pointer(key)
        if head is None and self._replicated(partition) >= offset:
            # It may have been applied just now; then there is a head, or it was purged since.
            return _StorePassed(self._store.pointer(key))
        if head is not None and head.partition_offset.partition == partition:
            if head.partition_offset.offset >= offset:
                return _StorePassed(head)
            applied = max(applied, head.partition_offset.offset)
        # A state from before the record: the store may have passed it since it was read above.
        applied = min(applied, offset - 1)
        plan = plan_from_cache(seen.info, head, key, partition, applied) if forgotten <= applied else None
        if plan is None:
            return self._replay(fold, head, Window(self._topic, partition, applied + 1, offset - 1))
        return JournalState(is_known=True, life=plan.life)

    def _replay(self, fold: JournalFold, head: JournalHead | None, window: Window) -> JournalState:
        fold, life = fold._replace(nothing_since=window.first - 1 if head is None else None), life_of(head)
        deadline = self._deadline(f"Looking for the end of {fold.key} in {window}")
        with closing(self._log.records(window, fold.key.id.encode(), deadline)) as records:
            for record in records:
                action = self._read_action(window.partition, record)
                if isinstance(action, Purge) and fold.counts(life, action):
                    fold = fold._replace(nothing_since=record.offset)
                if action is not None:
                    life = fold.after(life, action, record.offset)
        return JournalState(is_known=True, life=life)

    def _in_store(
        self, key: Key, head: JournalHead | None, numbers: SeqRange, events: list[EventRecord]
    ) -> list[EventRecord]:
        """Those of a record's events that the store has from this very record."""
        if head is None:
            return []
        places = {}
        with closing(self._store.read(key, head, numbers.first)) as rows:
            for row in rows:
                if row.seq_nr > numbers.last:
                    break
                places[row.seq_nr] = row.partition_offset
        return [event for event in events if places.get(event.seq_nr) == event.partition_offset]

    def _read_action(self, partition: int, record: LogRecord) -> Action | None:
        try:
            return action_of(record, self._topic, partition)
        except DamagedRecordError:
            return None

    def _replicated(self, partition: int) -> int:
        found = self._store.offset(self._topic, partition)
        return -1 if found is None else found


MAX_JOURNALS: Final = 100_000


class JournalState(NamedTuple):
    """What was seen of a journal: its life, or until that is known the actions that lead there."""

    is_known: bool = False
    life: Life | None = None
    info: HeadInfo = EMPTY


UNKNOWN: Final = JournalState()


def after(state: JournalState, fold: JournalFold, action: Action, offset: int) -> JournalState:
    """The state after an action."""
    if state.is_known:
        return JournalState(is_known=True, life=fold.after(state.life, action, offset))
    if isinstance(action, Purge) and action.condition is None:
        return JournalState(is_known=True)
    return JournalState(info=keep(state.info, action, offset))


class JournalStates:
    """The states of the journals of one topic, as far as they are remembered: some in memory, the others on disk."""

    def __init__(self, max_journals: int, replicated: Callable[[int], int]) -> None:
        """`replicated` reads the offset up to which the store has a partition, -1 if it has nothing."""
        self._max = max_journals
        self._replicated = replicated
        self._known: OrderedDict[tuple[int, bytes], tuple[JournalState, int]] = OrderedDict()
        self._spill = StateSpill()
        self._forgotten: dict[int, int] = {}

    def of(self, partition: int, id: bytes) -> JournalState:
        found = self._known.get((partition, id))
        if found is not None:
            return found[0]
        spilled = self._spill.get(partition, id)
        if spilled is None:
            return UNKNOWN
        state: JournalState = pickle.loads(spilled)  # noqa: S301 - our own file, which has no name
        return state

    def set(self, partition: int, id: bytes, state: JournalState, offset: int) -> None:
        """Remembers a state as of the record at an offset."""
        self._known[partition, id] = state, offset
        self._known.move_to_end((partition, id))
        if len(self._known) > self._max:
            self._make_room()

    def forgotten(self, partition: int) -> int:
        """The offset above which no record is forgotten."""
        return self._forgotten.get(partition, -1)

    def close(self) -> None:
        """Removes what is on disk; may be called twice."""
        self._spill.close()

    def _make_room(self) -> None:
        """Forgets what the store has, and moves the rest of the least recently written journals to disk."""
        over = [self._known.popitem(last=False) for _ in range(1 + self._max // 10)]
        replicated = {partition: self._replicated(partition) for partition in {partition for (partition, _), _ in over}}
        self._spill.put(
            SpilledState(partition, id, last, pickle.dumps(state))
            for (partition, id), (state, last) in over
            if last > replicated[partition]
        )
        for partition, offset in replicated.items():
            self._spill.remove(partition, offset)
            forgotten = min(offset, max(last for (each, _), (_, last) in over if each == partition))
            self._forgotten[partition] = max(forgotten, self._forgotten.get(partition, -1))
