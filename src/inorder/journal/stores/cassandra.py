"""Journals in Cassandra, as readers see them: heads, offsets, events a page at a time; and their snapshots.

A segment is a partition of the table, so segments without a row are not skipped by themselves: each is a query. A head
lists them (`segments.py`), under a name of ours in its column `properties`, which the original leaves empty. Heads of
other replicators have no such list; their segments are tried one by one, up to a bound.

**Snapshots.** Savers of one journal take turns. A turn is a row in `locks` that expires. Its holder sends a mark, reads
the history, writes, and releases the turn by a compare-and-set. If that finds the turn gone, nothing counts and all is
done again with a new mark. A cell's time is made from the mark's offset, as in `cassandra_clock.py`: the tombstone of a
purge covers everything placed before it, whenever it is written; and a saver that was paused and lost its turn loses to
the next ones, since their marks come after its own. No two snapshots have the same time, so the cells of two never mix.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Any, Final, TypeVar
from uuid import uuid4

from inorder.journal.audit.findings import StoredRow, StoredState
from inorder.journal.replication.store_port import parked_error
from inorder.journal.segments import (
    SegmentSpan,
    journal_segment,
    metajournal_segments,
    present_segments,
    segment_size,
)
from inorder.journal.snapshots import LifeAtMark, SnapshotRow, place_snapshot, select_snapshots
from inorder.journal.stores.cassandra_clock import PartitionClocks
from inorder.journal.stores.cassandra_session import CassandraSession, cassandra_errors, identify, identity, install
from inorder.journal.stores.ports import Expiry, JournalFilter, JournalHead, ListedJournal, TopicIncarnation
from inorder.journal.stores.rows import (
    EventColumns,
    SnapshotColumns,
    require_unique,
    snapshot_columns,
    stored_event,
    stored_snapshot,
)
from inorder.model.errors import ConfigurationError, PermanentError, RejectedError, TransientError
from inorder.model.journal import EventRecord, Key, PartitionOffset, SeqNr, Snapshot, SnapshotCriteria

AT_ONCE: Final = 16
"""Token ranges that are queried together."""
_TOKENS = range(-(2**63), 2**63, 2**57)
MAX_EMPTY: Final = 10_000
"""Segments in a row without an event that a read tries if the head does not list them."""
RANGES: Final = tuple((first, min(first + _TOKENS.step, 2**63 - 1)) for first in _TOKENS)
"""The Murmur3 ring in 128 parts, each without its first token; enough that none takes long to scan."""


EXPIRY_DAYS: Final = 14
"""Days before today that the index is asked for."""
SCAN_DAYS: Final = 7
"""So often the ring is scanned for older ones; less than `EXPIRY_DAYS`, so that no day is left out."""
SCANNED_KEY: Final = "inorder.expiry-scan."
"""In the table `setting`, with the topic: the day of the last scan."""


def expiry_days(before: date, scanned: date | None) -> list[date]:
    """The days to ask the index for; none if the ring is to be scanned.

    >>> [len(expiry_days(date(2026, 5, 20), date(2026, 5, day))) for day in (13, 14, 20, 21)]
    [0, 14, 14, 0]
    """
    if scanned is None or not 0 <= (before - scanned).days < SCAN_DAYS:
        return []
    return [before - timedelta(days=back) for back in range(1, EXPIRY_DAYS + 1)]


def incarnation(session: CassandraSession, topic: str) -> TopicIncarnation | None:
    """The topic of that name that the rows belong to, if it is recorded."""
    row = session.execute("incarnation", topic, serial=True).one()
    return TopicIncarnation(*row) if row else None


class CassandraJournal:
    """An `EventualJournal` on a keyspace."""

    def __init__(self, url: str) -> None:
        self._session = CassandraSession(url)

    def install(self) -> list[str]:
        """Creates keyspace and tables, or migrates them; returns the statements that were run."""
        run = install(self._session)
        identify(self._session)
        return run

    def identity(self) -> str | None:
        return identity(self._session)

    def pointer(self, key: Key) -> JournalHead | None:
        """The journal's head, in its segment of this version or of old ones."""
        parked_from = self._session.execute("quarantine_begins", key.topic, key.id).one()
        if parked_from is not None:
            raise parked_error(key, parked_from.partition, parked_from.offset)
        for segment in metajournal_segments(key.id):
            row = self._session.execute("head", key.topic, segment, key.id).one()
            if row is not None:
                return head_of(row)
        return None

    def offset(self, topic: str, partition: int) -> int | None:
        # Where it moves by compare-and-set, a serial read completes one that is unfinished.
        row = self._session.execute("offset", topic, partition, serial=not self._session.has_clock).one()
        return None if row is None or row[0] is None or row[0] < 0 else int(row[0])

    def incarnation(self, topic: str) -> TopicIncarnation | None:
        try:
            return incarnation(self._session, topic)
        except RejectedError:
            return None  # no such table: of Kafka Journal, or of an earlier version

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        """The visible events from a number on, segment after segment up to the head's last."""
        first = max(from_seq_nr, (head.delete_to or 0) + 1)
        if first > head.seq_nr:
            return
        before = empty = 0
        span = SegmentSpan(journal_segment(first, head.segment_size), _last_segment(head))
        for segment in chain.from_iterable(present_segments(span, head.gaps)):
            if empty > MAX_EMPTY:
                raise _unrecorded_gap(key, before, head.seq_nr)
            empty += 1
            for row in self._rows("events", key.id, key.topic, segment, first, head.seq_nr):
                empty = 0
                if head.record_id is not None and row.meta_record_id != head.record_id:
                    continue
                require_unique(key, before, row.seq_nr)
                before = row.seq_nr
                yield _event(row)

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all journals of a topic: parked ones first."""
        parked = {id for (id,) in self._rows("parked", topic)}
        yield from parked
        yield from (id for (id,) in self._of_all_heads("ids", topic) if id not in parked)

    def journals(self, topic: str, where: JournalFilter) -> Iterator[ListedJournal]:
        """By an index where a day is given; else the ring is scanned."""
        if where.created is not None:
            rows = self._rows("listed_created", topic, where.created)
        elif where.expires is not None:
            rows = self._rows("listed_expires", topic, where.expires)
        else:
            rows = self._of_all_heads("listed", topic)
        return filter(where.fits, map(_listed, rows))

    def expired(self, topic: str, before: date) -> Iterator[str]:
        """The ids of the journals that expired before a day.

        The table's index on `expire_on` answers for one day, not for all before one. So the last days are asked for one
        by one, and the ring is scanned now and then for older ones: journals of days on which the job did not run, or
        whose heads were replicated after their day. When it was last scanned is in the table `setting`; only a scan
        that found none that is older than the index is asked for counts, so that those are looked for again.
        """
        days = expiry_days(before, self._scanned(topic))
        if days:
            for rows in self._at_once("expired_on", [(topic, day) for day in days]):
                yield from (id for (id,) in rows)
            return
        oldest = before
        for id, on in self._of_all_heads("expired", topic, before):
            oldest = min(oldest, _date(on))
            yield id
        if (before - oldest).days <= EXPIRY_DAYS:
            self._set_scanned(topic, before)

    def _scanned(self, topic: str) -> date | None:
        row = self._session.execute("setting", f"{SCANNED_KEY}{topic}").one()
        return date.fromisoformat(row[0]) if row else None

    def _set_scanned(self, topic: str, day: date) -> None:
        # A role that may only read is refused here; it scans each time.
        with suppress(ConfigurationError):
            key, origin = f"{SCANNED_KEY}{topic}", socket.gethostname()
            self._session.execute("set_setting", key, day.isoformat(), datetime.now(UTC), origin)

    def _of_all_heads(self, name: str, topic: str, *bound: Any) -> Iterator[Any]:
        """Scans the ring, some ranges at a time: a topic's 10,000 segments one by one take a hundred times as long."""
        for rows in self._at_once(name, [(topic, *bound, *between) for between in RANGES]):
            yield from rows

    def _at_once(self, name: str, queries: Sequence[tuple[Any, ...]]) -> Iterator[Iterator[Any]]:
        """The rows of each query, some queries at a time."""
        for start in range(0, len(queries), AT_ONCE):
            with cassandra_errors():
                statement, session = self._session.prepared(name), self._session.session
                answers = [session.execute_async(statement, each) for each in queries[start : start + AT_ONCE]]
            yield from (_rows(answer.result) for answer in answers)

    def close(self) -> None:
        self._session.close()

    def _rows(self, name: str, *bound: Any) -> Iterator[Any]:
        return _rows(lambda: self._session.execute(name, *bound))


def _rows(query: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    with cassandra_errors():
        rows = iter(query())
    while True:
        with cassandra_errors():  # the next page may fail where the first did not
            row = next(rows, None)
        if row is None:
            return
        yield row


def _unrecorded_gap(key: Key, before: SeqNr, last: SeqNr) -> PermanentError:
    return PermanentError(
        f"The journal {key} has more than {MAX_EMPTY:,} segments in a row without an event after {before}, on its way"
        f" to {last}; its head in `metajournal` does not list them.",
        hint="Another replicator wrote that head. Delete the events before the gap, or purge the journal.",
    )


GAPS: Final = "inorder.gaps"
"""The name of a journal's gaps in the column `properties`."""


def encode_gaps(gaps: Sequence[SegmentSpan]) -> str:
    """The text of a journal's gaps.

    >>> encode_gaps([SegmentSpan(1, 9), SegmentSpan(11, 11)])
    '1-9,11-11'
    """
    return ",".join(f"{first}-{last}" for first, last in gaps)


def decode_gaps(text: str | None) -> tuple[SegmentSpan, ...]:
    """The inverse; a text that is not ours lists no gaps, as if there were none.

    >>> decode_gaps("1-9,11-11"), decode_gaps("?"), decode_gaps(None)
    ((SegmentSpan(first=1, last=9), SegmentSpan(first=11, last=11)), (), ())
    """
    try:
        pairs = [each.split("-") for each in text.split(",")] if text else []
        return tuple(SegmentSpan(int(first), int(last)) for first, last in pairs)
    except ValueError:
        return ()


def head_of(row: Sequence[Any]) -> JournalHead:
    """The head of a row, in the order of the statement `head`."""
    partition, offset, size, seq_nr, delete_to, expire_after, expire_on, record_id, properties = row
    expiry = None
    if expire_after is not None and expire_on is not None:
        expiry = Expiry(_duration(expire_after), _date(expire_on))
    gaps = decode_gaps((properties or {}).get(GAPS))
    place = PartitionOffset(partition, offset)
    return JournalHead(place, segment_size(size), seq_nr, delete_to, expiry, record_id, gaps)


def _event(row: Any) -> EventRecord:
    return stored_event(
        row.seq_nr,
        row.timestamp.replace(tzinfo=UTC),
        row.partition,
        row.offset,
        row.origin,
        row.version,
        row.tags,
        row.metadata,
        row.payload_type,
        row.payload_txt,
        row.payload_bin,
        dict(row.headers or {}),
    )


def _listed(row: Any) -> ListedJournal:
    id, seq_nr, delete_to, created, updated, origin, expires = row
    times = created.replace(tzinfo=UTC), updated.replace(tzinfo=UTC)
    return ListedJournal(id, seq_nr, delete_to, *times, origin, None if expires is None else _date(expires))


def _last_segment(head: JournalHead) -> int:
    return journal_segment(head.seq_nr, head.segment_size)


def _duration(value: Any) -> timedelta:
    return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)


def _date(value: Any) -> date:
    """The day of the driver's own type."""
    return datetime.fromtimestamp(value.seconds, UTC).date()


ROWS_AT_ONCE: Final = 64
"""Queries in flight at a time."""


class CassandraJournalRows:
    """A `JournalRows` on a keyspace: every row of the segments that a journal may have rows in."""

    def __init__(self, url: str) -> None:
        self._session = CassandraSession(url)
        self._journal = CassandraJournal(url)

    def states(self, keys: Sequence[Key]) -> Mapping[Key, StoredState]:
        if not keys:
            return {}
        parked = {id for (id,) in self._session.execute("parked", keys[0].topic)}
        found: dict[Key, StoredState] = {}
        for key, head in zip(keys, self._heads(keys), strict=True):
            state = StoredState(head, self._waiting(key) if key.id in parked else frozenset())
            if state != StoredState():
                found[key] = state
        return found

    def rows(self, key: Key, head: JournalHead | None) -> Iterator[StoredRow]:
        for segment in chain.from_iterable(present_segments(_segments(head), head.gaps if head else ())):
            rows = iter(self._session.execute("rows", key.id, key.topic, segment))
            while True:
                with cassandra_errors():  # the next page may fail where the first did not
                    row = next(rows, None)
                if row is None:
                    break
                yield _row(row)

    def offset(self, topic: str, partition: int) -> int | None:
        return self._journal.offset(topic, partition)

    def ids(self, topic: str) -> Iterator[str]:
        return self._journal.ids(topic)

    def close(self) -> None:
        self._session.close()
        self._journal.close()

    def _heads(self, keys: Sequence[Key]) -> Iterator[JournalHead | None]:
        statement = self._session.prepared("head")
        for start in range(0, len(keys), ROWS_AT_ONCE):
            with cassandra_errors():
                queries = [
                    [
                        self._session.session.execute_async(statement, (key.topic, segment, key.id))
                        for segment in metajournal_segments(key.id)
                    ]
                    for key in keys[start : start + ROWS_AT_ONCE]
                ]
                answers = [[row for each in futures if (row := each.result().one()) is not None] for futures in queries]
            # The segment of this version comes before the old one.
            yield from (head_of(rows[0]) if rows else None for rows in answers)

    def _waiting(self, key: Key) -> frozenset[PartitionOffset]:
        rows = self._session.execute("waiting", key.topic, key.id)
        return frozenset(PartitionOffset(partition, offset) for partition, offset in rows)


def _segments(head: JournalHead | None) -> SegmentSpan:
    if head is None:
        return SegmentSpan(0, 1)
    first = journal_segment(max(1, head.delete_to or 0), head.segment_size)
    return SegmentSpan(max(0, first - 1), journal_segment(max(1, head.seq_nr), head.segment_size) + 1)


def _row(row: Any) -> StoredRow:
    segment, seq_nr, timestamp, record_id, *rest = row
    found = EventColumns(*rest)
    columns = found._replace(tags=frozenset(found.tags or ()), headers=dict(found.headers or {}))
    return StoredRow(segment, seq_nr, timestamp.replace(tzinfo=UTC), record_id, columns)


T = TypeVar("T")

TURN_SECONDS: Final = 30
PATIENCE_SECONDS: Final = 60.0
"""Longer than a turn, so that the turn of a saver that died expires meanwhile."""
_PAUSE_SECONDS: Final = 0.02


class CassandraSnapshots:
    """A `SnapshotStore` on a keyspace."""

    def __init__(self, url: str, *, turn_seconds: int = TURN_SECONDS) -> None:
        self._session = CassandraSession(url)
        self._turn_seconds = turn_seconds
        self._clocks = PartitionClocks(self._session)

    def rows(self, key: Key) -> list[SnapshotRow]:
        found = self._session.execute("snapshots", key.id, key.topic)
        return [
            SnapshotRow(slot, seq_nr, timestamp.replace(tzinfo=UTC), PartitionOffset(partition, offset), life)
            for slot, seq_nr, timestamp, partition, offset, life in found
        ]

    def load(self, key: Key, row: SnapshotRow) -> Snapshot | None:
        found = self._session.execute("snapshot", key.id, key.topic, row.slot).one()
        if found is None or (found.partition, found.offset) != (row.place.partition, row.place.offset):
            return None
        columns = SnapshotColumns(*found[2:])
        return stored_snapshot(columns._replace(timestamp=columns.timestamp.replace(tzinfo=UTC)))

    def save(self, key: Key, snapshot: Snapshot, size: int, send_mark: Callable[[], LifeAtMark]) -> bool:
        columns = snapshot_columns(snapshot)

        def write() -> bool:
            at_mark = send_mark()
            placed = place_snapshot(self.rows(key), at_mark, snapshot.seq_nr, snapshot.timestamp, size)
            if placed is None:
                return False
            place, life = at_mark.place, at_mark.stored_life
            row = key.id, key.topic, placed.slot, place.partition, place.offset, life, *columns
            micros = self._micros(key, at_mark)
            self._session.execute("save_snapshot", *row, micros)
            for slot in placed.emptied:
                self._session.execute("delete_snapshot", micros, key.id, key.topic, slot)
            return True

        return self._in_turn(key, write)

    def delete(self, key: Key, criteria: SnapshotCriteria, send_mark: Callable[[], LifeAtMark]) -> int:
        def write() -> int:
            at_mark = send_mark()
            going = select_snapshots(self.rows(key), at_mark, criteria)
            micros = self._micros(key, at_mark) if going else 0
            for row in going:
                self._session.execute("delete_snapshot", micros, key.id, key.topic, row.slot)
            return len(going)

        return self._in_turn(key, write)

    def close(self) -> None:
        self._session.close()

    def _in_turn(self, key: Key, write: Callable[[], T]) -> T:
        name, token = f"snapshot {key}", str(uuid4())
        while True:
            self._take_turn(name, token)
            try:
                done = write()
            finally:
                is_ours = bool(self._session.execute("unlock_snapshots", name, token).one()[0])
            if is_ours:
                return done

    def _take_turn(self, name: str, token: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = threading.Event()
        while not self._has_turn(name, token):
            if time.monotonic() > deadline:
                raise TransientError(
                    f"Timed out after {PATIENCE_SECONDS:g} s: other processes hold the lock {name!r}.",
                    hint=f"A lock expires within {self._turn_seconds} s; try again.",
                )
            pause.wait(_PAUSE_SECONDS)

    def _has_turn(self, name: str, token: str) -> bool:
        seconds = self._turn_seconds
        row = name, seconds * 1000, datetime.now(UTC), token, seconds
        answer = self._session.execute("lock_snapshots", *row).one()
        # Ours too if the answer to the first request was lost.
        return bool(answer[0]) or getattr(answer, "metadata", None) == token

    def _micros(self, key: Key, at_mark: LifeAtMark) -> int:
        # Read each time: a replicator may have made a new clock since.
        return self._clocks.settle(key.topic, at_mark.place.partition).micros(at_mark.place.offset)
