"""Journals without servers: a log, a store, snapshots, and a replicator that is as far behind as a test wants.

`MemoryJournals` puts them together, for the tests of applications. It is the same client and the same reader as on
Kafka, and the same rules decide what counts (`journal/life.py`); only log, store and snapshots are in memory. So it
passes the same contract suite, `tests/contract/journals`. Projections write to a real database, as a rule an SQLite
file. The parts are public as well, for a test that wants to be in between them.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple, assert_never
from uuid import UUID

from inorder.database.database import Database, open_database
from inorder.journal.action import Mark, apply_expiry_change
from inorder.journal.asynchronous import THREADS, AsyncJournalClient
from inorder.journal.client import JournalClient, log_fork
from inorder.journal.codec import RecordSender, action_of
from inorder.journal.keys import JournalKeys
from inorder.journal.life import Fork
from inorder.journal.projection import Projection
from inorder.journal.projection_runner import Polled, ProjectionRunner
from inorder.journal.reading.head_cache import Ahead, InspectedRecord, Known, PartitionCache, inspect_record
from inorder.journal.reading.reader import JournalReader
from inorder.journal.replication.actions import SliceSource, replicate_journal
from inorder.journal.replication.transition import (
    ActionRecord,
    DeleteEvents,
    DeleteHead,
    InsertEvents,
    InsertHead,
    Statement,
    UpdateHead,
)
from inorder.journal.segments import journal_segment
from inorder.journal.snapshots import (
    LifeAtMark,
    SnapshotHistory,
    SnapshotRow,
    place_snapshot,
    purged_error,
    select_snapshots,
)
from inorder.journal.stores.ports import JournalFilter, JournalHead, ListedJournal, LogRecord, Window
from inorder.journal.stores.projection_store import ProjectionStore
from inorder.journal.subscription import Subscription
from inorder.model.deadline import Deadline
from inorder.model.errors import GuaranteeError, RecordsLostError
from inorder.model.journal import EventRecord, Key, PartitionOffset, SeqNr, Snapshot, SnapshotCriteria
from inorder.model.message import Record
from inorder.model.partitioning import Extent, Partitioner, Place, partition_of


class Regime(NamedTuple):
    """How far the store is behind the log after each record; None means that it is never replicated."""

    name: str
    records_behind: int | None = 0
    offset_behind: int = 0
    """How much further the partition's offset is behind."""
    forgets: bool = False
    """Whether the log loses what is replicated."""


REGIMES = (
    Regime("the store is empty", None),
    Regime("the log has only marks", forgets=True),
    Regime("in step"),
    *(Regime(f"the offset is {n} behind", 0, n) for n in (1, 2, 3)),
    *(Regime(f"the store is {n} behind", n) for n in (1, 2, 3, 4)),
    *(Regime(f"the store is {n} behind, its offset one more", n, 1) for n in (1, 2, 3)),
)
"""The ways in which the original's tests let replication lag."""
IN_STEP: Final = Regime("in step")
NEVER: Final = Regime("the store is empty", None)


class MemoryJournals(JournalClient):
    """`inorder.Journals` without servers, for tests; any topic exists. Safe for use by many threads.

    `regime` says how far replication is behind, `head_cache` is `journal.head_cache`, `snapshots` the number that each
    journal keeps, `keys` is `journal.keys`.

    >>> from inorder import Event, Key
    >>> journal = MemoryJournals().journal(Key("account-1", "journal"))
    >>> journal.append([Event(1, {"opened": "EUR"})], expected_seq_nr=0).offset
    1
    >>> [record.event.payload for record in journal.read()]
    [{'opened': 'EUR'}]
    """

    log: MemoryJournalLog
    store: MemoryJournalStore

    def __init__(
        self,
        *,
        partitions: int = 1,
        regime: Regime = IN_STEP,
        head_cache: bool = False,
        snapshots: int = 10,
        origin: str | None = None,
        keys: str | None = None,
        timeout_seconds: float = 30.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        log: MemoryJournalLog | None = None,
    ) -> None:
        log, store, history = log or MemoryJournalLog(partitions), MemoryJournalStore(), MemorySnapshots()
        self.replicator = MemoryReplicator(log, store, snapshots=history)
        self.replicator.follow(regime)
        heads = MemoryHeads(log, store) if head_cache else None
        super().__init__(
            log,
            store,
            JournalReader(log, store, time.monotonic, heads=heads, timeout_seconds=timeout_seconds, on_fork=log_fork),
            sender=RecordSender(origin),
            snapshot_history=SnapshotHistory(history, snapshots),
            keys=None if keys is None else JournalKeys(keys),
            timeout_seconds=timeout_seconds,
            now=now,
        )
        self._seconds = timeout_seconds
        self._projections: list[ProjectionRunner] = []
        self._databases: list[Database] = []

    def find(
        self, topic: str, *, origin: str | None = None, created: date | None = None, expires: date | None = None
    ) -> Iterator[ListedJournal]:
        """The replicated journals of a topic that match; see `inorder.Journals.find`."""
        return self.store.journals(topic, JournalFilter(origin, created, expires))

    def subscribe(self, topic: str, checkpoint: Any = None, **options: Any) -> Subscription:
        """Every event of a topic after a checkpoint; see `inorder.Journals.subscribe`."""
        options = {
            "timeout_seconds": self._seconds,
            "on_fork": log_fork,
            "open_record": self.open_record,
            **options,
        }
        return Subscription(self.log, self.store, topic, time.monotonic, checkpoint=checkpoint, **options)

    def project(
        self,
        projection: Projection,
        *,
        database: str,
        on_waiting: Callable[[str], object] = lambda _reason: None,
    ) -> ProjectionRunner:
        """A projection into tables of a database, for a test `sqlite:///FILE`; see `inorder.Journals.project`.

        `run(once=True)` of what is returned ends when everything is projected. There is no consumer group: each
        instance has all partitions, and the rows of the database decide which one applies a record.
        """
        opened = open_database(database, f"inorder projection {projection.name}")
        self._databases.append(opened)

        def open_tail(chosen: Projection, is_alone: bool) -> MemorySharedTail:  # noqa: ARG001 - the signature
            return MemorySharedTail(
                self.log, {(topic, number): 0 for topic in chosen.topics for number in range(self.log.partitions)}
            )

        store = ProjectionStore(opened, projection.name)
        runner = ProjectionRunner(
            projection, store, self.store, open_tail, on_waiting=on_waiting, open_record=self.open_record
        )
        self._projections.append(runner)
        return runner

    def close(self) -> None:
        """Ends the projections and closes their databases; the events stay. May be called twice."""
        for runner in self._projections:
            runner.stop()
        for opened in self._databases:
            opened.close()
        super().close()


class AsyncMemoryJournals(AsyncJournalClient):
    """`inorder.AsyncJournals` without servers; `journals` has the events, for a test to look at."""

    def __init__(self, journals: MemoryJournals | None = None, *, threads: int = THREADS) -> None:
        self.journals = journals or MemoryJournals()
        super().__init__(self.journals, self.journals.subscribe, threads=threads)


class MemoryReplicator:
    """Applies records to the store, one by one, up to a given offset."""

    def __init__(
        self,
        log: MemoryJournalLog,
        store: MemoryJournalStore,
        *,
        segment_size: int = 2,
        snapshots: MemorySnapshots | None = None,
    ) -> None:
        self._log = log
        self._store = store
        self._snapshots = snapshots
        self._segment_size = segment_size
        self._next: dict[tuple[str, int], int] = {}
        self._lock = threading.RLock()
        self.forks: list[Fork] = []

    def follow(self, regime: Regime) -> None:
        """Replicates after every record from now on, as far as the regime allows."""
        self._log.on_sent = lambda topic, partition: self._keep_up(regime, topic, partition)

    def replicate(self, topic: str, partition: int, end: int, *, moves_offset: bool = True) -> None:
        """Applies the records below an offset."""
        place = topic, partition
        with self._lock:
            for record in self._log.records_between(topic, partition, self._next.get(place, 0), end):
                self._apply(record, topic, partition)
            self._next[place] = max(end, self._next.get(place, 0))
            if moves_offset and end:
                self._store.move_offset(topic, partition, end - 1)

    def _keep_up(self, regime: Regime, topic: str, partition: int) -> None:
        if regime.records_behind is None:
            return
        with self._lock:
            end = max(0, self._log.end(topic, partition) - regime.records_behind)
            self.replicate(topic, partition, end, moves_offset=False)
            if end > regime.offset_behind:
                self._store.move_offset(topic, partition, end - 1 - regime.offset_behind)
            if regime.forgets:
                self._log.forget(topic, partition, end)

    def _apply(self, record: LogRecord, topic: str, partition: int) -> None:
        action = action_of(record, topic, partition)
        if action is None or isinstance(action, Mark) or record.key is None:
            return
        key = Key(record.key.decode(), topic)
        source = SliceSource(topic, partition, self._segment_size)
        done = replicate_journal(source, key, self._store.pointer(key), [ActionRecord(record.offset, action, record)])
        statements = [each for _, each in done.change.statements]
        if self._snapshots is not None and any(isinstance(each, DeleteHead) for each in statements):
            self._snapshots.void(key, PartitionOffset(partition, record.offset))
        self._store.carry_out(key, statements)
        self.forks.extend(done.forks)
        for fork in done.forks:
            log_fork(key, fork)


class MemoryHeads:
    """A head cache that has always seen everything."""

    def __init__(self, log: MemoryJournalLog, store: MemoryJournalStore, **limits: int) -> None:
        self._log = log
        self._store = store
        self._limits = limits
        self._lock = threading.Lock()
        self._caches: dict[tuple[str, int], PartitionCache] = {}

    def find(self, key: Key, partition: int, offset: int, deadline: Deadline) -> Ahead | Known | None:  # noqa: ARG002 - the port's signature
        replicated = self._store.offset(key.topic, partition)
        with self._lock:
            cache = self._caches.setdefault((key.topic, partition), PartitionCache(**self._limits))
            if replicated is not None:
                cache.remove(replicated)
            cache.add(self._seen(key.topic, partition, -1 if cache.offset is None else cache.offset))
            found = cache.find(key.id.encode(), offset)
        return found if isinstance(found, Ahead | Known) else None

    def _seen(self, topic: str, partition: int, after: int) -> Iterator[InspectedRecord]:
        for record in self._log.records_between(topic, partition, after + 1, self._log.end(topic, partition)):
            yield inspect_record(record, topic, partition)


class MemoryJournalLog:
    """A `JournalLog` in memory; Kafka passes the same contract tests.

    Every record is acknowledged at once, after `on_sent` has run; `doubled` delivers each record twice.
    """

    def __init__(self, partitions: int = 1, *, doubled: bool = False) -> None:
        self.partitions = partitions
        self._copies = 2 if doubled else 1
        self._records: dict[tuple[str, int], list[LogRecord]] = defaultdict(list)
        self._first: dict[tuple[str, int], int] = defaultdict(int)
        self._changed = threading.Condition()
        self.on_sent: Callable[[str, int], object] = lambda *place: place
        self.windows: list[Window] = []
        """Every window that was read, for tests of what is not read."""

    def send(self, record: Record) -> Future[PartitionOffset]:
        partition = self.partition_of(record.topic, record.key or b"")
        future: Future[PartitionOffset] = Future()
        with self._changed:
            offset = self.write(record, partition)
            self._changed.notify_all()
        self.on_sent(record.topic, partition)
        future.set_result(PartitionOffset(partition, offset))
        return future

    def write(self, record: Record, partition: int) -> int:
        """Appends a record to a partition and returns its offset."""
        records = self._records[record.topic, partition]
        records.append(LogRecord(len(records), record.timestamp_ms, record.key, record.value, record.headers))
        return len(records) - 1

    def end(self, topic: str, partition: int) -> int:
        """The offset that the next record gets."""
        return len(self._records[topic, partition])

    def records_between(self, topic: str, partition: int, first: int, end: int) -> list[LogRecord]:
        """The records from one offset to below another, of all keys."""
        return self._records[topic, partition][first:end]

    def forget(self, topic: str, partition: int, first: int) -> None:
        """Removes the records below an offset, as retention does."""
        self._first[topic, partition] = first

    def partition_of(self, topic: str, key: bytes) -> int:  # noqa: ARG002 - all topics have the same partitions
        """The partition that Java's producer chooses."""
        return partition_of(key, self.partitions, Partitioner.MURMUR2) or 0

    def records(self, window: Window, key: bytes, deadline: Deadline) -> Generator[LogRecord, None, None]:
        place = window.topic, window.partition
        self.windows.append(window)
        if (first := self._first[place]) > window.first:
            raise RecordsLostError(f"{window}: the partition begins at {first}.", wanted=window.first, first=first)
        for offset in range(window.first, window.last + 1):
            deadline.remaining()
            record = self._records[place][offset]
            if record.key == key:
                for _ in range(self._copies):
                    yield record

    def tail(self, topic: str) -> MemoryTail:
        return MemoryTail(self, topic, self.partitions, self._changed)

    def first(self, topic: str, partition: int) -> int:
        """The lowest offset that is still there."""
        return self._first[topic, partition]

    def wait_for_more(self, offsets: Mapping[Place, int], timeout_seconds: float) -> None:
        """Waits until a partition has a record at its offset or above."""
        with self._changed:
            self._changed.wait_for(
                lambda: any(self.end(*place) > offset for place, offset in offsets.items()), timeout_seconds
            )

    def close(self) -> None:
        """Does nothing."""


class MemoryTail:
    """Follows the partitions of a topic in memory."""

    def __init__(self, log: MemoryJournalLog, topic: str, partitions: int, changed: threading.Condition) -> None:
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._changed = changed
        self._next: dict[int, int] = {}

    def partitions(self) -> Sequence[int]:
        return range(self._partitions)

    def start(self, offsets: Mapping[int, int]) -> None:
        for partition, wanted in offsets.items():
            first = self._log.first(self._topic, partition)
            if first > wanted:
                text = f"{self._topic}[{partition}] begins at {first}, not at {wanted}."
                raise RecordsLostError(text, wanted=wanted, first=first)
        self._next = dict(offsets)

    def poll(self, timeout_seconds: float) -> Mapping[int, Sequence[LogRecord]]:
        with self._changed:
            self._changed.wait_for(self._has_more, timeout_seconds)
            return {partition: records for partition in self._next if (records := self._take(partition))}

    def close(self) -> None:
        """Does nothing."""

    def _has_more(self) -> bool:
        return any(self._log.end(self._topic, partition) > offset for partition, offset in self._next.items())

    def _take(self, partition: int) -> list[LogRecord]:
        end = self._log.end(self._topic, partition)
        records = self._log.records_between(self._topic, partition, self._next[partition], end)
        self._next[partition] = max(end, self._next[partition])
        return records


@dataclass
class MemorySharedTail:
    """Follows partitions of topics in memory, for a projection; `places` may be changed at any time.

    `on_poll` is called in place of waiting for records.
    """

    log: MemoryJournalLog
    places: dict[Place, int]
    on_poll: Callable[[], object] | None = None
    starts: dict[Place, int] = field(default_factory=dict)
    id: str = "one"

    def assigned(self) -> Mapping[Place, int]:
        return dict(self.places)

    def partitions(self, topic: str) -> int:  # noqa: ARG002 - the port's signature
        return self.log.partitions

    def topic_id(self, topic: str) -> str | None:  # noqa: ARG002 - the port's signature
        return self.id

    def extent(self, place: Place) -> Extent:
        return Extent(self.log.first(*place), self.log.end(*place))

    def end(self, place: Place) -> int:
        return self.extent(place).end

    def start(self, place: Place, offset: int) -> None:
        self.starts[place] = offset

    def stop(self, place: Place) -> None:
        self.starts.pop(place, None)

    def poll(self, timeout_seconds: float) -> Polled:
        if self.on_poll is None:
            self.log.wait_for_more(self.starts, timeout_seconds)
        else:
            self.on_poll()
        records: dict[Place, list[LogRecord]] = {}
        ends, lost = {}, set()
        for place, offset in list(self.starts.items()):
            end = self.log.end(*place)
            if offset < self.log.first(*place):
                lost.add(place)
                continue
            if found := self.log.records_between(*place, offset, end):
                records[place] = found
            self.starts[place] = ends[place] = end
        return Polled(records, ends, lost)

    def close(self) -> None:
        self.starts.clear()


@dataclass(slots=True)
class _Rows:
    head: JournalHead | None = None
    created: datetime = datetime.min
    updated: datetime = datetime.min
    origin: str | None = None
    segments: dict[int, dict[tuple[SeqNr, UUID | None], EventRecord]] = field(default_factory=dict)


class MemoryJournalStore:
    """An `EventualJournal` in memory, which executes the statements of `transition.py`.

    `keeps_rows` deletes no events, as if every such statement were lost: what is visible must be the same.
    """

    def __init__(self, *, keeps_rows: bool = False) -> None:
        self._journals: dict[Key, _Rows] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._keeps_rows = keeps_rows
        self._lock = threading.Lock()

    def pointer(self, key: Key) -> JournalHead | None:
        rows = self._journals.get(key)
        return None if rows is None else rows.head

    def offset(self, topic: str, partition: int) -> int | None:
        return self._offsets.get((topic, partition))

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        start = max(from_seq_nr, (head.delete_to or 0) + 1)
        segments = self._journals[key].segments
        first, last = (journal_segment(number, head.segment_size) for number in (start, head.seq_nr))
        reached = 0
        with self._lock:
            numbers = sorted(number for number in segments if first <= number <= last)
        for segment in numbers:
            with self._lock:
                rows = sorted(segments.get(segment, {}).items(), key=lambda row: row[0][0])
            for (seq_nr, record_id), record in rows:
                if record_id != head.record_id or not start <= seq_nr <= head.seq_nr:
                    continue
                if seq_nr == reached:
                    raise GuaranteeError(f"seq_nr {seq_nr} of {key} is there twice.")
                reached = seq_nr
                yield record

    def ids(self, topic: str) -> Iterator[str]:
        return (key.id for key, rows in list(self._journals.items()) if key.topic == topic and rows.head)

    def journals(self, topic: str, where: JournalFilter) -> Iterator[ListedJournal]:
        with self._lock:
            found = [
                _listed(key.id, rows.head, rows)
                for key, rows in self._journals.items()
                if key.topic == topic and rows.head
            ]
        return filter(where.fits, found)

    def close(self) -> None:
        """Does nothing."""

    def carry_out(self, key: Key, statements: Iterable[Statement]) -> None:
        with self._lock:
            rows = self._journals.setdefault(key, _Rows())
            for statement in statements:
                self._carry_out(rows, statement)

    def move_offset(self, topic: str, partition: int, offset: int) -> None:
        """Records that everything up to an offset is applied; it never moves back."""
        self._offsets[topic, partition] = max(offset, self._offsets.get((topic, partition), 0))

    def _carry_out(self, rows: _Rows, statement: Statement) -> None:
        match statement:
            case InsertEvents():
                segment = rows.segments.setdefault(statement.segment, {})
                segment.update({(event.seq_nr, statement.record_id): event for event in statement.events})
            case InsertHead():
                rows.head, rows.origin = statement.head, statement.origin
                rows.created = rows.updated = statement.created
            case UpdateHead():
                rows.head = rows.head and update_head(rows.head, statement)
                rows.updated = statement.updated
            case DeleteEvents():
                if not self._keeps_rows:
                    _delete(rows, statement)
            case DeleteHead():
                rows.head = None
            case _:
                assert_never(statement)


def _listed(id: str, head: JournalHead, rows: _Rows) -> ListedJournal:
    expires = None if head.expiry is None else head.expiry.on
    return ListedJournal(id, head.seq_nr, head.delete_to, rows.created, rows.updated, rows.origin, expires)


def update_head(head: JournalHead, update: UpdateHead) -> JournalHead:
    delete_to = None if update.clears_delete_to else update.delete_to or head.delete_to
    return replace(
        head,
        partition_offset=update.partition_offset,
        seq_nr=update.seq_nr or head.seq_nr,
        delete_to=delete_to,
        record_id=update.record_id or head.record_id,
        expiry=apply_expiry_change(head.expiry, update.expiry),
        gaps=head.gaps if update.gaps is None else update.gaps,
    )


def _delete(rows: _Rows, statement: DeleteEvents) -> None:
    first, last = statement.segments
    empty = [range(gap.first, gap.last + 1) for gap in statement.gaps]
    for segment in [number for number in rows.segments if first <= number <= last]:
        if any(segment in gap for gap in empty):
            continue
        if segment == last and statement.to is not None:
            left = {row: event for row, event in rows.segments[segment].items() if row[0] > statement.to}
            rows.segments[segment] = left
        else:
            del rows.segments[segment]


class MemorySnapshots:
    """A `SnapshotStore` in memory; a purge is remembered, so that a slow saver finds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[Key, dict[int, tuple[SnapshotRow, Snapshot]]] = {}
        self._purged: dict[Key, PartitionOffset] = {}

    def rows(self, key: Key) -> list[SnapshotRow]:
        with self._lock:
            return [row for row, _ in self._slots.get(key, {}).values()]

    def load(self, key: Key, row: SnapshotRow) -> Snapshot | None:
        found, snapshot = self._slots.get(key, {}).get(row.slot, (None, None))
        return snapshot if found == row else None

    def save(self, key: Key, snapshot: Snapshot, size: int, send_mark: Callable[[], LifeAtMark]) -> bool:
        at_mark = send_mark()
        with self._lock:
            if _is_void(at_mark.place, self._purged.get(key)):
                raise purged_error(key)
            slots = self._slots.setdefault(key, {})
            rows = [row for row, _ in slots.values()]
            placed = place_snapshot(rows, at_mark, snapshot.seq_nr, snapshot.timestamp, size)
            if placed is None:
                return False
            for slot in placed.emptied:
                del slots[slot]
            row = SnapshotRow(placed.slot, snapshot.seq_nr, snapshot.timestamp, at_mark.place, at_mark.stored_life)
            slots[placed.slot] = row, snapshot
            return True

    def delete(self, key: Key, criteria: SnapshotCriteria, send_mark: Callable[[], LifeAtMark]) -> int:
        at_mark = send_mark()
        with self._lock:
            slots = self._slots.get(key, {})
            going = select_snapshots([row for row, _ in slots.values()], at_mark, criteria)
            for row in going:
                del slots[row.slot]
            return len(going)

    def void(self, key: Key, purge: PartitionOffset) -> None:
        """Deletes the snapshots that a purge makes void, as a replicator does."""
        with self._lock:
            self._purged[key] = max(purge, self._purged.get(key, purge))
            slots = self._slots.get(key, {})
            for slot in [slot for slot, (row, _) in slots.items() if _is_void(row.place, purge)]:
                del slots[slot]

    def close(self) -> None:
        """Does nothing."""


def _is_void(place: PartitionOffset, purge: PartitionOffset | None) -> bool:
    return purge is not None and (place.partition != purge.partition or place.offset < purge.offset)
