"""Replication: what the records of one slice of a journal topic change in the store.

**What is authoritative.** The topic. The store is a copy, and the partition's row in `pointer2` says how far it goes:
every record up to that offset is in it. The row moves last, in the same transaction where the store has one.

    lock the offset            drop what is applied; a second replicator waits here, then finds nothing to do
    decode the headers         records that are not of journals count as applied
    group by journal           each journal's records in offset order
    decide what is parked      below
    decide what counts         void actions are dropped (`life.py`); their events are reported as forks
    collapse                   fewer writes for the same result (`transition.collapse`)
    transition                 (head, action) → the next head and the statements that lead there (`transition.py`)
    carry out, move the offset

Invariants:

1. The store holds, for every journal, the fold of its actions up to the offset (`life.py`).
2. The offset never moves back, and no record counts twice: the offset drops it, and if that is lost, the head's offset.
3. A head never falls: not by a fork, not by a smaller delete, not by a replay.

Which records are applied and which go to quarantine is decided journal by journal, from values alone:

| the journal, the record            | what follows                                                                |
|---|---|
| any, a purge that counts           | applied; what came before it is void, in quarantine too                     |
| parked, any other                  | quarantine, after those that are there                                      |
| not parked, a damaged one          | quarantine; from here on the journal is parked                              |
| any, a mark                        | nothing                                                                     |

The decision does not depend on how the log is cut into slices: what a later delete of the same slice covers is decoded
all the same.

Failure table:

| what happens                              | what follows                                                         |
|---|---|
| crash before the commit                   | nothing is visible; the slice is read again from the offset          |
| crash after it, the answer lost           | the offset shows it; what is applied is dropped                      |
| two replicators, or one that was paused   | the lock lets one through; the other finds the offset moved          |
| replay of any range in any chunking       | offset and heads drop what they include                              |
| a record that cannot be read              | it parks its own journal                                             |
| an error that no one expected             | the records are applied one by one; the one that raises it parks its |
|                                           | journal, with the last line of the traceback as the reason           |
| two writers of one journal                | the first wins; the other's events are reported as forks             |
| a crash between the removal of a purged   | the slice is folded over nothing: the purge says by its mark whether |
| journal and the offset, without           | what seems to begin there is a journal (`life.py`)                   |
| transactions                              |                                                                      |
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final, assert_never
from uuid import UUID

from inorder.engines.slice_work import Slice
from inorder.journal.action import Action, Append, Mark, Purge
from inorder.journal.codec import action_of, damaged_error, events_of, is_of_record
from inorder.journal.life import Fork, JournalFold, Life, judge_events, life_id, life_of
from inorder.journal.replication import transition
from inorder.journal.replication.store_port import JournalChange, OffsetStatement, Quarantined
from inorder.journal.replication.transition import (
    ActionPlace,
    ActionRecord,
    Change,
    Collapsed,
    CollapsedAppends,
    CollapsedDelete,
    CollapsedPurge,
    DeleteHead,
    collapse,
)
from inorder.journal.stores.ports import JournalHead, LogRecord
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import EventRecord, Key, PartitionOffset
from inorder.model.message import Limits

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_ID_BYTES: Final = Limits().max_key_bytes
"""A `Key` is refused above it, and so is a record with a longer key: no reader could name its journal."""
_ESCAPED: Final = 4
"""How long a byte gets at most when it is escaped."""


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that parks its journal."""

    key: Key
    offset: int
    reason: str
    record: LogRecord


@dataclass(slots=True)
class SliceActions:
    """The actions of a slice by journal, in offset order, and how many records were not of journals."""

    journals: dict[Key, list[ActionRecord[LogRecord]]] = field(default_factory=dict)
    damaged: list[DamagedRecord] = field(default_factory=list)
    foreign: int = 0


def group_by_journal(batch: Slice, above: int) -> SliceActions:
    """The actions of the records above an offset."""
    found, keys = SliceActions(), dict[bytes | None, Key]()
    for record in _records(batch, above):
        try:
            action = read_action(record, batch.topic, batch.partition)
        except DamagedRecordError as error:
            found.damaged.append(DamagedRecord(_key(record, batch.topic), record.offset, error.message, record))
            continue
        if action is None:
            found.foreign += 1
        else:
            acted = ActionRecord(record.offset, action, record)
            key = keys.get(record.key)
            if key is None:  # building a key checks it, which takes longer than the rest of this loop
                key = keys[record.key] = _key(record, batch.topic)
            found.journals.setdefault(key, []).append(acted)
    return found


def read_action(record: LogRecord, topic: str, partition: int) -> Action | None:
    """The action of a record; None if it is not of a journal. Raises `DamagedRecordError` if it cannot be read."""
    if not record.key:
        return None  # an empty key names no journal
    action = action_of(record, topic, partition)
    if action is not None and b"\0" in record.key:
        raise damaged_error("its key", ValueError("no store holds a NUL"), record, topic, partition)
    if action is not None and len(record.key) > MAX_ID_BYTES // _ESCAPED and len(_escape(record.key)) > MAX_ID_BYTES:
        unfit = ValueError(f"an id has at most {MAX_ID_BYTES:,} bytes, not {len(record.key):,}")
        raise damaged_error("its key", unfit, record, topic, partition)
    return action


@dataclass(frozen=True, slots=True)
class JournalOutcome:
    """The result of one journal's records."""

    change: JournalChange
    forks: tuple[Fork, ...] = ()
    events: int = 0


@dataclass(frozen=True, slots=True)
class SliceSource:
    """Where the records of a slice come from, and the segment size of journals that begin in it."""

    topic: str
    partition: int
    segment_size: int


def replicate_journal(
    source: SliceSource, key: Key, head: JournalHead | None, records: Sequence[ActionRecord[LogRecord]]
) -> JournalOutcome:
    """What the records of one journal change, given its head.

    Raises `DamagedRecordError` with the offset of the first record that cannot be applied, whatever the error is.
    """
    try:
        return _replicate(source, key, head, records)
    except DamagedRecordError:
        raise
    except Exception as error:
        if not is_of_record(error):
            raise
        record, cause = _find_culprit(source, key, head, records)
        raise damaged_error("it", cause or error, record, source.topic, source.partition) from error


def _find_culprit(
    source: SliceSource, key: Key, head: JournalHead | None, records: Sequence[ActionRecord[LogRecord]]
) -> tuple[LogRecord, Exception | None]:
    """The record that cannot be applied after those before it; the first one if only several together cannot."""
    for acted in records:
        try:
            head = _replicate(source, key, head, [acted]).change.head
        except Exception as error:
            if not is_of_record(error):
                raise
            return acted.record, error
    return records[0].record, None


def _replicate(
    source: SliceSource, key: Key, head: JournalHead | None, records: Sequence[ActionRecord[LogRecord]]
) -> JournalOutcome:
    statements: list[OffsetStatement] = []
    judged = _judge(source, key, head, records)
    forks = list(judged.forks)
    events = 0
    record_id = life_id(key, source.partition, judged.begun_at)
    batches = collapse(judged.counted)
    dropped = _covered_events(source, judged.counted, batches)
    for batch in batches:
        change, appended = _apply(source, head, batch, record_id, judged.begun, dropped)
        statements += [OffsetStatement(batch.offset, statement) for statement in change.statements]
        forks += change.forks
        events += appended
        head = change.head
    return JournalOutcome(JournalChange(key, tuple(statements), head), tuple(forks), events)


@dataclass(frozen=True, slots=True)
class _Judged:
    """The actions that count, the events of void appends, and the first append since the last purge, if one counts."""

    counted: list[ActionRecord[LogRecord]]
    forks: list[Fork]
    begun_at: int = -1
    begun: Life | None = None
    """The life after that append, even if nothing of it is written."""


def _judge(
    source: SliceSource, key: Key, head: JournalHead | None, records: Sequence[ActionRecord[LogRecord]]
) -> _Judged:
    """Which actions count, in the order of the log; those that the head includes are left out.

    Void appends are decoded too: a damaged record parks its journal in any chunking.
    """
    fold, life, applied = _begin_fold(key, source.partition, head, records)
    counted: list[ActionRecord[LogRecord]] = []
    forks: list[Fork] = []
    begun_at, begun = -1, None
    for acted in records:
        offset, action, _ = acted
        if offset <= applied or isinstance(action, Mark):
            continue
        if not fold.counts(life, action):
            if isinstance(action, Append):
                forks += judge_events(fold, life, action, _events(source, acted)).forks
            continue
        life = fold.apply(life, action, offset)
        counted.append(acted)
        if isinstance(action, Purge):
            fold, begun_at, begun = fold._replace(nothing_since=offset), -1, None
        elif begun_at < 0 and isinstance(action, Append):
            begun_at, begun = offset, life
    return _Judged(counted, forks, begun_at, begun)


def _begin_fold(
    key: Key, partition: int, head: JournalHead | None, records: Sequence[ActionRecord[LogRecord]]
) -> tuple[JournalFold, Life | None, int]:
    """The rules, the journal in the store, and the last offset that it includes; the store has all before the records.

    Marks are records too. So if a purge names a mark after the store's offset, the mark is among the records.
    """
    if head is None:
        return JournalFold(key, partition, records[0].offset - 1 if records else None), None, -1
    place = head.partition_offset
    return JournalFold(key, partition), life_of(head), place.offset if place.partition == partition else -1


def _apply(
    source: SliceSource,
    head: JournalHead | None,
    batch: Collapsed[LogRecord],
    record_id: UUID,
    begun: Life | None,
    dropped: Sequence[EventRecord],
) -> tuple[Change, int]:
    match batch:
        case CollapsedAppends(offset, records):
            appended = [_events(source, acted) for acted in records]
            events = [event for each in appended for event in each]
            at = _at(source, offset, records[-1].record)
            change = transition.append(
                head,
                at,
                events,
                segment_size=source.segment_size,
                record_id=record_id,
                begun=begun,
                rewrites_expiry=_varies(events[-1], (*dropped, *(each[0] for each in appended))),
                dropped=dropped,
            )
            return change, len(events) - len(change.forks)
        case CollapsedDelete(offset, action, record):
            at = _at(source, offset, record)
            size = source.segment_size
            return transition.delete(head, at, action.to, segment_size=size, origin=action.origin), 0
        case CollapsedPurge(offset, record):
            if head is None:
                # What the purge makes void may have been left out here and still be written by a slow replicator: in a
                # store that goes by the time of each cell, this tombstone hides it.
                return Change(None, (DeleteHead(),)), 0
            return transition.purge(head, _at(source, offset, record)), 0
    assert_never(batch)


def _covered_events(
    source: SliceSource, records: Sequence[ActionRecord[LogRecord]], batches: Sequence[Collapsed[LogRecord]]
) -> list[EventRecord]:
    """The events that a later delete covers; decoded, because a damaged record parks its journal in any chunking."""
    written = {acted.offset for batch in batches if isinstance(batch, CollapsedAppends) for acted in batch.records}
    purged = max((offset for offset, action, _ in records if isinstance(action, Purge)), default=-1)
    covered = [
        acted
        for acted in records
        if acted.offset > purged and isinstance(acted.action, Append) and acted.offset not in written
    ]
    return [event for acted in covered for event in _events(source, acted)]


def _varies(last: EventRecord, events: Sequence[EventRecord]) -> bool:
    """Whether the expiry had other values in between; the events of an append share one."""
    after = last.metadata.payload.expire_after
    return any(event.metadata.payload.expire_after != after for event in events)


def _events(source: SliceSource, acted: ActionRecord[LogRecord]) -> Sequence[EventRecord]:
    action = acted.action
    assert isinstance(action, Append)  # noqa: S101 - collapse joins nothing else
    return events_of(action, acted.record, source.topic, source.partition)


def _at(source: SliceSource, offset: int, record: LogRecord) -> ActionPlace:
    return ActionPlace(
        PartitionOffset(source.partition, offset), _EPOCH + timedelta(milliseconds=record.timestamp_ms or 0)
    )


def _records(batch: Slice, above: int) -> Iterator[LogRecord]:
    for index in range(bisect_right(batch.offsets, above), len(batch)):
        micros = batch.timestamps[index]
        time = None if micros is None else micros // 1000
        yield LogRecord(batch.offsets[index], time, batch.keys[index], batch.values[index], batch.headers[index])


def _key(record: LogRecord, topic: str) -> Key:
    return Key(id_of(record.key or b""), topic)


def id_of(key: bytes) -> str:
    """The id of the journal whose records have this key; bytes that are not text are escaped.

    A key that is too long for an id is cut and gets its digest, so that its records can be in quarantine.
    """
    escaped = _escape(key)
    return escaped.decode() if len(escaped) <= MAX_ID_BYTES else shorten_id(escaped.decode())


def _escape(key: bytes) -> bytes:
    return key.decode(errors="backslashreplace").replace("\0", "\\x00").encode()


def shorten_id(id: str) -> str:
    """A short text for a long id; another one for every id.

    >>> len(shorten_id("x" * 20_000)), shorten_id("x" * 20_000) == shorten_id("x" * 20_001)
    (172, False)
    """
    return f"{id[:100]}… SHA-256 {sha256(id.encode()).hexdigest()[:62]}"


FOLLOWS = "It follows a record of its journal that is in quarantine."


@dataclass(slots=True)
class JournalRecords:
    """The records of one journal in a slice."""

    key: Key
    actions: list[ActionRecord[LogRecord]] = field(default_factory=list)
    damaged: list[DamagedRecord] = field(default_factory=list)

    def has_before(self, offset: int) -> bool:
        firsts = [each.offset for each in self.actions[:1]] + [each.offset for each in self.damaged[:1]]
        return any(first < offset for first in firsts)


@dataclass(frozen=True, slots=True)
class ParkingDecision:
    """Which records of a journal are applied, and which go to quarantine."""

    applied: list[ActionRecord[LogRecord]]
    replicated: JournalOutcome | None
    parked: list[Quarantined]
    purged: int | None = None
    """The offset of a purge that makes void what is, or may still come, in quarantine."""


def collect_records(
    journals: Iterable[tuple[Key, list[ActionRecord[LogRecord]]]], damaged: Iterable[DamagedRecord]
) -> list[JournalRecords]:
    found = {key: JournalRecords(key, actions) for key, actions in journals}
    for one in damaged:
        found.setdefault(one.key, JournalRecords(one.key)).damaged.append(one)
    return list(found.values())


def decide_parking(
    source: SliceSource, journal: JournalRecords, head: JournalHead | None, *, is_parked: bool
) -> ParkingDecision:
    purged = _find_purge(source, journal, head, is_parked=is_parked)
    is_freed = purged >= 0
    voids = is_freed and (is_parked or journal.has_before(purged))
    cut, reason = _first_damage(journal, purged)
    if is_parked and not is_freed:
        cut, reason = -1, FOLLOWS
    while True:
        actions = [each for each in journal.actions if purged <= each.offset and (cut is None or each.offset < cut)]
        if is_freed and actions:
            # It counts; what it was decided by is left out.
            actions[0] = actions[0]._replace(action=Purge())
        try:
            done = replicate_journal(source, journal.key, head, actions) if actions else None
        except DamagedRecordError as error:
            cut, reason = error.offset, error.message
            continue
        applied = [each for each in actions if not isinstance(each.action, Mark)]
        return ParkingDecision(
            applied, done, [] if cut is None else _waiting(source, journal, cut, reason), purged if voids else None
        )


def _find_purge(source: SliceSource, journal: JournalRecords, head: JournalHead | None, *, is_parked: bool) -> int:
    """The offset of the last purge that counts, -1 if there is none.

    From the damage on, the journal stays as it was, until a purge ends that. If a purge has a condition, events before
    it are decoded: what it finds must not depend on how the log is cut into slices.
    """
    purges = [each for each in journal.actions if isinstance(each.action, Purge)]
    if not purges:
        return -1
    fold, life, applied = _begin_fold(journal.key, source.partition, head, journal.actions)
    purged = -1
    damaged = [each.offset for each in journal.damaged]
    if any(isinstance(each.action, Purge) and each.action.condition is not None for each in purges):
        before = [each for each in journal.actions if applied < each.offset < purges[-1].offset]
        damaged += [each.offset for each in before if isinstance(each.action, Append) and _is_damaged(source, each)]
    damaged.sort()
    for offset, action, _ in journal.actions:
        if offset <= applied:
            # The slice is repeated. What the purge found is gone; it counted if the life began after it.
            if isinstance(action, Purge) and (action.condition is None or _began_after(journal, head, fold, offset)):
                purged = offset
            continue
        known = bisect_right(damaged, max(purged, applied))
        is_stopped = (is_parked and purged < 0) or bisect_right(damaged, offset) > known
        if isinstance(action, Purge) and (fold.frees(life, action) if is_stopped else fold.counts(life, action)):
            fold, life, purged = fold._replace(nothing_since=offset), None, offset
        elif not is_stopped:
            life = fold.after(life, action, offset)
    return purged


def _began_after(journal: JournalRecords, head: JournalHead | None, fold: JournalFold, offset: int) -> bool:
    places = [each.offset for each in journal.actions if isinstance(each.action, Append) and each.offset > offset]
    return head is not None and any(life_id(fold.key, fold.partition, each) == head.record_id for each in places)


def _is_damaged(source: SliceSource, acted: ActionRecord[LogRecord]) -> bool:
    try:
        _events(source, acted)
    except DamagedRecordError:
        return True
    return False


def quarantine_from(
    source: SliceSource, key: Key, records: Sequence[ActionRecord[LogRecord]], reason: str
) -> list[Quarantined]:
    """A record that the store has refused, and those after it, for quarantine."""
    reasons = [reason] + [FOLLOWS] * (len(records) - 1)
    return [
        Quarantined(key, source.partition, why, each.record)
        for each, why in zip(records, reasons, strict=True)
        if not isinstance(each.action, Mark)
    ]


def _first_damage(journal: JournalRecords, purged: int) -> tuple[int | None, str]:
    first = next((each for each in journal.damaged if each.offset > purged), None)
    return (None, "") if first is None else (first.offset, first.reason)


def _waiting(source: SliceSource, journal: JournalRecords, cut: int, reason: str) -> list[Quarantined]:
    reasons = {each.offset: each.reason for each in journal.damaged} | ({cut: reason} if cut >= 0 else {})
    records = [each.record for each in journal.actions if not isinstance(each.action, Mark)]
    records += [each.record for each in journal.damaged]
    return [
        Quarantined(journal.key, source.partition, reasons.get(record.offset, FOLLOWS), record)
        for record in sorted(records)
        if record.offset >= cut
    ]
