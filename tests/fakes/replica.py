"""A store in memory that is written like Cassandra: no transactions, the newest time of a cell wins, kills anywhere.

It is read as an `EventualJournal`, so that a test can compare it with what the topic says at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from inorder.journal.audit.findings import StoredRow, StoredState
from inorder.journal.replication.store_port import (
    JournalChange,
    OffsetStatement,
    Quarantined,
    ReplicaSlice,
    parked_error,
    write_head_once,
)
from inorder.journal.replication.transition import DeleteEvents, DeleteHead, InsertEvents, InsertHead, UpdateHead
from inorder.journal.segments import journal_segment
from inorder.journal.stores.ports import JournalHead, TopicIncarnation
from inorder.journal.stores.rows import event_columns
from inorder.model.errors import FencedError, TransientError
from inorder.model.journal import EventRecord, Key, PartitionOffset, SeqNr
from inorder.testing.memory_journal import MemorySnapshots, update_head


class KilledError(TransientError):
    """The replicator dies here."""


@dataclass(slots=True)
class _Cell:
    """A value and its time; of two at one time the larger text wins, as in Cassandra."""

    time: int = -1
    value: Any = None

    def write(self, time: int, value: Any) -> None:
        if (time, str(value)) > (self.time, str(self.value)):
            self.time, self.value = time, value


@dataclass(slots=True)
class _Rows:
    """One journal: its rows by (segment, seq_nr), each an event and a record id, and the tombstones over them."""

    head: _Cell = field(default_factory=_Cell)
    events: dict[tuple[int, SeqNr], tuple[int, EventRecord, _Cell]] = field(default_factory=dict)
    deleted: list[tuple[int, DeleteEvents]] = field(default_factory=list)

    def is_live(self, segment: int, seq_nr: SeqNr, time: int) -> bool:
        return not any(time <= at and _covers(gone, segment, seq_nr) for at, gone in self.deleted)


class MemoryReplica:
    """A `JournalReplica`, a `Quarantine` and an `EventualJournal`; `writes` counts what was written so far."""

    def __init__(self, *, compares: bool = False) -> None:
        self.writes = 0
        self.compares = compares
        """Whether the offset moves by compare-and-set, as in stores of our first version; else the largest wins."""
        self.snapshots = MemorySnapshots()
        self.dies_at: int | None = None
        """The number of the write before which the replicator is killed."""
        self.before_writing: Callable[[], None] | None = None
        """Called once, when the next slice has read everything and written nothing."""
        self.between: Callable[[], None] | None = None
        """Called before every write, with itself removed meanwhile."""
        self._journals: dict[Key, _Rows] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._quarantine: dict[tuple[Key, int, int], Quarantined] = {}
        self._void: dict[Key, int] = {}
        self._topics: dict[str, TopicIncarnation] = {}
        self._lifted: set[tuple[Key, int, int]] = set()

    def offsets(self, topic: str) -> Mapping[int, int]:
        """What is replicated."""
        return {partition: offset for (name, partition), offset in self._offsets.items() if name == topic}

    def incarnation(self, topic: str) -> TopicIncarnation | None:
        """Which topic of that name it is."""
        return self._topics.get(topic)

    def adopt(self, topic: str, held: TopicIncarnation) -> TopicIncarnation:
        """The first one wins."""
        return self._topics.setdefault(topic, held)

    @contextmanager
    def slice(self, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        """Writes as it goes."""
        yield _Slice(self, topic, partition)

    def quarantined(self, topic: str | None = None, id: str | None = None) -> list[Quarantined]:
        """What is in quarantine."""
        found = sorted(self._quarantine.items(), key=lambda row: row[0])
        return [each for (key, _, _), each in found if topic in (None, key.topic) and id in (None, key.id)]

    def discard(self, key: Key, offset: int | None = None) -> int:
        """Gives records up."""
        going = [row for row in self._quarantine if row[0] == key and offset in (None, row[2])]
        for row in going:
            self.lift(row)
        return len(going)

    def lift(self, row: tuple[Key, int, int]) -> None:
        """Removes a record for good."""
        self._lifted.add(row)
        self._quarantine.pop(row, None)

    def pointer(self, key: Key) -> JournalHead | None:
        """The head; a parked journal is refused."""
        waiting = self.quarantined(key.topic, key.id)
        if waiting:
            raise parked_error(key, waiting[0].partition, waiting[0].offset)
        return self.head(key)

    def head(self, key: Key) -> JournalHead | None:
        """The head, parked or not."""
        found: JournalHead | None = self._rows(key).head.value
        return found

    def offset(self, topic: str, partition: int) -> int | None:
        """The replicated offset."""
        return self._offsets.get((topic, partition))

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        """The visible events."""
        rows = self._rows(key)
        start = max(from_seq_nr, (head.delete_to or 0) + 1)
        for (segment, seq_nr), (time, event, record_id) in sorted(rows.events.items()):
            is_placed = segment == journal_segment(seq_nr, head.segment_size) and start <= seq_nr <= head.seq_nr
            is_placed = is_placed and not any(gap.first <= segment <= gap.last for gap in head.gaps)
            if is_placed and record_id.value == head.record_id and rows.is_live(segment, seq_nr, time):
                yield event

    def ids(self, topic: str) -> Iterator[str]:
        """Journals with a head, and those that are parked."""
        found = {key.id for key, rows in self._journals.items() if key.topic == topic and rows.head.value}
        return iter(found | {each.key.id for each in self.quarantined(topic)})

    def close(self) -> None:
        """Nothing is held."""

    def write(self) -> None:
        """Counts a write, or dies before it."""
        between, self.between = self.between, None
        if between is not None:
            between()
            self.between = between
        if self.dies_at is not None and self.writes >= self.dies_at:
            self.dies_at = None
            raise KilledError("Killed.")
        self.writes += 1

    def _rows(self, key: Key) -> _Rows:
        return self._journals.setdefault(key, _Rows())


class _Slice:
    """The verbs of a slice, on the tables of the store."""

    def __init__(self, store: MemoryReplica, topic: str, partition: int) -> None:
        self._store = store
        self._place = topic, partition
        self._offset: int | None = None

    def lock_offset(self) -> int | None:
        self._offset = self._store.offset(*self._place)
        return self._offset

    def parked(self, keys: Sequence[Key]) -> Collection[Key]:
        return {key for key, _, _ in self._store._quarantine if key in keys}

    def heads(self, keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
        found = {key: self._store.head(key) for key in keys}
        return {key: head for key, head in found.items() if head is not None}

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        meanwhile, self._store.before_writing = self._store.before_writing, None
        if meanwhile is not None:
            meanwhile()
        for change in changes:
            rows = self._store._rows(change.key)
            for dated in write_head_once(change):
                self._store.write()
                if isinstance(dated.statement, DeleteHead):
                    self._store.snapshots.void(change.key, PartitionOffset(self._place[1], dated.offset))
                _carry_out(rows, dated)

    def attempt(self) -> AbstractContextManager[None]:
        return nullcontext()

    def free(self, purged: Mapping[Key, int]) -> None:
        for key, offset in purged.items():
            self._store.write()
            self._store._void[key] = max(offset, self._store._void.get(key, -1))
            for row in [row for row in self._store._quarantine if row[0] == key and row[2] < offset]:
                del self._store._quarantine[row]

    def lift(self, key: Key, partition: int, offset: int) -> None:
        self._store.write()
        self._store.lift((key, partition, offset))

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        for each in records:
            self._store.write()
            row = each.key, each.partition, each.offset
            if each.offset > self._store._void.get(each.key, -1) and row not in self._store._lifted:
                self._store._quarantine.setdefault(row, each)

    def move_offset(self, offset: int, topic_id: str | None = None) -> None:  # noqa: ARG002 - nothing is reset here
        self._store.write()
        now = self._store.offset(*self._place)
        if self._store.compares and now != self._offset:
            raise FencedError("Another replicator has moved the offset.")
        self._store._offsets[self._place] = max(offset, -1 if now is None else now)


def _carry_out(rows: _Rows, dated: OffsetStatement) -> None:
    time, statement = dated
    match statement:
        case InsertEvents():
            for event in statement.events:
                _insert(rows, statement.segment, event, statement.record_id)
        case InsertHead():
            rows.head.write(time, statement.head)
        case UpdateHead():
            if rows.head.value is not None and time >= rows.head.time:
                rows.head.time, rows.head.value = time, update_head(rows.head.value, statement)
        case DeleteEvents():
            rows.deleted.append((time, statement))
        case DeleteHead():
            if time >= rows.head.time:
                rows.head.time, rows.head.value = time, None


def _insert(rows: _Rows, segment: int, event: EventRecord, record_id: UUID | None) -> None:
    place, time = (segment, event.seq_nr), event.offset
    before, _, cell = rows.events.get(place, (-1, event, _Cell()))
    cell.write(time, record_id)
    if time >= before:
        rows.events[place] = (time, event, cell)


def _covers(gone: DeleteEvents, segment: int, seq_nr: SeqNr) -> bool:
    first, last = gone.segments
    if any(gap.first <= segment <= gap.last for gap in gone.gaps):
        return False
    return first <= segment <= last and (segment < last or gone.to is None or seq_nr <= gone.to)


# The rows of a store in memory, as an audit sees them; rows can be changed behind the replicator's back.

Change = Callable[[list[StoredRow]], list[StoredRow]]


class MemoryJournalRows:
    """A `JournalRows`; `heads` and `changes` are direct modifications of the store."""

    def __init__(self, store: MemoryReplica) -> None:
        self.heads: dict[Key, JournalHead | None] = {}
        self.changes: dict[Key, Change] = {}
        self._store = store

    def states(self, keys: Sequence[Key]) -> Mapping[Key, StoredState]:
        """Heads and quarantine."""
        found = {key: self.look(key) for key in keys}
        return {key: look for key, look in found.items() if look != StoredState()}

    def look(self, key: Key) -> StoredState:
        """Head and quarantine of one journal."""
        waiting = self._store.quarantined(key.topic, key.id)
        head = self.heads[key] if key in self.heads else self._store.head(key)
        return StoredState(head, frozenset(PartitionOffset(each.partition, each.offset) for each in waiting))

    def rows(self, key: Key, head: JournalHead | None) -> Iterator[StoredRow]:  # noqa: ARG002 - the port's signature
        """All rows."""
        rows = list(self._rows(key))
        return iter(self.changes.get(key, list)(rows))

    def offset(self, topic: str, partition: int) -> int | None:
        """The replicated offset."""
        return self._store.offset(topic, partition)

    def ids(self, topic: str) -> Iterator[str]:
        """Journals with a head."""
        return self._store.ids(topic)

    def close(self) -> None:
        """Nothing is held."""

    def _rows(self, key: Key) -> Iterator[StoredRow]:
        rows = self._store._rows(key)
        for (segment, seq_nr), (time, event, record_id) in sorted(rows.events.items(), key=lambda row: row[0]):
            if rows.is_live(segment, seq_nr, time):
                yield StoredRow(segment, seq_nr, event.timestamp, record_id.value, event_columns(event))
