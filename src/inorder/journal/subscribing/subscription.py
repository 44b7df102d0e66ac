"""A subscription: every event of a topic, those of the store first, then those of the log as they come.

**What is authoritative.** The topic decides which events there are and which of them count (`life`). The application
decides how far it has come: each event comes with a *checkpoint*, and who stores it in the transaction in which it
stores what it made of the event has every event's effect exactly once. We keep nothing.

    what has the store?          the replicated offset of each partition: up to there the store is asked, then the log
    walk over its journals       in the order of their ids; of each the events up to those offsets
    follow the log from there    each record's events that count, for ever

Invariants:

1. The events of a journal come in the order of their numbers, and each comes once: those up to the offset from the
   store, those above it from the log. The offsets are part of the checkpoint, so a walk that is taken up again ends
   where the first one would have.
2. Every event comes that counts, but for those that were deleted or purged before the subscription came to them: they
   may come or not. A number that is not above the one before it is of a new life: the journal was purged in between.
3. Forks are left out, as readers leave them out. For that one must know where a journal ended before a record
   (`ends`); where that was not seen it is asked of the store. Has the store gone past the record, then the store's rows
   tell which of its events count, and are not deleted since. Is it behind what was forgotten, the log is read again.
4. Memory: a page of the store, what one poll brings, and the ends of `max_journals` journals.

Failure table:

| what happens                               | what follows                                                        |
|---|---|
| the application dies                       | it goes on from the checkpoint it has stored                        |
| the store or Kafka does not answer         | it is tried again from the last event given, then raised            |
| replication is behind, or down             | nothing: the log has the rest. After a start, what the store lacks  |
|                                            | is read once more to learn the ends, and not shown                  |
| the log begins above the checkpoint        | a walk over the store for what is missing; `RecordsLostError` if    |
|                                            | that is not replicated either                                       |
| a record cannot be read, or the store has  | `on_damaged` is told and the record, or the journal in the store,   |
| parked its journal                         | is passed over for good; without it, `DamagedRecordError`, and so   |
|                                            | again after every start                                             |
| partitions are added                       | they are found within some seconds and read from their beginning    |
| a store without transactions purges a      | an event of the purged life may come; a fork too, while it is       |
| journal at this very moment                | under way                                                           |
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

from inorder.journal.life import Fork
from inorder.journal.reading.reader import TIMEOUT_SECONDS
from inorder.journal.stores.ports import EventualJournal, JournalHead, JournalLog, LogRecord, TopicTail
from inorder.journal.subscribing.checkpoint import Checkpoint, Progress, Walk
from inorder.journal.subscribing.counting import MAX_JOURNALS, Counting, Ends, key_of
from inorder.model.deadline import Deadline
from inorder.model.errors import (
    DamagedRecordError,
    DeadlineError,
    InorderError,
    RecordsLostError,
    TopicUnavailableError,
    TransientError,
)
from inorder.model.journal import EventRecord, Key

PAGE: Final = 256
POLL_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = 0.5
LOOK_FOR_PARTITIONS_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Subscribed:
    """An event, and where the subscription is once it is dealt with."""

    key: Key
    record: EventRecord
    position: Checkpoint

    @property
    def checkpoint(self) -> dict[str, Any]:
        """The JSON value to be stored with what was made of the event."""
        return self.position.to_json()


class _Taking(NamedTuple):
    """What is kept while records of the log are taken."""

    progress: Progress
    counting: Counting


class Subscription:
    """An endless iterator of events; whoever follows it is one thread, and any thread may close it."""

    def __init__(
        self,
        log: JournalLog,
        store: EventualJournal,
        topic: str,
        clock: Callable[[], float],
        *,
        checkpoint: Any = None,
        idle_seconds: float | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        max_journals: int = MAX_JOURNALS,
        on_fork: Callable[[Key, Fork], None] = lambda key, fork: None,  # noqa: ARG005 - the signature
        on_damaged: Callable[[DamagedRecordError], None] | None = None,
    ) -> None:
        at = Checkpoint.from_json(checkpoint, topic)
        self._log = log
        self._store = store
        self._topic = topic
        self._clock = clock
        self._idle = idle_seconds
        self._timeout = timeout_seconds
        self._max_journals = max_journals
        self._on_fork = on_fork
        self._on_damaged = on_damaged or _raise
        self._at = at
        self._missed: int | None = None
        self._stop = threading.Event()
        self._patience = self._deadline(f"Following topic {topic!r}")

    def __iter__(self) -> Iterator[Subscribed]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Generator[list[Subscribed], None, None]:
        """The same events in lists, as many as are at hand and no more than a page."""
        batch: list[Subscribed] = []
        try:
            with closing(self._events()) as events:
                for event in events:
                    if event is not None:
                        batch.append(event)
                    if batch and (event is None or len(batch) >= PAGE):
                        yield batch
                        batch = []
        except InorderError:
            # What came before the failure is not to be lost: the next start would fail in the same place.
            if batch:
                yield batch
            raise

    def close(self) -> None:
        """Ends the iteration within a moment; may be called twice."""
        self._stop.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _events(self) -> Generator[Subscribed | None, None, None]:
        """The events, and None where nothing more is at hand for now."""
        while not self._stop.is_set():
            try:
                for event in self._walked_and_followed():
                    self._patience.renew()
                    yield event
            except RecordsLostError as lost:
                self._walk_instead(lost)
            except TopicUnavailableError:
                raise
            except TransientError as error:
                yield None
                self._pause_or_raise(error)
            else:
                return

    def _walked_and_followed(self) -> Iterator[Subscribed | None]:
        with closing(self._log.tail(self._topic)) as tail:
            if self._at.is_beginning:
                self._at = replace(self._at, walk=self._walk_to_replicated(tail.partitions()))
            if self._at.walk is not None:
                yield from self._walked()
            while not self._stop.is_set() and (yield from self._followed(tail)):
                pass  # again, with the partitions that were added

    def _walked(self) -> Iterator[Subscribed]:
        for key, record, position in walk(self._store, self._at, self._on_damaged):
            self._at = position
            self._patience.renew()
            if record is not None:
                yield Subscribed(key, record, position)
            if self._stop.is_set():
                return
        self._at = self._at.after_walk()

    def _followed(self, tail: TopicTail) -> Generator[Subscribed | None, None, bool]:
        """Follows the log; ends with True if the topic has other partitions now."""
        partitions = tail.partitions()
        taking = _Taking(Progress(self._at), self._counting())
        tail.start({partition: self._start(partition) for partition in partitions})
        heard = looked = self._clock()
        while not self._stop.is_set():
            polled = tail.poll(POLL_SECONDS if self._idle is None else min(POLL_SECONDS, self._idle))
            yield from self._taken(taking, polled)
            now = self._clock()
            heard = now if polled else heard
            if self._idle is not None and now - heard >= self._idle:
                return False
            if now - looked >= LOOK_FOR_PARTITIONS_SECONDS:
                looked = now
                if list(tail.partitions()) != list(partitions):
                    return True
        return False

    def _taken(self, taking: _Taking, polled: Mapping[int, Sequence[LogRecord]]) -> Iterator[Subscribed | None]:
        for partition, records in polled.items():
            for record in records:
                for event in self._shown(taking, partition, record):
                    self._at = event.position
                    yield event
        self._at = taking.progress.position()
        yield None

    def _shown(self, taking: _Taking, partition: int, record: LogRecord) -> Iterator[Subscribed]:
        if taking.progress.has(partition, record.offset):
            taking.counting.learn(partition, record)
            return
        try:
            counted = taking.counting.counted(partition, record)
        except DamagedRecordError as error:
            self._on_damaged(error)
            counted = []
        for event, position in taking.progress.after(partition, record.offset, counted):
            yield Subscribed(key_of(record.key or b"", self._topic), event, position)

    def _counting(self) -> Counting:
        ends = Ends(self._max_journals)
        return Counting(self._log, self._store, self._topic, ends, self._deadline, self._on_fork)

    def _start(self, partition: int) -> int:
        """Where to begin: at what comes next, or before, where the store does not know the ends of journals there."""
        replicated = self._store.offset(self._topic, partition)
        return min(self._at.done.get(partition, -1), -1 if replicated is None else replicated) + 1

    def _walk_to_replicated(self, partitions: Sequence[int]) -> Walk | None:
        offsets = {partition: self._store.offset(self._topic, partition) for partition in partitions}
        done = self._at.done
        to = {part: offset for part, offset in offsets.items() if offset is not None and offset > done.get(part, -1)}
        return Walk(to) if to else None

    def _walk_instead(self, lost: RecordsLostError) -> None:
        """What the log has lost may be in the store; if it is missing after a walk too, the loss is real."""
        with closing(self._log.tail(self._topic)) as tail:
            found = self._walk_to_replicated(tail.partitions())
        if found is None or lost.wanted == self._missed:
            raise lost
        self._missed = lost.wanted
        self._at = replace(self._at, walk=found)

    def _pause_or_raise(self, error: TransientError) -> None:
        try:
            self._patience.remaining()
        except DeadlineError:
            raise error from None
        self._stop.wait(PAUSE_SECONDS)

    def _deadline(self, what: str) -> Deadline:
        return Deadline(self._clock, self._timeout, what)


def _raise(error: DamagedRecordError) -> None:
    raise error


# A walk over the journals of a store, in the order of their ids, that can be taken up again at any event.

IDS_AT_ONCE: Final = 100_000
"""Stores give ids in any order, so each look at all of them takes the next so many."""


class Walked(NamedTuple):
    """An event that the walk has come to, None at the end of a journal, and the checkpoint after it."""

    key: Key
    record: EventRecord | None
    position: Checkpoint


def walk(
    store: EventualJournal,
    start: Checkpoint,
    on_damaged: Callable[[DamagedRecordError], None],
    *,
    ids_at_once: int = IDS_AT_ONCE,
) -> Iterator[Walked]:
    """The events above `start.done` and up to `start.walk.to`, journal after journal.

    A journal that the store cannot show is told to `on_damaged`, and passed over if that returns.
    """
    at = start.walk
    if at is None:
        return
    if at.id:
        yield from _journal(store, start, at, on_damaged)
    for id in _ids_above(store, start.topic, at.id, ids_at_once):
        yield from _journal(store, start, Walk(at.to, id), on_damaged)


def _ids_above(store: EventualJournal, topic: str, id: str, at_once: int) -> Iterator[str]:
    while ids := heapq.nsmallest(at_once, (each for each in store.ids(topic) if each > id)):
        yield from ids
        id = ids[-1]


def _journal(
    store: EventualJournal, start: Checkpoint, at: Walk, on_damaged: Callable[[DamagedRecordError], None]
) -> Iterator[Walked]:
    key, head = Key(at.id, start.topic), None
    try:
        head = store.pointer(key)
    except DamagedRecordError as error:
        on_damaged(error)
    if head is not None and _has_more(head, start):
        with closing(store.read(key, head, at.seq_nr + 1)) as records:
            for record in records:
                place = record.partition_offset
                if place.offset <= at.to.get(place.partition, -1) and not start.includes(record):
                    at = replace(at, seq_nr=record.seq_nr)
                    yield Walked(key, record, replace(start, walk=at))
    yield Walked(key, None, replace(start, walk=at))


def _has_more(head: JournalHead, start: Checkpoint) -> bool:
    last = head.partition_offset
    return last.offset > start.done.get(last.partition, -1)
