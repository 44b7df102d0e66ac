"""Journals, store and codec of an application, measured: wrappers that pass on results and errors as they are.

Who wants no figures does without the wrappers and pays nothing. The time of a stream is the time that its reader has
waited for it, not what the reader did in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from inorder.journal.action import Append
from inorder.journal.client import Journal
from inorder.journal.codec.records import append_record, events_of
from inorder.model.journal import MAX_SEQ_NR, DeleteTo, Event, EventRecord, Key, PartitionOffset, SeqNr
from inorder.model.message import Record
from inorder.ports.journal_log import LogRecord
from inorder.ports.journal_store import EventualJournal, JournalHead
from inorder.ports.meter import Meter
from inorder.ports.pool import OnLent

if TYPE_CHECKING:
    from inorder.journal.client import Journals

T = TypeVar("T")

SUCCESS: Final = "success"
FAILURE: Final = "failure"


class MeasuredJournal(Journal):
    """A journal whose verbs are timed and counted, each for itself: a delete that asks for the pointer is a delete."""

    def __init__(self, journals: Journals, key: Key, meter: Meter) -> None:
        super().__init__(journals, key)
        self._plain = Journal(journals, key)
        self._meter = meter

    def append(self, events: Iterable[Event], **options: Any) -> PartitionOffset:
        """Times it and counts the events."""
        given = list(events)
        with self._timed("append"):
            place = self._plain.append(given, **options)
        self._count("append", len(given))
        return place

    def append_later(self, events: Iterable[Event], **options: Any) -> Future[PartitionOffset]:
        """Times it up to the answer."""
        given, began = list(events), time.perf_counter()
        try:
            place = self._plain.append_later(given, **options)
        except BaseException:
            self._told("append", time.perf_counter() - began, FAILURE)
            raise

        def answered(answer: Future[PartitionOffset]) -> None:
            is_written = not answer.cancelled() and answer.exception() is None
            self._told("append", time.perf_counter() - began, SUCCESS if is_written else FAILURE)
            self._count("append", len(given) if is_written else 0)

        place.add_done_callback(answered)
        return place

    def read(self, *bounds: Any, **options: Any) -> Iterator[EventRecord]:
        """Times what the reader waits for, and counts the events that it got."""
        began = time.perf_counter()
        try:
            records = self._plain.read(*bounds, **options)
        except BaseException:
            self._told("read", time.perf_counter() - began, FAILURE)
            raise
        return _streamed(records, time.perf_counter() - began, self._read)

    def pointer(self) -> SeqNr | None:
        """Times it."""
        with self._timed("pointer"):
            return self._plain.pointer()

    def delete(self, to: DeleteTo = MAX_SEQ_NR) -> PartitionOffset | None:
        """Times it."""
        with self._timed("delete"):
            return self._plain.delete(to)

    def purge(self) -> PartitionOffset:
        """Times it."""
        with self._timed("purge"):
            return self._plain.purge()

    def mark(self, id: str | None = None) -> PartitionOffset:
        """Times it."""
        with self._timed("mark"):
            return self._plain.mark(id)

    @contextmanager
    def _timed(self, verb: str) -> Iterator[None]:
        began, result = time.perf_counter(), FAILURE
        try:
            yield
            result = SUCCESS
        finally:
            self._told(verb, time.perf_counter() - began, result)

    def _read(self, seconds: float, events: int, failed: bool) -> None:
        self._told("read", seconds, FAILURE if failed else SUCCESS)
        self._count("read", events)

    def _told(self, verb: str, seconds: float, result: str) -> None:
        self._meter.took("journal_latency", seconds, self.key.topic, verb)
        self._meter.add("journal_results", 1, self.key.topic, verb, result)

    def _count(self, verb: str, events: int) -> None:
        self._meter.add("journal_events", events, self.key.topic, verb)


class MeasuredStore:
    """The read side of a store, timed."""

    def __init__(self, store: EventualJournal, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    def pointer(self, key: Key) -> JournalHead | None:
        """Times it."""
        return self._timed(key.topic, "pointer", lambda: self._store.pointer(key))

    def offset(self, topic: str, partition: int) -> int | None:
        """Times it."""
        return self._timed(topic, "offset", lambda: self._store.offset(topic, partition))

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        """Times it and counts the events."""

        def told(seconds: float, events: int, _failed: bool) -> None:
            self._meter.took("store_latency", seconds, key.topic, "read")
            self._meter.add("store_events", events, key.topic)

        return _streamed(self._store.read(key, head, from_seq_nr), 0.0, told)

    def ids(self, topic: str) -> Iterator[str]:
        """Times it."""

        def told(seconds: float, _ids: int, _failed: bool) -> None:
            self._meter.took("store_latency", seconds, topic, "ids")

        return _streamed(self._store.ids(topic), 0.0, told)

    def close(self) -> None:
        """Gives connections back."""
        self._store.close()

    def _timed(self, topic: str, verb: str, ask: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return ask()
        finally:
            self._meter.took("store_latency", time.perf_counter() - began, topic, verb)


class MeasuredCodec:
    """The codec of appends, timed by the kind of their values."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def encode(self, key: Key, events: Iterable[Event], *about: Any) -> Record:
        """Times `append_record`."""
        began = time.perf_counter()
        record = append_record(key, events, *about)
        kind = "json" if (record.value or b"").startswith(b"{") else "binary"
        self._meter.took("journal_encode", time.perf_counter() - began, kind)
        return record

    def decode(self, action: Append, record: LogRecord, topic: str, partition: int) -> list[EventRecord]:
        """Times `events_of`."""
        began = time.perf_counter()
        events = events_of(action, record, topic, partition)
        self._meter.took("journal_decode", time.perf_counter() - began, action.payload_type.value)
        return events


def lending(meter: Meter) -> OnLent:
    """Tells of the consumers that reads of the log borrow."""

    def told(taking: float, using: float) -> None:
        meter.took("journal_consumer", taking, "acquire")
        meter.took("journal_consumer", using, "use")

    return told


def _streamed(source: Iterator[T], spent: float, told: Callable[[float, int, bool], None]) -> Generator[T, None, None]:
    """The same stream; at its end, wherever that is, `told` hears seconds, items, and whether it failed."""
    items, failed = 0, True
    try:
        while True:
            began = time.perf_counter()
            try:
                item = next(source)
            except StopIteration:
                failed = False
                return
            finally:
                spent += time.perf_counter() - began
            items += 1
            yield item
    except GeneratorExit:
        failed = False
        raise
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()
        told(spent, items, failed)
