"""A subscription: every event of a topic, those of the store first, then those of the log as they come.

**What is authoritative.** The topic decides which events there are and which of them count (`life.py`). The application
decides how far it has come: each event comes with a *checkpoint*, and an application that stores it in the transaction
in which it stores the event's effect has every effect exactly once. inorder keeps nothing.

    read the store's offsets     of each partition: up to there events come from the store, then from the log
    scan its journals            in the order of their ids; of each the events up to those offsets
    follow the log from there    each record's events that count (`event_filter.py`), without end

A checkpoint is a small JSON value of one of two kinds. On the log: everything up to an offset of each partition is
done, and perhaps some events of the next record. In the store: a scan of its journals, in the order of their ids,
shows the events above the offsets that are done, up to those that the store had when the scan began.

Invariants:

1. The events of a journal come in the order of their numbers, and each comes once: those up to the offset from the
   store, those above it from the log. The offsets are part of the checkpoint, so a scan that is resumed ends where the
   first one would have ended.
2. Every event that counts comes, except those that were deleted or purged before the subscription reached them: they
   may come or not. A number that is not above the one before it is of a new life: the journal was purged in between.
3. Forks are left out, as readers leave them out. That needs the end of a journal before a record; if it was not seen it
   is read from the store. If the store has passed the record, the store's rows show which of its events count and are
   not deleted since. If the store is behind what was forgotten, the log is read again.
4. Memory: a page of the store, what one poll brings, and the ends of `max_journals` journals. Those of further journals
   that the store lacks are in a temporary file; no part of the log is read twice for them.

Failure table:

| what happens                               | what follows                                                        |
|---|---|
| the application dies                       | it continues from the checkpoint it has stored                      |
| the store or Kafka does not answer         | retried from the last event given, then raised                      |
| replication is behind, or down             | nothing: the log has the rest. After a start, what the store lacks  |
|                                            | is read once more to learn the ends, and not shown                  |
| the log begins above the checkpoint        | a scan of the store for what is missing; `RecordsLostError` if      |
|                                            | that is not replicated either                                       |
| a record cannot be read, or the store has  | `on_damaged` is called and the record, or the journal in the store, |
| parked its journal                         | is skipped for good; without it `DamagedRecordError`, again after   |
|                                            | every start                                                         |
| partitions are added                       | they are found within some seconds and read from their beginning    |
| the topic is deleted and re-created        | `OtherTopicError`; a checkpoint of the former one is refused, too   |
| a store without transactions purges a      | an event of the purged life may come; a fork too, while it is       |
| journal at this very moment                | under way                                                           |
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

from inorder.engines.measures import SILENT, Meter
from inorder.journal.event_filter import MAX_JOURNALS, EventFilter, OpenRecord, key_of, open_as_is
from inorder.journal.life import Fork
from inorder.journal.reading.reader import TIMEOUT_SECONDS
from inorder.journal.stores.ports import (
    FORMER,
    EventualJournal,
    JournalHead,
    JournalLog,
    LogRecord,
    TopicIncarnation,
    TopicTail,
)
from inorder.model.deadline import Deadline
from inorder.model.errors import (
    DamagedRecordError,
    DeadlineError,
    InorderError,
    OtherTopicError,
    RecordsLostError,
    TopicUnavailableError,
    TransientError,
    ValidationError,
)
from inorder.model.journal import EventRecord, Key, SeqNr

PAGE: Final = 256
MAX_OFFSET: Final = 2**63 - 1
POLL_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = 0.5
LOOK_FOR_PARTITIONS_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Subscribed:
    """An event, and the position of the subscription after it."""

    key: Key
    record: EventRecord
    position: Checkpoint

    @property
    def checkpoint(self) -> dict[str, Any]:
        """The JSON value to store with the effect of the event."""
        return self.position.to_json()


class _Taking(NamedTuple):
    tracker: CheckpointTracker
    filter: EventFilter


class Subscription:
    """An endless iterator of events; one thread iterates, and any thread may close it."""

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
        identify: Callable[[str], TopicIncarnation | None] = lambda topic: None,  # noqa: ARG005 - the signature
        open_record: OpenRecord = open_as_is,
        meter: Meter = SILENT,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`identify` returns which topic of that name it is, or raises `OtherTopicError`.

        `open_record` returns an event as it was written; None leaves it out (`keys.py`).
        """
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
        self._identify = identify
        self._open_record = open_record
        self._meter = meter
        self._now = now
        self._at = at
        self._missed: int | None = None
        self._stop = threading.Event()
        self._patience = self._deadline(f"Following topic {topic!r}")

    def __iter__(self) -> Iterator[Subscribed]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Generator[list[Subscribed], None, None]:
        """The same events in lists, as many as are available and at most a page."""
        batch: list[Subscribed] = []
        try:
            with closing(self._events()) as events:
                for event in events:
                    if event is not None:
                        batch.append(event)
                    if batch and (event is None or len(batch) >= PAGE):
                        self._report(batch)
                        yield batch
                        batch = []
        except InorderError:
            # What came before the failure must not be lost: the next start would fail in the same place.
            if batch:
                self._report(batch)
                yield batch
            raise

    def _report(self, batch: Sequence[Subscribed]) -> None:
        age = self._now() - batch[0].record.timestamp
        self._meter.add("subscription_events", len(batch), self._topic)
        self._meter.took("subscription_event_age", max(0.0, age.total_seconds()), self._topic)

    def close(self) -> None:
        """Ends the iteration within a moment; may be called twice."""
        self._stop.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _events(self) -> Generator[Subscribed | None, None, None]:
        """The events, and None when nothing more is available for now."""
        while not self._stop.is_set():
            try:
                for event in self._scan_and_follow():
                    self._patience.renew()
                    yield event
            except RecordsLostError as lost:
                self._scan_instead(lost)
            except TopicUnavailableError:
                raise
            except TransientError as error:
                yield None
                self._pause_or_raise(error)
            else:
                return

    def _require_topic(self) -> TopicIncarnation | None:
        """Which topic it is; raises `OtherTopicError` if the checkpoint is of another one of that name."""
        found = self._identify(self._topic)
        if found is not None and found.id is not None:
            self._at = self._at.of_topic(found)
        return found

    def _scan_and_follow(self) -> Iterator[Subscribed | None]:
        found = self._require_topic()
        with closing(self._log.tail(self._topic)) as tail:
            if self._at.is_beginning:
                self._at = replace(self._at, scan=self._new_scan(tail.partitions(), found))
            if self._at.scan is not None:
                yield from self._scan()
            while not self._stop.is_set() and (yield from self._follow(tail)):
                pass  # again, with the added partitions

    def _scan(self) -> Iterator[Subscribed]:
        for key, record, position in scan_store(self._store, self._at, self._on_damaged):
            self._at = position
            self._patience.renew()
            if record is not None and (opened := self._open(key, record)) is not None:
                yield Subscribed(key, opened, position)
            if self._stop.is_set():
                return
        self._at = self._at.after_scan()

    def _follow(self, tail: TopicTail) -> Generator[Subscribed | None, None, bool]:
        """Follows the log; returns True if the topic has other partitions now."""
        with closing(self._new_filter()) as events:
            return (yield from self._follow_with(tail, _Taking(CheckpointTracker(self._at), events)))

    def _follow_with(self, tail: TopicTail, taking: _Taking) -> Generator[Subscribed | None, None, bool]:
        partitions = tail.partitions()
        tail.start({partition: self._start(partition) for partition in partitions})
        heard = looked = self._clock()
        while not self._stop.is_set():
            polled = tail.poll(POLL_SECONDS if self._idle is None else min(POLL_SECONDS, self._idle))
            yield from self._take(taking, polled)
            now = self._clock()
            heard = now if polled else heard
            if self._idle is not None and now - heard >= self._idle:
                return False
            if now - looked >= LOOK_FOR_PARTITIONS_SECONDS:
                looked = now
                self._require_topic()
                if list(tail.partitions()) != list(partitions):
                    return True
        return False

    def _take(self, taking: _Taking, polled: Mapping[int, Sequence[LogRecord]]) -> Iterator[Subscribed | None]:
        for partition, records in polled.items():
            for record in records:
                for event in self._show(taking, partition, record):
                    self._at = event.position
                    yield event
        self._at = taking.tracker.position()
        yield None

    def _show(self, taking: _Taking, partition: int, record: LogRecord) -> Iterator[Subscribed]:
        if taking.tracker.has(partition, record.offset):
            taking.filter.learn(partition, record)
            return
        try:
            counted = taking.filter.filter(partition, record)
        except DamagedRecordError as error:
            self._on_damaged(error)
            counted = []
        key = key_of(record.key, self._topic) if counted and record.key else None
        for event, position in taking.tracker.after(partition, record.offset, counted):
            if key is not None and (opened := self._open(key, event)) is not None:
                yield Subscribed(key, opened, position)

    def _open(self, key: Key, record: EventRecord) -> EventRecord | None:
        try:
            return self._open_record(key, record)
        except DamagedRecordError as error:
            self._on_damaged(error)
            return None

    def _new_filter(self) -> EventFilter:
        return EventFilter(self._log, self._store, self._topic, self._max_journals, self._deadline, self._on_fork)

    def _start(self, partition: int) -> int:
        """Where to begin: at the next record, or earlier, if the store does not have the ends of journals there."""
        replicated = self._store.offset(self._topic, partition)
        return min(self._at.done.get(partition, -1), -1 if replicated is None else replicated) + 1

    def _new_scan(self, partitions: Sequence[int], found: TopicIncarnation | None = None) -> StoreScan | None:
        offsets = {partition: self._store.offset(self._topic, partition) for partition in partitions}
        done = self._at.done
        to = {part: offset for part, offset in offsets.items() if offset is not None and offset > done.get(part, -1)}
        if found is not None and found.number > 0 and FORMER not in done:
            to[FORMER] = MAX_OFFSET  # the events of former topics of that name are in the store alone
        return StoreScan(to) if to else None

    def _scan_instead(self, lost: RecordsLostError) -> None:
        """What the log has lost may be in the store; if it is missing after a scan too, the loss is real."""
        with closing(self._log.tail(self._topic)) as tail:
            found = self._new_scan(tail.partitions())
        if found is None or lost.wanted == self._missed:
            raise lost
        self._missed = lost.wanted
        self._at = replace(self._at, scan=found)

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


IDS_AT_ONCE: Final = 100_000
"""Stores return ids in any order, so each pass over all of them takes the next ones in order."""


class ScannedEvent(NamedTuple):
    """An event that the scan has reached, None at the end of a journal, and the checkpoint after it."""

    key: Key
    record: EventRecord | None
    position: Checkpoint


def scan_store(
    store: EventualJournal,
    start: Checkpoint,
    on_damaged: Callable[[DamagedRecordError], None],
    *,
    ids_at_once: int = IDS_AT_ONCE,
) -> Iterator[ScannedEvent]:
    """The events above `start.done` and up to `start.scan.to`, journal after journal; resumes at any event.

    For a journal that is parked `on_damaged` is called, and the journal is skipped if that returns.
    """
    at = start.scan
    if at is None:
        return
    if at.id:
        yield from _scan_journal(store, start, at, on_damaged)
    for id in _ids_above(store, start.topic, at.id, ids_at_once):
        yield from _scan_journal(store, start, StoreScan(at.to, id), on_damaged)


def _ids_above(store: EventualJournal, topic: str, id: str, at_once: int) -> Iterator[str]:
    while ids := heapq.nsmallest(at_once, (each for each in store.ids(topic) if each > id)):
        yield from ids
        id = ids[-1]


def _scan_journal(
    store: EventualJournal, start: Checkpoint, at: StoreScan, on_damaged: Callable[[DamagedRecordError], None]
) -> Iterator[ScannedEvent]:
    key, head = Key(at.id, start.topic), None
    try:
        head = store.pointer(key)
    except DamagedRecordError as error:
        on_damaged(error)
    if head is not None and _has_more(head, start):
        with closing(store.read(key, head, at.seq_nr + 1)) as records:
            for record in records:
                place = record.partition_offset
                if place.offset <= at.to.get(min(place.partition, FORMER), -1) and not start.includes(record):
                    at = replace(at, seq_nr=record.seq_nr)
                    yield ScannedEvent(key, record, replace(start, scan=at))
    yield ScannedEvent(key, None, replace(start, scan=at))


def _has_more(head: JournalHead, start: Checkpoint) -> bool:
    last = head.partition_offset
    return last.offset > start.done.get(min(last.partition, FORMER), -1)


Offsets = Mapping[int, int]
"""By partition, the last offset; a partition that is missing has none."""


@dataclass(frozen=True, slots=True)
class PartialRecord:
    """A record of the log whose events up to a number are done."""

    offset: int
    seq_nr: SeqNr


@dataclass(frozen=True, slots=True)
class StoreScan:
    """A scan of the store's journals: those before `id` are done, and of that one the events up to `seq_nr`."""

    to: Offsets
    id: str = ""
    seq_nr: SeqNr = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a subscription continues."""

    topic: str
    done: Offsets = field(default_factory=dict)
    begun: Mapping[int, PartialRecord] = field(default_factory=dict)
    scan: StoreScan | None = None
    topic_id: str | None = None
    """Kafka's id of the topic whose offsets these are; None in checkpoints of earlier versions."""
    number: int = 0
    """How many topics of that name were accepted before it."""

    def of_topic(self, found: TopicIncarnation) -> Checkpoint:
        """The checkpoint with the topic that it is of; raises `OtherTopicError` if that is another one."""
        if self.topic_id is not None and (self.topic_id, self.number) != (found.id, found.number):
            raise OtherTopicError(
                f"Topic {self.topic!r} was deleted and re-created, or truncated: the checkpoint is of the topic with id"
                f" {self.topic_id} (number {self.number}), and it now has id {found.id} (number {found.number}).",
                hint="Begin the subscription with None, and build what it feeds again: the first events are then those"
                " that the store has.",
            )
        return replace(self, topic_id=found.id, number=found.number)

    @property
    def is_beginning(self) -> bool:
        """Whether nothing was shown yet."""
        return not (self.done or self.begun or self.scan)

    def includes(self, record: EventRecord) -> bool:
        """Whether an event was shown before, by its place in the log."""
        place = record.partition_offset
        if place.offset <= self.done.get(min(place.partition, FORMER), -1):
            return True
        begun = self.begun.get(place.partition)
        return begun is not None and place.offset == begun.offset and record.seq_nr <= begun.seq_nr

    def after_scan(self) -> Checkpoint:
        """The checkpoint after the scan: what it has covered is done."""
        to = {} if self.scan is None else self.scan.to
        done = {**self.done, **to}
        begun = {part: begun for part, begun in self.begun.items() if begun.offset > done.get(part, -1)}
        return Checkpoint(self.topic, done, begun, None, self.topic_id, self.number)

    def to_json(self) -> dict[str, Any]:
        """A value for any JSON column.

        >>> Checkpoint("journal", {0: 41}, {0: PartialRecord(42, 3)}).to_json()
        {'topic': 'journal', 'done': {'0': 41}, 'begun': {'0': {'offset': 42, 'seq_nr': 3}}}
        """
        value: dict[str, Any] = {"topic": self.topic, "done": _json_offsets(self.done)}
        if self.begun:
            value["begun"] = {str(part): asdict(begun) for part, begun in self.begun.items()}
        if self.scan is not None:
            value["walk"] = {"to": _json_offsets(self.scan.to), "id": self.scan.id, "seq_nr": self.scan.seq_nr}
        if self.topic_id is not None:
            value |= {"topic_id": self.topic_id, "number": self.number}
        return value

    @classmethod
    def from_json(cls, value: Any, topic: str) -> Checkpoint:
        """Parses a value, None for the beginning; raises `ValidationError` if it is invalid, or of another topic."""
        if value is None:
            return cls(topic)
        try:
            id, number = value.get("topic_id"), _read_number(value.get("number", 0))
            offsets = _read_offsets(value["done"]), _read_partial(value), _read_scan(value)
            found = cls(str(value["topic"]), *offsets, None if id is None else str(id), number)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            hint = "Pass the `checkpoint` of an event of a subscription, or None to begin at the first event."
            raise ValidationError(
                "checkpoint", f"{_shorten(value)} is not a checkpoint ({error!r}).", hint=hint
            ) from error
        if found.topic != topic:
            hint = f"Subscribe to {found.topic!r}, or begin with None."
            raise ValidationError("checkpoint", f"it is of topic {found.topic!r}, not of {topic!r}.", hint=hint)
        return found


class CheckpointTracker:
    """A checkpoint on the log that advances record by record."""

    def __init__(self, at: Checkpoint) -> None:
        self._at = at
        self._done = dict(at.done)
        self._begun = dict(at.begun)

    def has(self, partition: int, offset: int) -> bool:
        """Whether all events of a record are done."""
        return offset <= self._done.get(partition, -1)

    def position(self) -> Checkpoint:
        """The checkpoint now."""
        return self._checkpoint(dict(self._done), dict(self._begun))

    def after(
        self, partition: int, offset: int, events: Sequence[EventRecord]
    ) -> Iterator[tuple[EventRecord, Checkpoint]]:
        """Each event of the next record that is not done, with the checkpoint after it."""
        begun = self._begun.pop(partition, None)
        if begun is not None and begun.offset == offset:
            events = [event for event in events if event.seq_nr > begun.seq_nr]
        if len(events) > 1:
            before, others = dict(self._done), self._begun
            for event in events[:-1]:
                position = self._checkpoint(before, {**others, partition: PartialRecord(offset, event.seq_nr)})
                yield event, position
        self._done[partition] = offset
        if events:
            yield events[-1], self.position()

    def _checkpoint(self, done: Offsets, begun: Mapping[int, PartialRecord]) -> Checkpoint:
        return Checkpoint(self._at.topic, done, begun, None, self._at.topic_id, self._at.number)


def _json_offsets(offsets: Offsets) -> dict[str, int]:
    # Keys of JSON objects are strings.
    return {str(partition): offset for partition, offset in offsets.items()}


def _read_offsets(value: Any) -> dict[int, int]:
    return {int(partition): _read_number(offset) for partition, offset in value.items()}


def _read_partial(value: Any) -> dict[int, PartialRecord]:
    found = value.get("begun") or {}
    return {
        int(part): PartialRecord(_read_number(each["offset"]), _read_number(each["seq_nr"]))
        for part, each in found.items()
    }


def _read_scan(value: Any) -> StoreScan | None:
    found = value.get("walk")
    return (
        None
        if found is None
        else StoreScan(_read_offsets(found["to"]), str(found["id"]), _read_number(found["seq_nr"]))
    )


def _read_number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number from 0 on")
    return value


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
