"""Which events of a topic's records count, for a subscription, which reads all journals of the topic at once.

A reader of one journal takes its end from the store's head and replays the log over it. Here records of all journals
come in offset order, from some offset on that the store had reached. What was seen is remembered (`JournalEnds`); the
rest is read from the store, which may be behind the record, or past it.

| the store's head is   | and nothing of the journal is forgotten    | something may be forgotten                |
|---|---|---|
| before the record     | the journal ends at the larger of what the | the log is replayed over the head, unless |
|                       | head says and what was seen since          | the store has passed what was forgotten   |
| at it, or past it     | those events count that the store has from this very record                            |
| gone, the store past  | the journal is purged, and its events with it                                          |

What was seen of a journal gives a lower bound of its end; it is *exact* after a purge, or once the store was read for
where the journal ended before. The least recently written journal is forgotten, and the offset up to which something
may be forgotten is remembered: if the store has passed it, nothing is lost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from inorder.journal.action import Action, Append, Purge
from inorder.journal.codec import action_of, events_of
from inorder.journal.life import Fork, life_of, separate_forks
from inorder.journal.stores.ports import EventualJournal, JournalHead, JournalLog, LogRecord, Window
from inorder.model.deadline import Deadline
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import EventRecord, Key, SeqNr, SeqRange


@dataclass(frozen=True, slots=True)
class _StorePassed:
    """The store has applied the record, or more; without a head the journal is purged."""

    head: JournalHead | None


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
        ends: JournalEnds,
        deadline: Callable[[str], Deadline],
        on_fork: Callable[[Key, Fork], None],
    ) -> None:
        self._log = log
        self._store = store
        self._topic = topic
        self._ends = ends
        self._deadline = deadline
        self._on_fork = on_fork

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
        found = before if before.is_exact else self._before(key, partition, record.offset, before)
        if isinstance(found, _StorePassed):
            kept = self._in_store(key, found.head, action.range, events)
            if kept:
                self._ends.set(partition, record.key, JournalEnd(kept[-1].seq_nr, is_exact=True), record.offset)
            return kept
        kept, forks = separate_forks(found.seq_nr, events)
        self._ends.set(partition, record.key, after(found, action), record.offset)
        for fork in forks:
            self._on_fork(key, fork)
        return kept

    def _see(self, partition: int, record: LogRecord, action: Action | None) -> JournalEnd:
        """Remembers what a record says about its journal's end; returns what was known before."""
        id = record.key or b""
        before = self._ends.of(partition, id)
        if isinstance(action, Append | Purge):
            self._ends.set(partition, id, after(before, action), record.offset)
        return before

    def _before(self, key: Key, partition: int, offset: int, seen: JournalEnd) -> JournalEnd | _StorePassed:
        """Where the journal ended before a record, unless the store has passed it."""
        forgotten = self._ends.forgotten(partition)
        # Read before the head, so that the head includes it.
        applied = -1 if forgotten < 0 else self._replicated(partition)
        head = self._store.pointer(key)
        if head is None and self._replicated(partition) >= offset:
            # It may have been applied just now; then there is a head, or it was purged since.
            return _StorePassed(self._store.pointer(key))
        if head is not None and head.partition_offset.partition == partition:
            if head.partition_offset.offset >= offset:
                return _StorePassed(head)
            applied = max(applied, head.partition_offset.offset)
        if forgotten > applied:
            return self._replay(key, head, Window(self._topic, partition, applied + 1, offset - 1))
        return JournalEnd(max(seen.seq_nr, _end_of(head)), is_exact=True)

    def _replay(self, key: Key, head: JournalHead | None, window: Window) -> JournalEnd:
        end = JournalEnd(_end_of(head), is_exact=True)
        deadline = self._deadline(f"Looking for the end of {key} in {window}")
        with closing(self._log.records(window, key.id.encode(), deadline)) as records:
            for record in records:
                end = after(end, self._read_action(window.partition, record))
        return end

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


def _end_of(head: JournalHead | None) -> SeqNr:
    life = life_of(head)
    return 0 if life is None else life.end


MAX_JOURNALS: Final = 100_000


class JournalEnd(NamedTuple):
    """The largest number seen of a journal's life, 0 if none."""

    seq_nr: SeqNr = 0
    is_exact: bool = False


UNKNOWN: Final = JournalEnd()
NO_EVENT: Final = JournalEnd(0, is_exact=True)


def after(end: JournalEnd, action: Action | None) -> JournalEnd:
    """The end after a record's action, which is None for a record that is not of a journal."""
    match action:
        case Purge():
            return NO_EVENT
        case Append():
            return end._replace(seq_nr=max(end.seq_nr, action.range.last))
    return end


class JournalEnds:
    """The ends of the journals of one topic, as far as they are remembered."""

    def __init__(self, max_journals: int = MAX_JOURNALS) -> None:
        self._max = max_journals
        self._known: OrderedDict[tuple[int, bytes], tuple[JournalEnd, int]] = OrderedDict()
        self._forgotten: dict[int, int] = {}

    def of(self, partition: int, id: bytes) -> JournalEnd:
        found = self._known.get((partition, id))
        return UNKNOWN if found is None else found[0]

    def set(self, partition: int, id: bytes, end: JournalEnd, offset: int) -> None:
        """Remembers an end as of the record at an offset."""
        self._known[partition, id] = end, offset
        self._known.move_to_end((partition, id))
        if len(self._known) > self._max:
            (over, _), (_, last) = self._known.popitem(last=False)
            self._forgotten[over] = max(last, self._forgotten.get(over, -1))

    def forgotten(self, partition: int) -> int:
        """The offset above which no record is forgotten."""
        return self._forgotten.get(partition, -1)
