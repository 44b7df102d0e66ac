"""One instance of a projection: which partitions it has, where each begins, and what it does after a failure.

`projection.py` describes the protocol. Nothing here outlives the process: the rows of the database decide, and whatever
goes wrong, a partition is opened again at its row.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol

from inorder.database.database import Transaction
from inorder.engines.measures import SILENT, Meter
from inorder.engines.slice_work import jittered, other_topic
from inorder.journal.event_filter import OpenRecord, open_as_is
from inorder.journal.projection import (
    SCAN_EVENTS,
    BeginScan,
    Folding,
    Follow,
    Projection,
    decide_start,
)
from inorder.journal.stores.ports import EventualJournal, LogRecord
from inorder.journal.stores.projection_store import ProjectionPoint, ProjectionStore
from inorder.model.errors import InorderError, TransientError, last_line
from inorder.model.partitioning import Extent, Partitioner, Place, partition_of

log = logging.getLogger("inorder.journal")

SLICE_RECORDS: Final = 500
"""The most records of one transaction."""
SCAN_JOURNALS: Final = 100
IDS_AT_ONCE: Final = 100_000
POLL_SECONDS: Final = 0.2
END_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 60.0


# What a projection needs of Kafka.


class Polled(NamedTuple):
    """What one poll brought, by partition."""

    records: Mapping[Place, Sequence[LogRecord]]
    ends: Mapping[Place, int]
    """Of partitions that are read to their end: the offset of the next record."""
    lost: Collection[Place] = ()
    """Partitions whose next record is gone."""


class SharedTail(Protocol):
    """Follows the partitions of topics that this instance has; used by one thread, which closes it.

    Failures are raised as `TransientError`. The owner then closes it and opens another.
    """

    def assigned(self) -> Mapping[Place, int]:
        """The partitions of this instance; the number changes when one was away in between."""

    def partitions(self, topic: str) -> int: ...

    def topic_id(self, topic: str) -> str | None: ...

    def extent(self, place: Place) -> Extent:
        """The first offset of a partition and the one after its last."""

    def end(self, place: Place) -> int:
        """The end of a partition as far as it is known without a request; for metrics."""

    def start(self, place: Place, offset: int) -> None:
        """Reads a partition from an offset."""

    def stop(self, place: Place) -> None:
        """Reads a partition no longer, although this instance keeps it."""

    def poll(self, timeout_seconds: float) -> Polled:
        """Waits for the first record, then takes what is there."""

    def close(self) -> None: ...


class _MovedElsewhereError(Exception):
    """Another instance, or a reset, has changed the partition's row."""


@dataclass(slots=True)
class _Held:
    """A partition of this instance."""

    place: Place
    generation: int
    point: ProjectionPoint | None = None
    """The row as this instance last saw it; None: it is to be opened."""
    next_offset: int | None = None
    """That of the row, also while the partition waits to be opened again; None: it was never opened."""
    open_at: float = 0.0
    failures: int = 0
    """Since the last transaction that was committed."""
    error: str = ""
    limit: int = SLICE_RECORDS
    """The most records of the next transaction: one after a failure, so that what is before the cause is committed."""
    ids: deque[str] = field(default_factory=deque)
    end: int = 0
    target: int | None = None
    """Where a run that ends by itself ends."""

    @property
    def lag(self) -> int:
        return 0 if self.next_offset is None else max(0, self.end - self.next_offset)

    @property
    def is_done(self) -> bool:
        return (
            self.point is not None
            and self.point.scan_id is None
            and self.target is not None
            and self.point.next_offset >= self.target
        )


class PartitionStatus(NamedTuple):
    """A partition of a projection, for people."""

    topic: str
    partition: int
    next_offset: int
    end: int
    lag: int
    state: str
    """`following`, `scanning` or `waiting`."""
    failures: int
    error: str


class ProjectionRunner:
    """One instance of a projection: `run` blocks, `stop` may be called by any thread."""

    def __init__(
        self,
        projection: Projection,
        store: ProjectionStore,
        journals: EventualJournal,
        open_tail: Callable[[Projection, bool], SharedTail],
        *,
        meter: Meter = SILENT,
        on_waiting: Callable[[str], object] = lambda _reason: None,
        identify: Callable[[str], object] = lambda _topic: None,
        open_record: OpenRecord = open_as_is,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`open_tail` opens the topics: shared with other instances, or all partitions for a run that ends.

        `identify` raises `OtherTopicError` for a topic that is not the one that the store knows.
        """
        self._projection = projection
        self._store = store
        self._journals = journals
        self._open_tail = open_tail
        self._meter = meter
        self._on_waiting = on_waiting
        self._identify = identify
        self._open_record = open_record
        self._clock = clock
        self._stop = threading.Event()
        self._held: dict[Place, _Held] = {}
        self._reason = ""

    def run(self, *, once: bool = False, stop: threading.Event | None = None) -> dict[str, int]:
        """Follows the topics until `stop`, or once to their present ends; returns how many changes of each kind came.

        A run that ends by itself reads all partitions, and raises the first error instead of trying again.
        """
        self._stop = stop or self._stop
        self._totals = {"appended": 0, "deleted": 0, "purged": 0}
        while not self._stop.is_set():
            try:
                self._held = {}
                with closing(self._open_tail(self._projection, once)) as tail:
                    self._follow(tail, once=once)
                break
            except TransientError as error:
                if once:
                    raise
                log.warning(
                    "journal.projection_reconnects",
                    extra={"projection": self._projection.name, "error": error.message},
                )
                self._stop.wait(jittered(1.0))
        return dict(self._totals)

    def stop(self) -> None:
        """Ends `run` after the current transaction; may be called twice."""
        self._stop.set()

    def reset(self) -> int:
        """Forgets how far the projection is, so that it begins again: empty its tables first. Counts its partitions."""
        return self._store.reset()

    def lags(self) -> dict[Place, int]:
        """How many offsets of each partition of this instance are not in the read model."""
        return {place: held.lag for place, held in list(self._held.items())}

    def waiting(self) -> dict[Place, str]:
        """The partitions of this instance that wait after a failure, and why."""
        return {place: held.error for place, held in list(self._held.items()) if held.failures}

    def status(self) -> list[PartitionStatus]:
        """Every partition of the projection, whichever instance has it."""
        with closing(self._open_tail(self._projection, True)) as tail:
            ends = {place: tail.extent(place).end for place in tail.assigned()}
        return [
            PartitionStatus(
                row.topic,
                row.partition,
                row.next_offset,
                end := ends.get((row.topic, row.partition), row.next_offset),
                max(0, end - row.next_offset),
                "waiting" if row.failures else "following" if row.scan_id is None else "scanning",
                row.failures,
                row.error or "",
            )
            for row in self._store.rows()
        ]

    def _follow(self, tail: SharedTail, *, once: bool) -> None:
        looked = self._clock()
        while not self._stop.is_set():
            self._take_assignment(tail)
            self._report_waiting()
            for held in self._held.values():
                if held.point is None and held.open_at <= self._clock():
                    self._attempt(tail, held, partial(self._open, tail, held), once=once, settles=False)
            if once and all(held.is_done for held in self._held.values()):
                return
            scanning = [held for held in self._held.values() if held.point and held.point.scan_id is not None]
            for held in scanning:
                self._attempt(tail, held, partial(self._scan, tail, held), once=once)
            self._poll(tail, 0 if scanning else POLL_SECONDS, once=once)
            if self._clock() - looked >= END_SECONDS:
                looked = self._clock()
                for held in self._held.values():
                    held.end = max(held.end, tail.end(held.place))

    def _poll(self, tail: SharedTail, seconds: float, *, once: bool) -> None:
        polled = tail.poll(seconds)
        for place in polled.lost:
            self._reopen(tail, place)
        for place, records in polled.records.items():
            self._take(tail, place, records, once=once)
        for place, end in polled.ends.items():
            self._reach_end(tail, place, end, once=once)

    def _take_assignment(self, tail: SharedTail) -> None:
        assigned = tail.assigned()
        for place, held in list(self._held.items()):
            if assigned.get(place) != held.generation:
                del self._held[place]
        for place, generation in assigned.items():
            self._held.setdefault(place, _Held(place, generation))

    def _open(self, tail: SharedTail, held: _Held) -> None:
        """Begins to read a partition where its row says."""
        place, (topic, partition) = held.place, held.place
        self._identify(topic)
        topic_id, extent = tail.topic_id(topic), tail.extent(place)
        found = self._store.read(place)
        if found and found.topic_id and topic_id and found.topic_id != topic_id:
            error = other_topic(topic, found.topic_id, topic_id)
            error.hint = "Empty the tables of the projection and run `inorder journal project --reset`."
            raise error
        start = decide_start(found, extent.first, self._journals.offset(topic, partition), place)
        point = found or self._store.begin(place, 0, topic_id)
        held.end = extent.end
        held.target = extent.end if held.target is None else held.target
        if isinstance(start, Follow):
            tail.start(place, point.next_offset)
        elif isinstance(start, BeginScan):
            scanning = replace(point, next_offset=start.next_offset, scan_id="", store_to=None)
            with self._store.database.transaction() as transaction:
                self._require_unchanged(transaction, place, point)
                self._store.move(transaction, place, scanning)
            point = scanning
            log.info(
                "journal.projection_scans",
                extra={"projection": self._projection.name, "topic": topic, "partition": partition},
            )
        held.ids.clear()
        held.point, held.next_offset = point, point.next_offset

    def _take(self, tail: SharedTail, place: Place, records: Sequence[LogRecord], *, once: bool) -> None:
        held = self._held.get(place)
        if held is None or held.point is None or held.point.scan_id is not None:
            return
        first = held.point.next_offset
        rest = [record for record in records if record.offset >= first]
        while rest and not self._stop.is_set():
            some, rest = rest[: held.limit], rest[held.limit :]
            if not self._attempt(tail, held, partial(self._apply, held, some, some[-1].offset + 1), once=once):
                return
            held.limit = min(SLICE_RECORDS, held.limit * 2)

    def _reach_end(self, tail: SharedTail, place: Place, end: int, *, once: bool) -> None:
        """Offsets without a record, such as markers of transactions, are passed; nothing is left to wait for."""
        held = self._held.get(place)
        if held is None or held.point is None or held.point.scan_id is not None:
            return
        held.end = max(held.end, end)
        if end > held.point.next_offset or held.failures:
            reached = max(end, held.point.next_offset)
            self._attempt(tail, held, partial(self._apply, held, [], reached), once=once)

    def _attempt(
        self, tail: SharedTail, held: _Held, act: Callable[[], None], *, once: bool, settles: bool = True
    ) -> bool:
        """Whether it succeeded; if not, the partition is opened again at once, or after a pause that grows.

        A partition that is opened is only about to try again what failed, so that does not settle it.
        """
        try:
            act()
        except _MovedElsewhereError:
            self._reopen(tail, held.place)
            return False
        except Exception as error:
            if once:
                raise
            self._wait_after(tail, held, error)
            return False
        if settles:
            held.failures, held.error = 0, ""
        return True

    def _report_waiting(self) -> None:
        reason = next(iter(self.waiting().values()), "")
        if reason != self._reason:
            self._reason = reason
            self._on_waiting(reason)

    def _reopen(self, tail: SharedTail, place: Place) -> None:
        held = self._held.get(place)
        if held is not None:
            tail.stop(place)
            held.point, held.open_at = None, self._clock()

    def _wait_after(self, tail: SharedTail, held: _Held, error: Exception) -> None:
        topic, partition = held.place
        held.failures += 1
        held.error = error.message if isinstance(error, InorderError) else last_line(error)
        pause = jittered(min(LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * 2 ** min(held.failures - 1, 20)))
        self._reopen(tail, held.place)
        held.open_at, held.limit = self._clock() + pause, 1
        fields = {"projection": self._projection.name, "topic": topic, "partition": partition}
        log.warning(
            "journal.projection_waits",
            extra={**fields, "failures": held.failures, "error": held.error, "seconds": round(pause, 1)},
        )
        self._meter.add("projection_failures", 1, self._projection.name, topic)
        with suppress(InorderError):  # the log has it
            self._store.fail(held.place, held.failures, held.error)

    def _require_unchanged(self, transaction: Transaction, place: Place, point: ProjectionPoint) -> None:
        if self._store.lock(transaction, place) != point:
            raise _MovedElsewhereError

    def _apply(self, held: _Held, records: Sequence[LogRecord], next_offset: int) -> None:
        """One slice, one transaction."""
        assert held.point is not None  # noqa: S101 - the caller checks
        place, point = held.place, held.point
        is_past_store = point.store_to is not None and next_offset > point.store_to
        moved = replace(point, next_offset=next_offset, store_to=None if is_past_store else point.store_to)
        with self._store.database.transaction() as transaction:
            self._require_unchanged(transaction, place, point)
            folded = Folding(self._projection, self._store, self._journals, transaction, place, self._open_record)
            folded.take(records, point.store_to)
            folded.save()
            if is_past_store:
                self._store.forget_absent(transaction, place, moved.next_offset)
            self._store.move(transaction, place, moved)
        self._commit(held, moved, folded)

    def _scan(self, tail: SharedTail, held: _Held) -> None:
        """Brings the next journals of the store up to date; after the last one the log is read."""
        assert held.point is not None  # noqa: S101 - the caller checks
        place, point = held.place, held.point
        if not held.ids:
            held.ids.extend(self._ids_above(tail, place, point.scan_id or ""))
        moved, ids = point, list(islice(held.ids, SCAN_JOURNALS))
        with self._store.database.transaction() as transaction:
            self._require_unchanged(transaction, place, point)
            folded = Folding(self._projection, self._store, self._journals, transaction, place, self._open_record)
            for id in folded.scan(ids, SCAN_EVENTS):
                moved = replace(moved, scan_id=id)
            if not ids:
                # Journals that were purged before their turn are decided by the store up to here.
                store_to = self._journals.offset(*place)
                moved = replace(point, scan_id=None, store_to=store_to)
                self._store.forget_absent(transaction, place, point.next_offset)
            folded.save()
            self._store.move(transaction, place, moved)
        self._commit(held, moved, folded)
        while held.ids and held.ids[0] <= (moved.scan_id or ""):
            held.ids.popleft()
        if moved.scan_id is None:
            self._reopen(tail, place)

    def _ids_above(self, tail: SharedTail, place: Place, id: str) -> Iterable[str]:
        """The next journals of the store, and those that were shown: the store may have them no more."""
        topic, partition = place
        count, prefix = tail.partitions(topic), self._projection.id_prefix

        def is_next(each: str) -> bool:
            return each > id and each.startswith(prefix) and _partition_of(each, count) == partition

        stored = heapq.nsmallest(IDS_AT_ONCE, filter(is_next, self._journals.ids(topic)))
        shown = self._store.ids_above(place, id, IDS_AT_ONCE)
        # Where one list is cut off, what is after its end is for the next pass.
        ends = [each[-1] for each in (stored, shown) if len(each) == IDS_AT_ONCE]
        return [each for each in sorted({*stored, *shown}) if not ends or each <= min(ends)]

    def _commit(self, held: _Held, point: ProjectionPoint, folded: Folding) -> None:
        held.point, held.next_offset = point, point.next_offset
        for kind, count in folded.counts.items():
            self._totals[kind] += count
            self._meter.add("projection_changes", count, self._projection.name, held.place[0], kind)


def _partition_of(id: str, count: int) -> int:
    return partition_of(id.encode(), count, Partitioner.MURMUR2) or 0
