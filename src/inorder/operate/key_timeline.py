"""The events of a key in order, each with what every hop knows of it; repeats and gaps are marked.

An event is a record of a topic, or a row of the outbox that has no record yet. Only evidence is marked:

| mark | evidence |
|---|---|
| `duplicate` | an earlier record of the partition has the same outbox id in its header, or is the same append |
| `same content` | an earlier record has the same value; that may be meant |
| `gap` | the append before it to a journal ends at a lower number. Records of tables have no numbers, and no gaps |
| `void` | an append, delete or purge of a journal that does not count, by the order of the log (`journal/life.py`) |

What became of a record in a table follows from the pointer of its pipeline, the version of the row and the dead
letters:

| state | meaning |
|---|---|
| `waits` | the pipeline continues at this offset, or before it |
| `rejected` | it is a dead letter |
| `applied` | the row has the version of this record, or it deleted the row |
| `stale` | the newest record of the key, and the row has a later version |
| `passed` | the pipeline has passed it: a later record replaced it, or it changed nothing, or it was settled |

In the store of journals a record `waits`, is `quarantined`, `stored`, or `deleted` by a later delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from typing import Literal

from inorder.journal.action import Append, Delete, Mark, Purge
from inorder.journal.codec import action_of
from inorder.journal.life import JournalFold, Life
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Key
from inorder.operate.key_trace import EventMark, JournalHop, KeyTrace, Sighting, TableHop, TopicHop

REMEMBERED = 10_000
"""Values and ids of a key that are remembered for the search for repeats, the newest; each costs about 200 bytes."""

RowState = Literal["sent", "waits", "exceeded", "gone"]
"""Of the row in the outbox: sent and still there, not sent, refused; gone or not known."""


@dataclass(frozen=True, slots=True)
class EventPlace:
    """What became of an event at a table or in the store of journals."""

    kind: Literal["table", "journal"]
    name: str
    state: str
    detail: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KeyEvent:
    """One event; of a row that was not sent only the fields of the outbox are known."""

    topic: str
    outbox_id: str | None = None
    written_at: datetime | None = None
    row: RowState = "gone"
    detail: str = ""
    """Why the row was refused."""
    exceeded_at: datetime | None = None
    generation: int | None = None
    kafka_topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    bytes: int | None = None
    action: str = ""
    """Of a journal: append, delete or purge."""
    seq_nrs: tuple[int, int] | None = None
    places: tuple[EventPlace, ...] = ()
    marks: tuple[EventMark, ...] = ()


def timeline(trace: KeyTrace) -> list[KeyEvent]:
    """Topic by topic, in the order in which readers see the events; rows that were not sent have their place by id."""
    hops = sorted(trace.topics, key=lambda hop: (hop.carried, hop.generation, hop.partition))
    sent = {topic: list(group) for topic, group in groupby(hops, key=lambda hop: hop.carried)}
    rows = _rows(trace)
    found = []
    for topic in sorted(sent.keys() | {row.topic for row in rows}):
        carriers = sent.get(topic, [])
        events = [_event(trace, hop, one) for hop in carriers for one in hop.shown]
        # A page of older records ends before everything that is not sent.
        waiting = [] if any(hop.page is not None for hop in carriers) else [row for row in rows if row.topic == topic]
        found += _merge(events, waiting)
    return found


def _event(trace: KeyTrace, hop: TopicHop, one: Sighting) -> KeyEvent:
    return KeyEvent(
        hop.carried,
        one.outbox_id,
        trace.written.get(one.outbox_id or ""),
        "sent" if one.outbox_id in trace.written else "gone",
        generation=hop.generation,
        kafka_topic=hop.topic,
        partition=hop.partition,
        offset=one.offset,
        timestamp_ms=one.timestamp_ms,
        bytes=one.bytes,
        action=one.action,
        seq_nrs=one.seq_nrs,
        places=tuple(_places(trace, hop, one)),
        marks=one.marks,
    )


def _rows(trace: KeyTrace) -> list[KeyEvent]:
    if trace.outbox is None:
        return []
    exceeded = [
        KeyEvent(
            row.topic, str(row.id), row.written_at, "exceeded", f"{row.code}, {row.reason}", exceeded_at=row.exceeded_at
        )
        for row in trace.outbox.exceeded
    ]
    waiting = [KeyEvent(row.topic, str(row.id), row.written_at, "waits") for row in trace.outbox.first]
    return sorted(exceeded + waiting, key=_row_id)


def _merge(events: list[KeyEvent], rows: Sequence[KeyEvent]) -> list[KeyEvent]:
    """Rows behind the records, or before the first one of a larger id, which overtook a row that holds nothing up."""
    known = {event.outbox_id for event in events if event.outbox_id is not None}
    merged = list(events)
    for row in (row for row in rows if row.outbox_id not in known):  # a row may be sent, and not purged yet
        later = (place for place, event in enumerate(merged) if _row_id(event) > _row_id(row))
        merged.insert(next(later, len(merged)), row)
    return merged


def _row_id(event: KeyEvent) -> int:
    text = event.outbox_id or ""
    return int(text) if text.isascii() and text.isdigit() else -1


def _places(trace: KeyTrace, hop: TopicHop, one: Sighting) -> Iterator[EventPlace]:
    for table in trace.tables:
        if (hop.topic, hop.partition) in table.due:
            yield _in_table(table, hop, one)
    for journal in trace.journals:
        if journal.topic == hop.topic and journal.partition in (None, hop.partition):
            yield EventPlace("journal", "store", _in_store(journal, one))


def _in_table(table: TableHop, hop: TopicHop, one: Sighting) -> EventPlace:
    due = table.due[hop.topic, hop.partition]
    for letter in table.letters:
        if letter.id == f"{hop.topic}:{hop.partition}:{one.offset}":
            what = f"{letter.code}, {letter.detail}"
            return EventPlace("table", table.table, "rejected", what, letter.recorded_at)
    if one.offset >= due:
        return EventPlace("table", table.table, "waits", f"the pipeline continues at {due}")
    version = (table.generations.get((hop.topic, hop.partition), hop.generation), one.offset)
    if table.version == version:
        if table.is_deleted or table.row is None:
            return EventPlace("table", table.table, "applied", "it deleted the row")
        return EventPlace("table", table.table, "applied", "", table.row.get("updated_at"))
    is_newest = table.newest is not None and (hop.topic, hop.partition, version) == (
        table.newest.topic,
        table.newest.partition,
        table.newest.version,
    )
    if is_newest and table.has_dropped_newest and table.version is not None:
        return EventPlace("table", table.table, "stale", f"the row has the version {table.version[1]}")
    is_replaced = table.version is not None and table.version > version
    return EventPlace("table", table.table, "passed", "a later record is in the row" if is_replaced else "")


def _in_store(journal: JournalHop, one: Sighting) -> str:
    if one.offset > max(-1 if at is None else at for at in (journal.replicated, journal.offset)):
        return "waits"
    if journal.parked_at is not None and one.offset >= journal.parked_at:
        return "quarantined"
    is_deleted = one.seq_nrs is not None and journal.delete_to is not None and one.seq_nrs[1] <= journal.delete_to
    return "deleted" if is_deleted else "stored"


# Reading a partition: what a record says of itself, and against those of the key before it.


@dataclass(slots=True)
class KeyScan:
    """The records of one key in a partition, in order; returns each as it is shown."""

    topic: str
    partition: int
    is_journal: bool = False
    id_header: str = ""
    _seen: dict[tuple[str, bytes], int] = field(default_factory=dict)
    _life: Life | None = None
    _is_life_known: bool = False
    """From the first append, or a purge, that is read: earlier records may be gone."""

    def sight(self, record: LogRecord) -> Sighting | None:
        """None for a mark of a journal, which is no event."""
        size = None if record.value is None else len(record.value)
        if not self.is_journal:
            id, marks = self._id_of(record), self._repeats(record)
            return Sighting(record.offset, record.timestamp_ms, size, id, marks=tuple(marks))
        try:
            action = action_of(record, self.topic, self.partition)
        except DamagedRecordError:
            return Sighting(record.offset, record.timestamp_ms, size, action="unreadable")
        match action:
            case Mark():
                return None
            case None:
                return Sighting(record.offset, record.timestamp_ms, size)
        numbers = (action.range.first, action.range.last) if isinstance(action, Append) else None
        name, marks = type(action).__name__.lower(), self._judge(record, action)
        return Sighting(record.offset, record.timestamp_ms, size, action=name, seq_nrs=numbers, marks=tuple(marks))

    def _id_of(self, record: LogRecord) -> str | None:
        found = next((value for name, value in record.headers if name == self.id_header), None)
        return None if found is None or not self.id_header else found.decode(errors="backslashreplace")

    def _repeats(self, record: LogRecord) -> Iterator[EventMark]:
        id = self._id_of(record)
        earlier = None if id is None else self._see("id", id.encode(), record.offset)
        if earlier is not None:
            yield EventMark("duplicate", f"the outbox id {id} is at offset {earlier} too")
        # Of two deletes none repeats the other: something may have been written between them.
        same = None if record.value is None else self._see("value", sha256(record.value).digest(), record.offset)
        if same is not None:
            yield EventMark("same content", f"offset {same} has the same value")

    def _judge(self, record: LogRecord, action: Append | Delete | Purge) -> Iterator[EventMark]:
        id = action.id if isinstance(action, Append) else None
        earlier = None if id is None else self._see("append", id.encode(), record.offset)
        if earlier is not None:
            yield EventMark("duplicate", f"it is the append of offset {earlier}")
        before, offset = self._life, record.offset
        if not self._is_life_known:
            if isinstance(action, Append):
                self._life, self._is_life_known = Life(action.range.last), True
            elif isinstance(action, Purge) and action.condition is None:
                self._is_life_known = True
            return
        fold = JournalFold(Key((record.key or b"").decode(errors="replace"), self.topic), self.partition)
        if not fold.counts(before, action):
            end = 0 if before is None else before.end
            yield EventMark("void", f"it does not count: the journal ended at {end}")
            return
        self._life = fold.apply(before, action, offset)
        if isinstance(action, Append) and before is not None and before.is_begun:
            first = before.end + 1
            if action.range.first > first:
                last = action.range.first - 1
                numbers = f"number {first} is" if first == last else f"numbers {first} to {last} are"
                yield EventMark("gap", f"{numbers} missing before it")

    def _see(self, kind: str, what: bytes, offset: int) -> int | None:
        """The offset at which it was seen last."""
        earlier = self._seen.pop((kind, what), None)
        self._seen[kind, what] = offset
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return earlier
