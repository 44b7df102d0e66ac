"""The head cache: what the log has beyond the store, for all journals of the topics that are read.

It is only a hint: if anything fails, readers get no answer and read the log themselves.

**A partition** is a state machine without I/O (`PartitionCache`). `add` takes records in offset order, `remove` the
store's replicated offset. `find` looks up one journal at an offset, and the answer is one of these:

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

**A topic** has a thread (`TopicCache`). It follows all partitions from where the store ends, passes what it reads to
their caches, and reads the store's offset at intervals as long as a cache knows of anything that the store had not. A
record that cannot be read makes its own journal doubtful and does not affect others.

| what fails                             | what follows                                                          |
|---|---|
| Kafka or the store, for a while        | the thread starts again where it was, with growing pauses             |
| anything else, a fault of ours too     | a cache may hold half a step: all are discarded, readers that wait    |
|                                        | read the log, and the thread starts again from where the store ends   |
| the thread ends all the same, or the   | the cache counts as over: readers that wait read the log, and the     |
| topic was not read for a while         | next look-up opens another one                                        |

Each start after a failure is counted (`inorder_head_cache_restarts_total`); an error is logged when it differs from the
last one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import Final, NamedTuple, TypeAlias

from inorder.engines.measures import SILENT, Meter
from inorder.journal.action import Action, Mark
from inorder.journal.codec import action_of
from inorder.journal.reading.head import EMPTY, HeadInfo, doubt, keep
from inorder.journal.stores.ports import EventualJournal, JournalLog, LogRecord, TopicTail
from inorder.model.deadline import Deadline
from inorder.model.errors import DamagedRecordError, GuaranteeError, TransientError
from inorder.model.journal import Key

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


log = logging.getLogger("inorder.journal")


@dataclass(frozen=True, slots=True)
class HeadCacheLimits:
    """Times in seconds."""

    wait: float = 1.0
    """How long a reader waits for records that the cache has not seen yet."""
    far: int = 20_000
    """A cache that must still see this many records is not waited for, as after a day without replication."""
    remove_interval: float = 0.1
    """How often the store's offset is read."""
    expiry: float = 600.0
    """How long a topic is followed after its last look-up."""
    max_journals: int = MAX_JOURNALS
    """Journals a partition."""
    drop_upon_limit: float = DROP_UPON_LIMIT
    """Which part of them is dropped when there are more."""


@dataclass(frozen=True, slots=True)
class HeadCacheReading:
    """How many journals a cache holds, and how many readers wait for it."""

    journals: int
    waiting: int


_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 1.0
_STEADY: Final = 10.0
"""After so long without a failure the next one is a new one: it is logged, and its pause is short."""


class TopicCache:
    """The caches of a topic's partitions; its thread ends with `close`, or `expiry` after the last look-up."""

    def __init__(
        self,
        topic: str,
        log: JournalLog,
        store: EventualJournal,
        clock: Callable[[], float],
        limits: HeadCacheLimits = HeadCacheLimits(),  # noqa: B008 - frozen
        meter: Meter = SILENT,
    ) -> None:
        self._topic = topic
        self._meter = meter
        self._log = log
        self._store = store
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        self._caches: dict[int, PartitionCache] = {}
        self._pending: set[Future[Answer]] = set()
        self._has_failed = False
        self._is_outdated = False
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._used_at = clock()
        self._thread = threading.Thread(target=self._run, name=f"head-cache-{topic}", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it no longer follows the topic."""
        return self._stopping.is_set()

    def find(self, key: Key, partition: int, offset: int, deadline: Deadline) -> Ahead | Known | None:
        """What is known of a journal up to an offset; None if the cache has no answer in time."""
        began = self._clock()
        found, result, when = self._find(key, partition, offset, deadline)
        self._meter.took("head_cache_find", self._clock() - began, self._topic, result, when)
        return found

    def reading(self) -> HeadCacheReading:
        with self._lock:
            caches = list(self._caches.values())
            return HeadCacheReading(sum(each.size for each in caches), sum(each.listeners for each in caches))

    def _find(self, key: Key, partition: int, offset: int, deadline: Deadline) -> tuple[Ahead | Known | None, str, str]:
        """What is known, the label of that result, and whether it was known `now` or `later`."""
        self._used_at = self._clock()
        patience = min(self._limits.wait, deadline.remaining())
        if self._has_failed or not self._started.wait(patience):
            return None, "absent", "now" if self._has_failed else "later"
        future: Future[Answer] = Future()
        with self._lock:
            cache = None if self.is_over else self._caches.get(partition)
            if cache is None:
                self._is_outdated = True
                return None, "absent", "now"
            if cache.behind(offset) > self._limits.far:
                return None, "late", "now"
            self._pending.add(future)
            stop_listening = cache.listen(key.id.encode(), offset, future.set_result)
            when = "now" if future.done() else "later"
        try:
            found = future.result(timeout=patience)
        except TimeoutError:
            return None, "late", when
        finally:
            with self._lock:
                stop_listening()
                self._pending.discard(future)
        return (None, "limited", when) if isinstance(found, Limited) else (found, type(found).__name__.lower(), when)

    def close(self) -> None:
        """Ends the thread; readers that wait get a `TransientError`. May be called twice."""
        with self._lock:
            self._stopping.set()
            pending, self._pending = self._pending, set()
        for future in pending:
            if not future.done():
                text = f"The head cache of topic {self._topic!r} was closed while a read waited for it."
                future.set_exception(TransientError(text, hint="Open the journals again."))
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        pause, logged = _FIRST_PAUSE, ""
        try:
            while not self._stopping.is_set():
                began = self._clock()
                try:
                    with closing(self._log.tail(self._topic)) as tail:
                        self._start(tail)
                        self._follow(tail)
                except Exception as error:  # noqa: BLE001 - a thread that ends costs every later read its patience
                    if self._clock() - began >= _STEADY:
                        pause, logged = _FIRST_PAUSE, ""
                    logged = self._fail(error, logged)
                    self._stopping.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._stopping.set()
            self._discard()

    def _fail(self, error: Exception, logged: str) -> str:
        """Counts a failure, and logs it unless it was the last one, too; returns the text that is logged now."""
        self._has_failed = True
        is_expected = isinstance(error, TransientError | GuaranteeError)
        if not is_expected:
            self._discard()
        self._meter.add("head_cache_restarts", 1, self._topic, "expected" if is_expected else "unexpected")
        text = f"{type(error).__name__}: {error}"
        if text != logged:
            trace = None if is_expected else error
            log.warning("journal.head_cache_restarts", extra={"topic": self._topic, "error": text}, exc_info=trace)
        return text

    def _discard(self) -> None:
        """Forgets all caches, since a step may be half done, and sends the readers that wait to the log."""
        with self._lock:
            self._caches = {}
            pending, self._pending = self._pending, set()
        for future in pending:
            if not future.done():
                future.set_result(Limited())

    def _start(self, tail: TopicTail) -> None:
        replicated = {partition: self._store.offset(self._topic, partition) for partition in tail.partitions()}
        with self._lock:
            for partition, offset in replicated.items():
                self._cache(partition, 0 if offset is None else offset + 1)
                if offset is not None:
                    self._caches[partition].remove(offset)
            offsets = {partition: self._next(partition) for partition in replicated}
            self._is_outdated = False
        tail.start(offsets)
        self._has_failed = False
        self._started.set()

    def _cache(self, partition: int, start: int) -> None:
        if partition not in self._caches:
            limits = self._limits
            self._caches[partition] = PartitionCache(
                start, max_journals=limits.max_journals, drop_upon_limit=limits.drop_upon_limit
            )

    def _next(self, partition: int) -> int:
        offset = self._caches[partition].offset
        return 0 if offset is None else offset + 1

    def _follow(self, tail: TopicTail) -> None:
        removed_at = self._clock()
        while not self._stopping.is_set() and not self._is_outdated:
            self._add(tail.poll(self._limits.remove_interval))
            if self._clock() - removed_at >= self._limits.remove_interval:
                self._remove()
                removed_at = self._clock()
            if self._clock() - self._used_at >= self._limits.expiry:
                self._stopping.set()

    def _add(self, polled: Mapping[int, Sequence[LogRecord]]) -> None:
        for partition, records in polled.items():
            new = [inspect_record(record, self._topic, partition) for record in records]
            with self._lock:
                advance = self._caches[partition].add(new)
            self._report_advance("kafka", advance)
            self._report_age(records)

    def _remove(self) -> None:
        for partition, cache in list(self._caches.items()):
            if not cache.is_idle:
                offset = self._store.offset(self._topic, partition)
                with self._lock:
                    advance = None if offset is None else cache.remove(offset)
                self._report_advance("store", advance)

    def _report_advance(self, source: str, advance: int | None) -> None:
        if advance is not None:
            self._meter.add("head_cache_offsets", advance, self._topic, source)

    def _report_age(self, records: Sequence[LogRecord]) -> None:
        if records and records[0].timestamp_ms is not None:
            age = time.time() - records[0].timestamp_ms / 1000
            self._meter.took("head_cache_record_age", max(0.0, age), self._topic)


class HeadCache:
    """The head cache of all topics; a topic is followed from its first look-up on."""

    def __init__(
        self,
        log: JournalLog,
        store: EventualJournal,
        clock: Callable[[], float],
        limits: HeadCacheLimits = HeadCacheLimits(),  # noqa: B008 - frozen
        meter: Meter = SILENT,
    ) -> None:
        self._open = partial(TopicCache, log=log, store=store, clock=clock, limits=limits, meter=meter)
        self._topics: dict[str, TopicCache] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def find(self, key: Key, partition: int, offset: int, deadline: Deadline) -> Ahead | Known | None:
        """What the log has of a journal up to an offset; None if the log must be read."""
        with self._lock:
            if self._is_closed:
                raise TransientError("The head cache is closed.", hint="Open the journals again.")
            topic = self._topics.get(key.topic)
            if topic is None or topic.is_over:
                topic = self._topics[key.topic] = self._open(key.topic)
        return topic.find(key, partition, offset, deadline)

    def forget(self, topic: str) -> None:
        """Drops what is known of a topic: it is another one now, with offsets of its own."""
        with self._lock:
            found = self._topics.pop(topic, None)
        if found is not None:
            found.close()

    def readings(self) -> dict[str, HeadCacheReading]:
        with self._lock:
            topics = dict(self._topics)
        return {name: topic.reading() for name, topic in topics.items()}

    def close(self) -> None:
        """Ends all threads; may be called twice."""
        with self._lock:
            self._is_closed = True
            topics, self._topics = self._topics, {}
        for topic in topics.values():
            topic.close()
