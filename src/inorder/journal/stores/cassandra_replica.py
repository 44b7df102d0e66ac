"""Journals in Cassandra, as the replicator writes them.

Cassandra has no transaction over several rows. The order of writes and the time of each cell take its place:

- **Order**: the events of a journal before its head when they are added, its head first when they are deleted; one
  head per slice, its last (`write_head_once`); the partition's offset last. A reader that sees the offset moved sees
  everything else.
- **Time**: every cell is written at a time made from the action's offset, never from a clock (`cassandra_clock.py`).
  The last write wins in Cassandra, so the newest action does, whichever replicator writes it and when. A replicator
  that was paused in the middle of an append cannot bring back a journal that was purged meanwhile: its rows are older
  than the purge's tombstones. (They are kept for `gc_grace_seconds`, ten days by default.)
- **The offset** has such a time, too: the largest wins, so it never moves back, and no condition is needed. Of two
  replicators each may move it, since each has written all that it covers, and both have written the same.
- **Repeating** a slice after a crash writes the same cells at the same times.
- **Memory**: heads need not be read while the offset is where this replicator has moved it (`HeadMemory`).

**Gaps.** A delete names every segment, since a segment is a partition of the table. Those that a head lists as gaps
(`segments.py`) are left out, so a purge costs what is there. Two bounds remain, beyond which the record is refused and
its journal parked: `MAX_GAPS` in a head, and `MAX_DELETES` segments in one delete, which a journal has only if another
replicator wrote its head, or with a billion events.

**What a slice waits for**: a round of events, one of heads, and one for the offset. The offset and the parked journals
are read together with the first. Until the answer arrives, a replicator acts on where it has left the offset itself,
as if it had been paused since: it writes events, which no one sees before their head, and nothing else (`confirm`).
If the answer differs the slice is repeated. The first slice of a partition, and one that finds heads that are not in
memory, waits for more.

**Rows** of the table `journal` are encoded by hand, since the driver would encode every value for each row again. What
the events of one append share is encoded once, in the order of the statement `insert_event`. Columns without a value
are left unset, because a null is written as a tombstone that readers pay for. A row is then not overwritten as a whole,
and need not be: writing it again writes the same. Only a row of a former life could have more columns, if it had the
same number and the same millisecond and a paused replicator wrote it after the purge. So the first append of a life,
the one that a purge may be so close to, writes its nulls.

**Requests.** All rows of a batch are of one partition of the store, so it is one mutation there, and no limit on
batches applies. A request costs node and driver more than a small row in it, and at some hundred appends a second
nearly all writes are small. So small writes of several journals share a request: an unlogged batch, within the limits
above which a node warns of batches that span partitions (10 partitions, 5 KiB). A larger write goes alone. Such a batch
promises nothing but to answer when all of it is written. Nothing more is needed: its writes are of different journals,
and each may be repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from cassandra.cluster import ResponseFuture, ResultSet
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement, PreparedStatement
from cassandra.util import Duration

from inorder.journal.action import RemoveExpiry, SetExpiry
from inorder.journal.codec import describe_fault, is_of_record
from inorder.journal.replication.store_port import (
    HeadMemory,
    JournalChange,
    OffsetStatement,
    Quarantined,
    ReplicaSlice,
    write_head_once,
)
from inorder.journal.replication.transition import (
    DeleteEvents,
    DeleteHead,
    InsertEvents,
    InsertHead,
    Statement,
    UpdateHead,
)
from inorder.journal.segments import SegmentSpan, metajournal_segment, metajournal_segments, present_segments
from inorder.journal.stores.cassandra import GAPS, encode_gaps, head_of, incarnation
from inorder.journal.stores.cassandra_clock import Clock, PartitionClocks, written_offset
from inorder.journal.stores.cassandra_session import CassandraSession, cassandra_errors
from inorder.journal.stores.ports import Expiry, JournalHead, TopicIncarnation
from inorder.journal.stores.rows import (
    encode_metadata,
    encode_payload,
    header_column,
    quarantined_of,
    reason_column,
    time_column,
)
from inorder.journal.topic_identity import JournalReset, moved_error, quarantine_error
from inorder.model.errors import ConfigurationError, FencedError, RejectedError
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset

AT_ONCE: Final = 32
"""Statements in flight: enough to keep a node busy, and not more than it accepts."""
MAX_GAPS: Final = 1_000
"""In a head: some twenty kilobytes."""
MAX_DELETES: Final = 100_000
"""Segments in one delete: some minutes' work at most."""


class CassandraReplica:
    """A `JournalReplica` on a keyspace, and its `Quarantine`."""

    def __init__(self, url: str) -> None:
        self._session = CassandraSession(url)
        self._memory = HeadMemory()
        self._parked: dict[str, frozenset[str]] = {}
        self._clocks = PartitionClocks(self._session)

    def offsets(self, topic: str) -> Mapping[int, int]:
        rows = self._session.execute("offsets")
        return {partition: offset for name, partition, offset in rows if name == topic and offset >= 0}

    def incarnation(self, topic: str) -> TopicIncarnation | None:
        return incarnation(self._session, topic)

    def adopt(self, topic: str, held: TopicIncarnation) -> TopicIncarnation:
        now = datetime.now(UTC)
        self._session.execute("adopt", topic, held.id, held.partitions, now, now)
        found = self.incarnation(topic) or held
        if found.id is None and held.id is not None:
            self._set_incarnation(topic, found, replace(found, id=held.id))
            return self.incarnation(topic) or held
        return found

    def reset(self, plan: JournalReset) -> None:
        """Moves offsets forward; what would need older cells to lose is refused."""
        if plan.gives_offsets_again:
            raise ConfigurationError(
                f"Journals of topic {plan.topic!r} cannot continue in another topic of that name on Cassandra: it keeps"
                " the cells with the highest offsets, so records with lower ones would be lost.",
                hint="Write to a topic with a new name, or replicate into an empty keyspace.",
            )
        if self.quarantined(plan.topic):
            raise quarantine_error(plan.topic)
        for partition, offset in plan.offsets.items():
            if offset < 0:
                continue
            with self.slice(plan.topic, partition) as writing:
                if writing.lock_offset() != plan.seen.get(partition):
                    raise moved_error(plan.topic)
                writing.move_offset(offset)
        self._set_incarnation(plan.topic, plan.before, plan.after)

    def _set_incarnation(self, topic: str, before: TopicIncarnation, after: TopicIncarnation) -> None:
        values = after.id, after.partitions, after.number, datetime.now(UTC)
        self._session.execute("set_incarnation", *values, topic, before.id, before.partitions)

    @contextmanager
    def slice(self, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        """Writes at once; an interrupted slice is repeated."""
        moved = self._memory.moved_to(topic, partition)
        writing = _Slice(self._session, self._clocks, topic, partition, moved, self._parked)
        with self._memory.over(writing, topic, partition) as remembering:
            yield remembering
            writing.confirm()
        self._memory.forget(writing.old_segments)  # their segment is read with the head

    def quarantined(self, topic: str | None = None, id: str | None = None) -> list[Quarantined]:
        name, bound = ("quarantined", ()) if topic is None else ("quarantined_of_topic", (topic,))
        rows = self._session.execute(name, *bound)
        aware = [row._replace(timestamp=_aware(row.timestamp)) for row in rows if id in (None, row.id)]
        found = [quarantined_of(*row) for row in aware]
        return sorted(found, key=lambda each: (each.key, each.partition, each.offset))

    def discard(self, key: Key, offset: int | None = None) -> int:
        going = [each for each in self.quarantined(key.topic, key.id) if offset in (None, each.offset)]
        for each in going:
            micros = self._clocks.settle(key.topic, each.partition).micros(each.offset)
            _delete_quarantined(self._session, key, each.partition, each.offset, micros)
        return len(going)

    def close(self) -> None:
        self._session.close()


class _Slice:
    def __init__(
        self,
        session: CassandraSession,
        clocks: PartitionClocks,
        topic: str,
        partition: int,
        moved: int | None,
        parked: dict[str, frozenset[str]],
    ) -> None:
        self.old_segments: dict[Key, int] = {}
        """Of heads in the segments of old versions."""
        self._session = session
        self._clocks = clocks
        self._known_clock: Clock | None = None
        self._moved = moved
        self._topic = topic
        self._partition = partition
        self._offset: int | None = None
        self._parked = parked
        """The parked journals of each topic, as they were read last."""
        self._keys: Sequence[Key] = ()
        self._reads: list[ResponseFuture] = []
        """Sent, and not waited for yet."""

    def lock_offset(self) -> int | None:
        """Remembers the offset; that another replicator has moved it meanwhile does no harm.

        Where this replicator has moved the offset before, it is expected where it was left, and the journals parked
        that were parked then; `confirm` waits for the answers before anything that readers see is written.
        """
        place = self._topic, self._partition
        clock = self._clocks.known(*place)
        if self._moved is not None and clock is not None and self._session.has_clock:
            with cassandra_errors():
                self._reads = [self._later("written_offset", *place)(), self._later("parked", self._topic)()]
            self._offset, self._known_clock = self._moved, clock
            return self._offset
        # Where it moves by compare-and-set, a serial read completes one that is unfinished. It is not needed after one
        # of our own that is complete: every plain read finds that, or that the store went back.
        for serial in (False, True) if self._moved is not None else (True,):
            found = self._session.execute("offset", *place, serial=serial and not self._session.has_clock)
            self._offset = _offset_of(found)
            if self._offset == self._moved:
                break
        self._parked[self._topic] = _ids(self._session.execute("parked", self._topic))
        return self._offset

    def confirm(self) -> None:
        """Raises `FencedError` unless offset and parked journals are what this slice expects them to be."""
        reads, self._reads = self._reads, []
        if not reads or self._known_clock is None:
            return
        with cassandra_errors():
            found, parked = written_offset(reads[0].result()), _ids(reads[1].result())
        before, self._parked[self._topic] = self._parked.get(self._topic, frozenset()), parked
        is_ours = found is not None and found.offset == self._offset and self._known_clock.wrote(found)
        if not is_ours or any((key.id in before) != (key.id in parked) for key in self._keys):
            raise FencedError(
                f"{self._topic}[{self._partition}] is at {found and found.offset}, not at {self._offset}, or the parked"
                " journals have changed.",
                hint="The slice is repeated from there; nothing that readers see was written.",
            )

    def parked(self, keys: Sequence[Key]) -> set[Key]:
        # One read a slice, nearly always of an empty partition.
        self._keys = keys
        found = self._parked.get(self._topic, frozenset())
        return {key for key in keys if key.id in found}

    def heads(self, keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
        """Reads the segment of this version, then that of old ones."""
        found: dict[Key, JournalHead] = {}
        for age in range(2):
            places = [(key, metajournal_segments(key.id)) for key in keys if key not in found]
            asked = [(key, segments[age]) for key, segments in places if age < len(segments)]
            answers = self._all("head", [(key.topic, segment, key.id) for key, segment in asked])
            for (key, segment), rows in zip(asked, answers, strict=True):
                if rows:
                    found[key] = head_of(rows[0])
                if rows and age:
                    self.old_segments[key] = segment
        return found

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        # Journals are independent, so their first writes go together, then their second ones, and so on.
        if changes:
            self._settle_clock(min(dated.offset for change in changes for dated in change.statements))
        try:
            steps = [list(self._steps(change)) for change in changes]
        except Exception as error:
            if isinstance(error, RejectedError) or not is_of_record(error):
                raise
            raise RejectedError(f"It cannot be encoded for Cassandra: {describe_fault(error)}.") from error
        for number in range(max(map(len, steps), default=0)):
            writes = [write for step in steps if number < len(step) for write in step[number]]
            if any(write.is_visible for write in writes):
                self.confirm()
            sends = [partial(self._session.session.execute_async, each) for each in group_requests(writes)]
            self._send(sends)

    def attempt(self) -> AbstractContextManager[None]:
        """Nothing to undo: rows that no head shows are invisible."""
        return nullcontext()

    def free(self, purged: Mapping[Key, int]) -> None:
        if purged:
            self.confirm()
        for key, offset in purged.items():
            micros = self._settle_clock(offset).micros(offset)
            # Just below the purge: all that it makes void is older, and the purge itself may be refused and kept here.
            self._session.execute("free", micros - 1, key.topic, key.id)

    def lift(self, key: Key, partition: int, offset: int) -> None:
        self.confirm()
        _delete_quarantined(self._session, key, partition, offset, self._settle_clock(offset).micros(offset))

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        now = datetime.now(UTC)
        if records:
            self.confirm()
            clock = self._settle_clock(min(each.offset for each in records))
            bound = [(*_quarantined(each), now, clock.micros(each.offset)) for each in records]
            self._all("insert_quarantined", bound)

    def move_offset(self, offset: int, topic_id: str | None = None) -> None:  # noqa: ARG002 - no reset gives one again
        self.confirm()
        if self._offset is not None and offset <= self._offset:
            return
        now, place = datetime.now(UTC), (self._topic, self._partition)
        micros = self._settle_clock(offset).micros(offset)
        if not self._session.has_clock:
            self._compare_and_set(offset, now)
        elif self._offset is None:
            self._session.execute("begin_offset", *place, offset, now, now, micros)
        else:
            self._session.execute("raise_offset", micros, offset, now, *place)

    def _compare_and_set(self, offset: int, now: datetime) -> None:
        if self._offset is None:
            answer = self._session.execute("insert_offset", self._topic, self._partition, offset, now, now)
        else:
            answer = self._session.execute("move_offset", offset, now, self._topic, self._partition, self._offset)
        if not answer.one()[0]:
            raise FencedError(
                f"Another replicator has moved {self._topic}[{self._partition}] on from {self._offset}.",
                hint="What this one wrote is the same; it continues from the new offset.",
            )

    def _settle_clock(self, first: int) -> Clock:
        """The clock of this slice; `first` is the first offset that is written with it."""
        if self._known_clock is None:
            self._known_clock = self._clocks.settle(self._topic, self._partition, first=first)
        return self._known_clock

    def _steps(self, change: JournalChange) -> Iterator[list[Write]]:
        """The writes for a journal, step by step; new events go together, as they are invisible until their head."""
        begins = any(_begins(dated.statement) for dated in change.statements)
        inserts: list[Write] = []
        for dated in write_head_once(change):
            if isinstance(dated.statement, InsertEvents):
                insert, clock = self._session.prepared("insert_event"), self._settle_clock(dated.offset)
                inserts += build_writes(insert, change.key, dated.statement, clock, begins=begins)
                continue
            if inserts:
                yield inserts
                inserts = []
            yield from self._writes(change.key, dated)
        if inserts:
            yield inserts

    def _writes(self, key: Key, dated: OffsetStatement) -> Iterator[list[Write]]:
        """The writes for one statement, step by step; each step is sent after the last is answered."""
        statement, micros = dated.statement, self._settle_clock(dated.offset).micros(dated.offset)
        match statement:
            case InsertEvents():
                raise TypeError("Events are collected first.")
            case DeleteEvents():
                yield [self._write(*each) for each in _deletes(key, statement, micros)]
            case InsertHead():
                self.old_segments.pop(key, None)
                yield [self._write("insert_head", *_new_head(key, statement), micros)]
            case UpdateHead():
                yield [self._write("update_head", micros, *_changed_head(statement), *self._place(key))]
            case DeleteHead():
                yield [self._write("void_snapshots", micros, key.id, key.topic)]
                yield [self._write("delete_head", micros, *self._place(key))]
            case _:
                assert_never(statement)

    def _write(self, name: str, *bound: Any) -> Write:
        return write(self._session.prepared(name), *bound)

    def _later(self, name: str, *bound: Any) -> Callable[[], ResponseFuture]:
        return partial(self._session.session.execute_async, self._session.prepared(name), bound)

    def _place(self, key: Key) -> tuple[str, int, str]:
        return key.topic, self.old_segments.get(key, metajournal_segment(key.id)), key.id

    def _all(self, name: str, bound: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
        return [list(rows) for rows in self._send([self._later(name, *each) for each in bound])]

    def _send(self, sends: Sequence[Callable[[], ResponseFuture]]) -> list[Any]:
        """Sends all, `AT_ONCE` at a time, and waits for every answer; in the same order."""
        answers: list[Any] = []
        waiting: deque[ResponseFuture] = deque()
        with cassandra_errors():
            for send in sends:
                if len(waiting) == AT_ONCE:
                    answers.append(waiting.popleft().result())
                waiting.append(send())
            answers += [each.result() for each in waiting]
        return answers


def _ids(rows: Iterable[Any]) -> frozenset[str]:
    return frozenset(id for (id,) in rows)


def _offset_of(answer: ResultSet) -> int | None:
    row = answer.one()
    return None if row is None else int(row[0])


def _begins(statement: Statement) -> bool:
    """Whether a journal's life begins with it."""
    return isinstance(statement, InsertHead) or (isinstance(statement, UpdateHead) and statement.record_id is not None)


def _delete_quarantined(session: CassandraSession, key: Key, partition: int, offset: int, micros: int) -> None:
    # At the time of the record itself: of two writes at one time the delete wins, so a replay does not restore it.
    session.execute("lift", micros, key.topic, key.id, partition, offset)


def _quarantined(each: Quarantined) -> tuple[Any, ...]:
    record = each.record
    place = each.key.topic, each.key.id, each.partition, each.offset
    return (*place, reason_column(each), record.key, record.value, header_column(record), time_column(record))


def _aware(time: datetime | None) -> datetime | None:
    return None if time is None else time.replace(tzinfo=UTC)


def _deletes(key: Key, statement: DeleteEvents, micros: int) -> Iterator[tuple[Any, ...]]:
    span = statement.segments
    whole = SegmentSpan(span.first, span.last if statement.to is None else span.last - 1)
    runs = list(present_segments(whole, statement.gaps))
    if (count := sum(map(len, runs))) > MAX_DELETES:
        raise RejectedError(
            f"{count:,} segments, {whole.first} to {whole.last}, are more than {MAX_DELETES:,} to delete at once; the"
            " head of the journal does not list the empty ones.",
            hint="Delete its events in several steps, by their numbers.",
        )
    for segment in chain.from_iterable(runs):
        yield ("delete_segment", micros, key.id, key.topic, segment)
    if statement.to is not None:
        yield ("delete_to", micros, key.id, key.topic, span.last, statement.to)


def _new_head(key: Key, statement: InsertHead) -> tuple[Any, ...]:
    head, created = statement.head, statement.created
    after, on = _expiry(head.expiry)
    return (
        key.topic, metajournal_segment(key.id), key.id, head.partition_offset.partition, head.partition_offset.offset,
        head.segment_size, head.seq_nr, head.delete_to, created, created.astimezone(UTC).date(), created, after, on,
        head.record_id, statement.origin, _properties(head.gaps or None),
    )  # fmt: skip


def _properties(gaps: Sequence[SegmentSpan] | None) -> Any:
    if gaps is None:
        return UNSET_VALUE
    if len(gaps) > MAX_GAPS:
        raise RejectedError(
            f"The numbers of the journal have more than {MAX_GAPS:,} gaps of whole segments.",
            hint="Give a journal contiguous numbers.",
        )
    return {GAPS: encode_gaps(gaps)}


def _changed_head(statement: UpdateHead) -> tuple[Any, ...]:
    delete_to = None if statement.clears_delete_to else _or_unset(statement.delete_to)
    after, on = UNSET_VALUE, UNSET_VALUE
    if isinstance(statement.expiry, SetExpiry):
        after, on = _expiry(statement.expiry.expiry)
    elif isinstance(statement.expiry, RemoveExpiry):
        after = on = None
    place = statement.partition_offset
    seq_nr, record_id = _or_unset(statement.seq_nr), _or_unset(statement.record_id)
    properties = _properties(statement.gaps)
    return place.partition, place.offset, statement.updated, seq_nr, delete_to, record_id, after, on, properties


def _or_unset(value: Any) -> Any:
    return UNSET_VALUE if value is None else value


def _expiry(expiry: Expiry | None) -> tuple[Any, Any]:
    if expiry is None:
        return None, None
    rest = expiry.after - timedelta(days=expiry.after.days)
    return Duration(0, expiry.after.days, int(rest.total_seconds() * 1_000_000) * 1000), expiry.on


BATCH_ROWS: Final = 200
BATCH_BYTES: Final = 64 * 1024
"""Of payloads; a larger one goes alone."""

_INT: Final = Struct(">i").pack
_BIGINT: Final = Struct(">q").pack
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_BINARY: Final = b"binary"


def build_writes(
    insert: PreparedStatement, key: Key, statement: InsertEvents, clock: Clock, *, begins: bool = False
) -> Iterator[Write]:
    """The rows of one segment; raises `UnicodeEncodeError` for a lone surrogate, which Cassandra cannot store.

    `begins`: the first append of them is the first of a journal's life.
    """
    batch, size = list[Values](), 0
    first = statement.events[0].partition_offset if begins else None
    for values, length, place in _rows(key, statement, clock):
        if batch and (size + length > BATCH_BYTES or len(batch) == BATCH_ROWS):
            yield Write(insert, batch)
            batch, size = [], 0
        batch.append(_with_nulls(values) if place is first else values)
        size += length
    yield Write(insert, batch)


def _with_nulls(values: list[Any]) -> list[Any]:
    return [None if value is UNSET_VALUE else value for value in values]


def _rows(key: Key, statement: InsertEvents, clock: Clock) -> Iterator[tuple[list[Any], int, PartitionOffset]]:
    """The values of each row, how long its payload is, and the place of its append."""
    place, shared = None, _NOTHING
    for record in statement.events:
        if place is None or record.partition_offset is not place:  # the first of an append
            place, shared = record.partition_offset, _shared(key, statement, record, clock)
        before, sender, metadata, after = shared
        event = record.event
        payload, number = event.payload, _BIGINT(event.seq_nr)
        if type(payload) is bytes and not event.tags:
            row = [*before, number, *sender, UNSET_VALUE, metadata, _BINARY, UNSET_VALUE, payload, *after]
            yield row, len(payload), place
        else:
            own = _own(event)
            tags, *columns = own
            row = [*before, number, *sender, tags, metadata, *columns, *after]
            yield row, sum(map(_length, own)), place


class _Shared(NamedTuple):
    """What the rows of an append have in common, in the order of the statement."""

    before: Sequence[bytes] = ()
    sender: Sequence[Any] = ()
    metadata: bytes = b""
    after: Sequence[Any] = ()


_NOTHING: Final = _Shared()


def _shared(key: Key, statement: InsertEvents, record: EventRecord, clock: Clock) -> _Shared:
    sender = (
        _BIGINT((record.timestamp - _EPOCH) // _MILLISECOND),
        UNSET_VALUE if statement.record_id is None else statement.record_id.bytes,
        _INT(record.partition_offset.partition),
        _BIGINT(record.offset),
        _text(record.origin),
        _text(record.version),
    )
    return _Shared(
        (key.id.encode(), key.topic.encode(), _BIGINT(statement.segment)),
        sender,
        encode_metadata(record.metadata).encode(),
        (_map(record.headers), _BIGINT(clock.micros(record.offset))),
    )


def _own(event: Event) -> list[Any]:
    payload = encode_payload(event.payload)
    binary = UNSET_VALUE if payload.binary is None else payload.binary
    return [_set(event.tags), _text(payload.type), _text(payload.text), binary]


def _length(value: Any) -> int:
    return 0 if value is UNSET_VALUE else len(value)


def _text(text: str | None) -> Any:
    return UNSET_VALUE if text is None else text.encode()


def _set(tags: frozenset[str]) -> Any:
    return _INT(len(tags)) + _sized(sorted(tags)) if tags else UNSET_VALUE


def _map(headers: Mapping[str, str]) -> Any:
    texts = [text for pair in headers.items() for text in pair]
    return _INT(len(headers)) + _sized(texts) if headers else UNSET_VALUE


def _sized(texts: Iterable[str]) -> bytes:
    return b"".join(_INT(len(data)) + data for data in (text.encode() for text in texts))


REQUEST_PARTITIONS: Final = 10
"""Partitions in a batch; a node warns of more (`unlogged_batch_across_partitions_warn_threshold`)."""
REQUEST_BYTES: Final = 5 * 1024
"""A node warns of more (`batch_size_warn_threshold`), and refuses ten times as much."""
CELL_BYTES: Final = 20
"""What a node counts for a cell besides its value."""
MANY_ROWS: Final = 20
"""Of events, each with a dozen cells: more rows need no exact size."""

Values: TypeAlias = Sequence[Any]
"""The encoded values of one row."""


class Write(NamedTuple):
    """Rows of one partition of the store, all written with one statement."""

    statement: PreparedStatement
    rows: Sequence[Values]
    is_visible: bool = False
    """Whether readers may see it; they see new events only with their head."""

    @property
    def size(self) -> int:
        """About how many bytes a node counts for it."""
        if len(self.rows) > MANY_ROWS:
            return REQUEST_BYTES
        return sum(CELL_BYTES + len(value or b"") for row in self.rows for value in row if value is not UNSET_VALUE)


def write(statement: PreparedStatement, *values: Any) -> Write:
    """One row, its values encoded by the driver."""
    return Write(statement, [statement.bind(values).values], is_visible=True)


def group_requests(writes: Iterable[Write]) -> Iterator[BoundStatement | BatchStatement]:
    """The requests for writes; small ones share a request, in the same order."""
    some: list[Write] = []
    size = 0
    for each in writes:
        if some and (len(some) == REQUEST_PARTITIONS or size + each.size > REQUEST_BYTES):
            yield _request(some)
            some, size = [], 0
        some.append(each)
        size += each.size
    if some:
        yield _request(some)


def _request(writes: Sequence[Write]) -> BoundStatement | BatchStatement:
    if len(writes) == 1 and len(writes[0].rows) == 1:
        bound = BoundStatement(writes[0].statement)
        bound.values = writes[0].rows[0]
        return bound
    batch = BatchStatement(BatchType.UNLOGGED)
    batch.is_idempotent = True
    for each in writes:
        bound = BoundStatement(each.statement)
        for values in each.rows:
            bound.values = values  # the batch takes the values, not the statement around them
            batch.add(bound)
    return batch
