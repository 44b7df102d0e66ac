"""What the log has beyond the store, kept up to date for all journals of one partition; a state machine without I/O.

`add` takes records in offset order, `remove` the store's replicated offset. `find` looks up one journal at an offset,
and the answer is one of these:

| answer     | when                                                                                              |
|---|---|
| `Ahead`    | the store has everything up to that offset                                                        |
| `Known`    | all records up to that offset were seen; these are the journal's actions, perhaps none            |
| `Limited`  | the cache has forgotten, or never seen, records that may matter: read the log instead             |
| `Behind`   | records up to that offset are still to come: wait                                                 |

A partition keeps `max_journals` journals, and four actions for each of them on average. With more, the least recently
written ones are dropped, and the cache is no longer complete from where it began but from its oldest entry. **Nothing
is known about a journal before that offset unless the store has it.** So a journal without an entry has no actions only
if the store has passed the gap, and an entry that began after a gap is valid only then, too. (The original takes a
dropped journal for one without actions, and so does not see its events until they are replicated.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import floor
from typing import Final, NamedTuple, TypeAlias

from inorder.journal.action import Action, Mark
from inorder.journal.codec import action_of
from inorder.journal.reading.head import EMPTY, HeadInfo, doubt, keep
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import DamagedRecordError

MAX_JOURNALS: Final = 10_000
DROP_UPON_LIMIT: Final = 0.1
ACTIONS_PER_JOURNAL: Final = 4
"""On average: with `MAX_JOURNALS` that is some ten megabytes for each partition."""
_LEAST_DROP: Final = 0.01


@dataclass(frozen=True, slots=True)
class Ahead:
    """The store has everything."""


@dataclass(frozen=True, slots=True)
class Known:
    """The journal's actions up to `offset`, which may be further than requested."""

    info: HeadInfo
    offset: int
    replicated: int | None


@dataclass(frozen=True, slots=True)
class Limited:
    """The cache does not know, and will not."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The cache does not know yet."""


Answer: TypeAlias = Ahead | Known | Limited
Listener: TypeAlias = Callable[[Answer], None]


class InspectedRecord(NamedTuple):
    """A record that was read; without an id or an action it is not of a journal."""

    offset: int
    id: bytes | None = None
    action: Action | None = None
    is_damaged: bool = False


def inspect_record(record: LogRecord, topic: str, partition: int) -> InspectedRecord:
    """What a cache needs of a record; one that cannot be read affects its own journal only."""
    try:
        return InspectedRecord(record.offset, record.key, action_of(record, topic, partition))
    except DamagedRecordError:
        return InspectedRecord(record.offset, record.key, is_damaged=True)


@dataclass(frozen=True, slots=True)
class _Entry:
    info: HeadInfo
    offset: int
    since: int
    """Everything of this journal from this offset on is in `info`."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    id: bytes
    offset: int
    listener: Listener


class PartitionCache:
    """The journals of one partition, from the offset `start` on; not safe for threads by itself."""

    def __init__(
        self, start: int = 0, *, max_journals: int = MAX_JOURNALS, drop_upon_limit: float = DROP_UPON_LIMIT
    ) -> None:
        self._max = max_journals
        self._keep = max(1, max_journals - floor(max_journals * min(1.0, max(_LEAST_DROP, drop_upon_limit))))
        self._complete_from = start
        self._first: int | None = None
        self._last: int | None = None
        self._replicated: int | None = None
        # In the order of their last offsets: a journal that gets a record moves to the end.
        self._entries: dict[bytes, _Entry] = {}
        self._actions = 0
        self._waiting: list[_Waiting] = []

    @property
    def offset(self) -> int | None:
        """The last offset that need not be read any more: seen, or in the store."""
        known = [offset for offset in (self._last, self._replicated) if offset is not None]
        return max(known) if known else None

    def behind(self, offset: int) -> int:
        """How many offsets it must still see before it can answer at an offset."""
        known = self.offset
        return offset - (self._complete_from - 1 if known is None else known)

    @property
    def size(self) -> int:
        return len(self._entries)

    @property
    def listeners(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether the store's offset makes no difference: no journal is kept and no reader waits."""
        return not self._entries and not self._waiting

    def find(self, id: bytes, offset: int) -> Answer | Behind:
        if self._replicated is not None and self._replicated >= offset:
            return Ahead()
        if self._first is None or self._last is None or offset > self._last:
            return Behind()
        entry = self._entries.get(id)
        if entry is not None and self._is_in_store_below(entry.since):
            return Known(entry.info, entry.offset, self._replicated)
        if entry is None and offset >= self._first and self._is_in_store_below(self._complete_from):
            return Known(EMPTY, offset, self._replicated)
        return Limited()

    def listen(self, id: bytes, offset: int, listener: Listener) -> Callable[[], None]:
        """Calls the listener as soon as there is an answer, perhaps at once; returns how to stop listening."""
        answer = self.find(id, offset)
        if not isinstance(answer, Behind):
            listener(answer)
            return lambda: None
        waiting = _Waiting(id, offset, listener)
        self._waiting.append(waiting)
        return lambda: self._forget(waiting)

    def add(self, records: Iterable[InspectedRecord]) -> int | None:
        """Takes records; returns by how many offsets that moves it on, None if not at all or for the first time."""
        before = self._last
        for record in records:
            if self._last is not None and record.offset <= self._last:
                continue
            self._first = record.offset if self._first is None else self._first
            self._last = record.offset
            self._take(record)
        self._notify()
        self._limit()
        return count_advance(before, self._last)

    def remove(self, replicated: int) -> int | None:
        """Takes the store's offset; returns by how much that moves it on, None if not at all or for the first time."""
        before = self._replicated
        if before is not None and before >= replicated:
            return None
        self._replicated = replicated
        while self._entries:
            id, entry = next(iter(self._entries.items()))
            if entry.offset > replicated:
                break
            self._drop(id)
        self._notify()
        return count_advance(before, replicated)

    def _is_in_store_below(self, offset: int) -> bool:
        return offset <= 0 or (self._replicated is not None and self._replicated >= offset - 1)

    def _take(self, record: InspectedRecord) -> None:
        if record.id is None or not (record.is_damaged or record.action):
            return
        if isinstance(record.action, Mark) or self._is_replicated(record.offset):
            return
        known = self._entries.pop(record.id, None)
        info = known.info if known else EMPTY
        replicated = -1 if self._replicated is None else self._replicated
        if record.action is None:
            info = doubt(info, record.offset)
        else:
            info = keep(info, record.action, record.offset, replicated)
        self._actions += len(info.actions) - (len(known.info.actions) if known else 0)
        self._entries[record.id] = _Entry(info, record.offset, known.since if known else self._complete_from)

    def _is_replicated(self, offset: int) -> bool:
        return self._replicated is not None and self._replicated >= offset

    def _limit(self) -> None:
        if len(self._entries) <= self._max and self._actions <= self._max * ACTIONS_PER_JOURNAL:
            return
        for id in list(self._entries)[:-1]:
            if len(self._entries) <= self._keep and self._actions <= self._keep * ACTIONS_PER_JOURNAL:
                break
            self._drop(id)
        oldest = next(iter(self._entries.values()))
        self._first = self._complete_from = oldest.offset

    def _drop(self, id: bytes) -> None:
        self._actions -= len(self._entries.pop(id).info.actions)

    def _notify(self) -> None:
        still: list[_Waiting] = []
        answered: list[tuple[Listener, Answer]] = []
        for waiting in self._waiting:
            answer = self.find(waiting.id, waiting.offset)
            if isinstance(answer, Behind):
                still.append(waiting)
            else:
                answered.append((waiting.listener, answer))
        self._waiting = still
        for listener, answer in answered:
            listener(answer)

    def _forget(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)


def count_advance(before: int | None, now: int | None) -> int | None:
    """By how much an offset has moved on; None if it has not, or if there is nothing to compare.

    >>> count_advance(10, 20), count_advance(20, 10), count_advance(None, 10)
    (10, None, None)
    """
    if before is None or now is None or now <= before:
        return None
    return now - before
