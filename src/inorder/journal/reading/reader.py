"""How a journal is read: the store's events, then those of the log that the store does not have yet.

**What is authoritative.** The topic. The actions of a journal in the order of their offsets decide what it is
(`life.py`). The store is a copy that may be any number of actions behind; the head cache is a hint.

A read is of one moment. It sends a *mark* and shows the journal as it was there, or a little later if the store has
moved on meanwhile; never less than what was acknowledged before the read began, and never a mixture.

    send a mark                   its offset is where the read ends
    read the store's position     the partition's replicated offset, then the journal's head, in this order
    find what the log has beyond  from the head cache, else by replaying the journal's own records up to the mark;
                                  but first, if so configured, wait for the store to pass the mark
    plan                          pure: which events come from where (`head.py`)
    stream the store's events     then read the head again: was the journal truncated meanwhile?
    stream the log's events       from the buffer of the replay, else by reading the log a second time

What is saved: Kafka is not read if the store has passed the mark; without a cache the store's offset is read while the
mark is in flight (with one that is not safe: what the cache has forgotten since must be in the head that is read); the
replay keeps its records, so the log is read once, up to a limit of memory; the log is not read a second time if the
replicator has caught up in between; records of other journals are not decoded, nor payloads of events that are not
shown.

A wait changes none of this. It ends with the store's own offset at the mark or beyond, and the head is read after that:
as if the store had been there all along. If it ends otherwise, what the cache said still holds, since the plan is of
the mark; and without a cache the store's offset is read again. No read waits that can be answered without the log: from
the store, or from the cache if the log has no events to show.

Why the order matters: a head that is read after the replicated offset includes at least what that offset promises, so
the log from there on completes it. In the other order, actions that are replicated in between would be in neither. A
head includes more than that offset if the store moves on in between, and then says so itself; where there is no head,
the offset must be the same before and after (`_head`).

Failure table:

| what happens                               | what follows                                                       |
|---|---|
| replication is behind, or down             | nothing: the log has the rest                                      |
| for longer than the topic's retention      | `RecordsLostError`, unless the store has caught up meanwhile       |
| the journal is purged while it is read     | `JournalChangedError` instead of a journal with a hole; a later    |
| or events that are being shown are deleted | read is correct                                                    |
| appends while it is read                   | they are after the mark and not shown, unless everything comes     |
|                                            | from a store that has passed the mark                              |
| a record of the journal cannot be read     | `DamagedRecordError`, unless a purge comes after it                |
| two writers                                | the first wins, the other's events are reported as forks           |
| Kafka does not answer                      | `DeadlineError`: each step has a time limit, and so has the stream |
|                                            | without a record                                                   |
| the head cache is late, small or wrong     | the log is replayed instead                                        |
| a reader waits for the store, and notices  | it reads the store's offset, which decides; after the time limit   |
| are wrong, late or missing (`StoreWait`)   | it reads the log, as if it had not waited                          |
| a store without transactions has applied   | a journal that seems to begin above 1 with what the log has: read  |
| a purge after our mark, but not yet moved  | again with a new mark, which is after the purge                    |
| the partition's offset                     | (`JournalClient.moment`)                                           |
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Protocol

from inorder.engines.measures import SILENT, Meter
from inorder.journal.action import Append, Purge
from inorder.journal.codec import action_of, events_of
from inorder.journal.life import Fork, JournalFold, judge_events
from inorder.journal.reading.head import LogAppend, LogReplay, ReadPlan, plan_from_cache, plan_from_store
from inorder.journal.reading.head_cache import Ahead, Known
from inorder.journal.stores.ports import EventualJournal, JournalHead, JournalLog, LogRecord, Window
from inorder.model.deadline import Deadline
from inorder.model.errors import JournalChangedError, RecordsLostError
from inorder.model.journal import MAX_SEQ_NR, EventRecord, Key, PartitionOffset, SeqNr, SeqRange
from inorder.model.partitioning import Place

TIMEOUT_SECONDS: Final = 30.0
BUFFER_BYTES: Final = 8_000_000
"""How much of the log's records a replay keeps; beyond that the log is read a second time."""


class Heads(Protocol):
    def find(self, key: Key, partition: int, offset: int, deadline: Deadline) -> Ahead | Known | None:
        """What the log has of a journal up to an offset; None if the log must be read. May wait for a while."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A journal at a reader's mark: what it is, and where its events are."""

    key: Key
    partition: int
    last: int
    """The offset of the last record that belongs to it."""
    plan: ReadPlan
    kept: list[LogAppend] | None = None
    """The appends of the log that matter, if a replay has kept them."""

    @property
    def known_to(self) -> int:
        """The last offset that the plan includes."""
        return max(self.last, _applied(self.plan.head, self.partition))


class JournalReader:
    """Reads journals; safe for use by many threads."""

    def __init__(
        self,
        log: JournalLog,
        store: EventualJournal,
        clock: Callable[[], float],
        *,
        heads: Heads | None = None,
        store_wait: StoreWait | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        buffer_bytes: int = BUFFER_BYTES,
        on_fork: Callable[[Key, Fork], None] = lambda key, fork: None,  # noqa: ARG005 - the signature
        meter: Meter = SILENT,
    ) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._heads = heads
        self._store_wait = store_wait
        self._timeout = timeout_seconds
        self._buffer_bytes = buffer_bytes
        self._on_fork = on_fork
        self._meter = meter

    def moment(self, key: Key, mark: Future[PartitionOffset], from_seq_nr: SeqNr = MAX_SEQ_NR) -> Moment:
        """The journal at a mark that is in flight; the caller does not need events below `from_seq_nr`."""
        deadline = Deadline(self._clock, self._timeout, f"Looking for the head of {key}")
        early = self._replicated_early(key)
        at = wait_for_place(mark, deadline)
        last = at.offset - 1
        found = None if self._heads is None or last < 0 else self._heads.find(key, at.partition, last, deadline)
        cached = None if found is None else self._plan_cached(key, at.partition, last, found)
        if cached is not None and (self._store_wait is None or not cached.plan.needs_log(from_seq_nr)):
            return cached
        if self._store_wait is not None and _next(early.get(at.partition)) <= last:
            # From here on only the store's own offset counts; nothing from the cache is combined with it.
            has_passed = self._store_wait.has_passed((key.topic, at.partition), last, deadline)
            if cached is not None and not has_passed:
                return cached
            early = {at.partition: last} if has_passed else {}
        if at.partition not in early:
            early = {at.partition: self._store.offset(key.topic, at.partition)}
        first = _next(early[at.partition])
        if isinstance(found, Known) and found.info.first is not None:
            first = max(first, found.info.first)
        window = Window(key.topic, at.partition, first, last)
        return self._replay(window, key, from_seq_nr, deadline)

    def events(self, moment: Moment, numbers: SeqRange) -> Generator[EventRecord, None, None]:
        """The events of that moment, in order; holds at most a page of the store and the kept appends."""
        plan, start = moment.plan, moment.plan.start(numbers.first)
        if plan.life is None or start > numbers.last:
            return
        if plan.head is not None and start <= plan.end:
            yield from self._stored(moment.key, plan.head, SeqRange(start, min(numbers.last, plan.end)))
        if plan.log_from is not None and numbers.last > plan.end:
            yield from self._unreplicated(moment, plan, SeqRange(max(start, plan.end + 1), numbers.last))

    def _replicated_early(self, key: Key) -> dict[int, int | None]:
        """The store's offset, read while the mark is in flight: safe only if no cache is used afterwards."""
        partition = None if self._heads else self._log.partition_of(key.topic, key.id.encode())
        return {} if partition is None else {partition: self._store.offset(key.topic, partition)}

    def _plan_cached(self, key: Key, partition: int, last: int, found: Ahead | Known) -> Moment | None:
        if isinstance(found, Ahead):
            return Moment(key, partition, last, plan_from_store(self._store.pointer(key)))
        last = max(last, found.offset)
        head, first = self._head(key, Window(key.topic, partition, _next(found.replicated), last))
        if first > last:
            return Moment(key, partition, last, plan_from_store(head))
        plan = plan_from_cache(found.info, head, key, partition, first - 1)
        return None if plan is None else Moment(key, partition, last, plan)

    def _replay(self, window: Window, key: Key, from_seq_nr: SeqNr, deadline: Deadline) -> Moment:
        partition, last = window.partition, window.last
        head, first = (self._store.pointer(key), window.first) if window.first > last else self._head(key, window)
        if first > last:
            return Moment(key, partition, last, plan_from_store(head))
        window = Window(key.topic, partition, first, last)
        replay = LogReplay(head, key, window, from_seq_nr, self._buffer_bytes)
        try:
            with closing(self._log.records(window, key.id.encode(), deadline)) as records:
                for record in records:
                    replay.take(record)
        except RecordsLostError as lost:
            deadline.remaining()
            return self._replay(self._caught_up(window, lost), key, from_seq_nr, deadline)
        return Moment(key, partition, last, replay.plan(), replay.kept)

    def _caught_up(self, window: Window, lost: RecordsLostError) -> Window:
        """The window after the store has passed what the log has lost; raises the error if it has not."""
        first = _next(self._store.offset(window.topic, window.partition))
        if first < min(lost.first, window.last + 1):
            raise lost
        return Window(window.topic, window.partition, first, window.last)

    def _head(self, key: Key, window: Window) -> tuple[JournalHead | None, int]:
        """The store's head, and the first offset that it does not include; one after the window if it includes all.

        A head names the last action that it includes. No head names nothing: the journal was never there, or was purged
        after the offset was read with which the window begins. Replayed over nothing, actions before such a purge could
        seem to count. So the offset is read again, until it has not moved while the head was read.
        """
        head, first = self._store.pointer(key), window.first
        while head is None:
            moved = _next(self._store.offset(key.topic, window.partition))
            if moved <= first:
                return None, first
            head, first = self._store.pointer(key), moved
            if first > window.last:
                return head, first
        return head, max(first, _next(_applied(head, window.partition)))

    def _stored(self, key: Key, head: JournalHead, numbers: SeqRange) -> Generator[EventRecord, None, None]:
        with closing(self._store.read(key, head, numbers.first)) as records:
            for record in records:
                if record.seq_nr > numbers.last:
                    break
                yield record
        _require_unchanged(key, head, self._store.pointer(key), numbers.first)

    def _unreplicated(self, moment: Moment, plan: ReadPlan, numbers: SeqRange) -> Generator[EventRecord, None, None]:
        if moment.kept is not None:
            yield from self._visible(moment, moment.kept, numbers)
            return
        if _next(self._store.offset(moment.key.topic, moment.partition)) > moment.last:
            yield from self._replicated_meanwhile(moment, plan, numbers)
            return
        window = Window(moment.key.topic, moment.partition, plan.log_from or 0, moment.last)
        try:
            with closing(self._appends(moment, window)) as appends:
                yield from self._visible(moment, appends, numbers)
        except RecordsLostError as lost:
            self._caught_up(window, lost)
            raise _changed_error(moment.key, "lost to retention, after it was replicated,", numbers.first) from lost

    def _replicated_meanwhile(
        self, moment: Moment, plan: ReadPlan, numbers: SeqRange
    ) -> Generator[EventRecord, None, None]:
        """What the store has by now of the events that only the log had.

        Without a head at the mark nothing was shown before, so everything is of the later moment. With one, what it
        had is shown already: events after the mark may follow a delete of those, and are left out.
        """
        head = self._store.pointer(moment.key)
        last = numbers.last
        if plan.head is not None:
            _require_unchanged(moment.key, plan.head, head, numbers.first)
            last = min(last, plan.pointer or 0)
        if head is not None and (start := max(numbers.first, (head.delete_to or 0) + 1)) <= last:
            yield from self._stored(moment.key, head, SeqRange(start, last))

    def _appends(self, moment: Moment, window: Window) -> Generator[LogAppend, None, None]:
        """The appends of a window that begins with the first one that is in the log alone, and the life each found."""
        key, fold, life = moment.key, JournalFold(moment.key, window.partition), moment.plan.before
        deadline = Deadline(self._clock, self._timeout, f"Reading {key} from {window}")
        seen = -1
        with closing(self._log.records(window, key.id.encode(), deadline)) as records:
            for record in records:
                action = action_of(record, window.topic, window.partition) if record.offset > seen else None
                seen = record.offset
                if isinstance(action, Append):
                    yield LogAppend(action, record, life)
                # A purge is void here: after one that counts, the plan would begin behind it.
                if action is not None and not isinstance(action, Purge):
                    life = fold.after(life, action, record.offset)
                # The time that the caller took does not count.
                deadline.renew()

    def _visible(
        self, moment: Moment, appends: Iterable[LogAppend], numbers: SeqRange
    ) -> Generator[EventRecord, None, None]:
        fold = JournalFold(moment.key, moment.partition)
        for action, record, before in appends:
            if action.range.last < numbers.first:
                continue
            kept, forks = judge_events(fold, before, action, self._decode(moment, action, record))
            for fork in forks:
                self._on_fork(moment.key, fork)
            for event in kept:
                if event.seq_nr > numbers.last:
                    return
                if event.seq_nr >= numbers.first:
                    yield event

    def _decode(self, moment: Moment, action: Append, record: LogRecord) -> list[EventRecord]:
        began = perf_counter()
        events = events_of(action, record, moment.key.topic, moment.partition)
        self._meter.took("journal_decode", perf_counter() - began, action.payload_type.value)
        return events


def wait_for_place(place: Future[PartitionOffset], deadline: Deadline) -> PartitionOffset:
    """Waits for the place of a record that was sent; raises the error of the send, or `DeadlineError`."""
    try:
        return place.result(timeout=deadline.remaining())
    except TimeoutError as error:
        raise deadline.error() from error


def _next(offset: int | None) -> int:
    return 0 if offset is None else offset + 1


def _applied(head: JournalHead | None, partition: int) -> int:
    """The last offset of the partition that a head includes; -1 if unknown."""
    if head is None or head.partition_offset.partition != partition:
        return -1
    return head.partition_offset.offset


def _require_unchanged(key: Key, before: JournalHead, after: JournalHead | None, start: SeqNr) -> None:
    is_same = after is not None and after.record_id == before.record_id and after.seq_nr >= before.seq_nr
    if after is not None and is_same and (after.delete_to or 0) < start:
        return
    raise _changed_error(key, "truncated" if is_same else "purged", start)


def _changed_error(key: Key, what: str, start: SeqNr) -> JournalChangedError:
    return JournalChangedError(
        f"The journal {key} was {what} while its events from {start} on were read.", hint="Read it again."
    )


class OffsetNotices(Protocol):
    """Receives what replicators announce. Safe for use by many threads; never raises."""

    def listen(self, place: Place, offset: int) -> AbstractContextManager[threading.Event | None]:
        """An event that is set whenever the store may have passed the offset; None if waiting is not worth it."""

    def timed_out(self, place: Place, offset: int) -> None:
        """A reader waited for this offset, and no notice came in time."""


class StoreWait:
    """Waits until the store has passed an offset, for at most `seconds`, instead of reading Kafka.

    **What is authoritative.** The store's own offset. A notice only says that it is time to read it again. So a notice
    that is wrong, old, of a store before it was restored, or that never comes costs a query or some time, and never an
    event.

        listen for notices of the partition     before the store is read, so that none is missed in between
        has the store passed the mark?          if so the wait is over
        sleep until a notice reaches the mark   or until a notice may have been missed, or the time is over
        read the store's offset again           and so on

    A wait during which no notice came *timed out*. From then on no reader waits for that partition until a notice
    reaches the offset of that wait. So while replication is down, or far behind, one read pays for it and the others go
    to Kafka at once.
    """

    def __init__(
        self, store: EventualJournal, notices: OffsetNotices, clock: Callable[[], float], *, seconds: float
    ) -> None:
        self._store = store
        self._notices = notices
        self._clock = clock
        self._seconds = seconds

    def has_passed(self, place: Place, offset: int, deadline: Deadline) -> bool:
        """Whether the store has everything up to the offset; waits for it."""
        with self._notices.listen(place, offset) as heard:
            if heard is None:
                return False
            end = self._clock() + wait_seconds(self._seconds, deadline.remaining())
            has_passed, is_notified = self._store_has(place, offset), True
            while is_notified and not has_passed:
                left = end - self._clock()
                is_notified = left > 0 and heard.wait(left)
                heard.clear()  # before the store is read: a notice that comes meanwhile must not be lost
                has_passed = self._store_has(place, offset)
        if not is_notified:
            self._notices.timed_out(place, offset)
        return has_passed

    def _store_has(self, place: Place, offset: int) -> bool:
        replicated = self._store.offset(*place)
        return replicated is not None and replicated >= offset


def wait_seconds(seconds: float, remaining: float) -> float:
    """How long to wait, given the remaining time of a read: at most half of it, so that Kafka can still be read.

    >>> wait_seconds(0.5, 30.0), wait_seconds(0.5, 0.4)
    (0.5, 0.2)
    """
    return min(seconds, remaining / 2)
