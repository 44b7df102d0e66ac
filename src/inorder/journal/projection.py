"""A projection: the journals of some topics folded into tables of the application, each change exactly once.

A handler is called for every event that counts, every delete and every purge, in a database transaction. The same
transaction moves the checkpoint of the partition. So the read model and its checkpoint cannot disagree.

**What is authoritative.** The row of (projection, topic, partition) in `inorder_projection`, in the database of the
read model: everything below its `next_offset` is in the read model, nothing at or above it is. The consumer group only
spreads partitions over instances; no offset is committed to it.

**What a projection knows of a journal.** Whether a record counts depends on the journal that it finds (`life.py`): an
append may be void, and so may a purge that means an earlier life. Mistaking a void purge for one that counts would
forget a person who is still there. The replicated store cannot answer that, because it may be far ahead. So a
projection has a row for each journal, `inorder_projection_journal`, with the life that its last record left, written in
the same transaction. It judges each record by that row, with the fold that everyone uses, and after any restart it
judges as it would have without.

    lock the partition's row      waits for any other holder, then sees what it committed
    compare                       if it is not where this instance began to read, read again from there
    read the journals' rows
    fold and call the handler     each change, in the order of the log
    write the journals' rows
    move the partition's row
    commit

**Where it begins.** At the topic's first record, if retention has removed nothing. Otherwise the store is scanned
first, journal by journal in the order of ids, and the log is read from the offset that the store had before the scan.
A scan brings each journal from its row to the store's head: the events that it lacks, `Deleted` if the store has
deleted more, `Purged` if the store has another life of it, or none. So a scan is also right in the middle of a life of
a projection: it repeats nothing, and one that was interrupted continues. It is needed again if the projection was down
for longer than the topic's retention. Each journal's row has the offset up to which it is included (`applied`); the
log's records up to there are skipped.

A journal may be purged between the beginning of a scan and its turn. The log then has its last records and its purge,
but not its first ones, and no fold can judge them. So until the log is past the offset that the store had at the end of
the scan (`store_to`), the store decides about a journal without a row: it is brought to the store's head when its first
record comes. If the store has no such journal, its row says that it is absent up to the store's offset.

`projection_runner.py` has the loop of an instance; this file has what happens in one transaction.

Invariants:

1. The handler's writes for a record, the journals' rows and the partition's row become visible together or not at all.
2. The handler sees the changes of a journal in order, and the writes for each are committed once.
3. What is void reaches no handler. `Purged` and `Deleted` come only for what the handler was shown.
4. Nothing is skipped: a record whose handler fails is tried again until it succeeds, and the partition waits for it.

Failure table:

| what happens                              | what follows                                                       |
|---|---|
| killed inside the transaction             | it is rolled back; the records are read again                      |
| killed after COMMIT                       | the partition's row has moved; they are not read again             |
| the answer to COMMIT is lost              | the row is read again; the lock waits for the old session's end    |
| two instances with one partition          | the lock admits one; the other sees the moved row and reads again  |
| paused inside the transaction, for long   | the server ends the idle session after ten seconds (PostgreSQL)    |
| the handler raises                        | rolled back; the records before it are committed one by one, then  |
|                                           | it is tried again after pauses that grow to a minute. Status,      |
|                                           | metrics and log say so. Other partitions continue                  |
| an event has a type or a version that is  | as if the handler had raised, unless `types` leaves it out         |
| not known                                 |                                                                    |
| a record cannot be read, or the store has | as if the handler had raised; with `on_damaged` the record, or the |
| parked its journal during a scan          | journal in the store, is skipped                                   |
| Kafka or the database is away             | the partitions wait and are opened again                           |
| retention removed the next records        | a scan of the store; if it lacks them too, `RecordsLostError`, and |
|                                           | the partition waits                                                |
| topic deleted and re-created              | `OtherTopicError`, and its partitions wait for a `reset`. Other    |
|                                           | topics continue                                                    |
| `reset` while instances run               | they find no row, and begin again                                  |
| a scan meets a purge under way, on a      | the journal's last events may come and stay; `reset` removes them. |
| store without transactions                | A store with transactions has no such state                        |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from inorder.database.database import Transaction
from inorder.journal.action import Action, Append, Mark, Purge
from inorder.journal.codec import action_of, events_of
from inorder.journal.event_filter import OpenRecord, key_of
from inorder.journal.event_types import type_name
from inorder.journal.life import JournalFold, is_named, judge_events, life_of
from inorder.journal.stores.ports import EventualJournal, JournalHead, LogRecord
from inorder.journal.stores.projection_store import ProjectedJournal, ProjectionPoint, ProjectionStore
from inorder.model.errors import (
    DamagedRecordError,
    JournalChangedError,
    RecordsLostError,
    TransientError,
    ValidationError,
)
from inorder.model.journal import DeleteTo, EventRecord, Key, Payload, RecordMetadata, SeqNr
from inorder.model.partitioning import Place

if TYPE_CHECKING:
    from inorder.journal.entity import EventCodec

SCAN_EVENTS: Final = 1_000
"""The most events of one transaction of a scan."""
MAX_NAME: Final = 100
SETTLE_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class Appended:
    """An event of a journal that counts."""

    key: Key
    record: EventRecord
    event: Any = None
    """The event as `Projection.events` decodes it; None without that."""

    @property
    def seq_nr(self) -> SeqNr:
        return self.record.seq_nr

    @property
    def payload(self) -> Payload:
        return self.record.event.payload

    @property
    def tags(self) -> frozenset[str]:
        return self.record.event.tags

    @property
    def metadata(self) -> RecordMetadata:
        return self.record.metadata


@dataclass(frozen=True, slots=True)
class Deleted:
    """The events of a journal up to a number are deleted; the journal continues."""

    key: Key
    to: DeleteTo


@dataclass(frozen=True, slots=True)
class Purged:
    """A journal is removed; an event that comes later begins a new one."""

    key: Key


Change: TypeAlias = Appended | Deleted | Purged
Handler: TypeAlias = Callable[[Transaction, Change], object]


@dataclass(frozen=True, slots=True)
class Projection:
    """What is folded and how; a value that connects to nothing, so that `inorder journal project` can import it."""

    name: str
    handler: Handler
    """Called in a transaction of the read model, with each change; all that it does must be writes in there."""
    topics: Sequence[str]
    tags: Collection[str] = frozenset()
    """Only events with one of these tags; deletes and purges come nevertheless."""
    id_prefix: str = ""
    """Only journals whose ids begin like this."""
    on_damaged: Callable[[DamagedRecordError], object] | None = None
    """Called with a record that cannot be read, which is then skipped; without it the partition waits."""
    types: Collection[str] = frozenset()
    """Only events of these types, by the names in their payloads; deletes and purges come nevertheless."""
    events: EventCodec | None = None
    """Decodes the events that the handler is to see, for `Appended.event`; the partition waits for one that fails."""

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > MAX_NAME:
            raise ValidationError("name", f"{self.name!r} is not the name of a projection, of 1 to {MAX_NAME} letters.")
        if isinstance(self.topics, str) or not self.topics:
            raise ValidationError("topics", f"{self.topics!r} is not a list of topics.")
        if isinstance(self.tags, str):
            raise ValidationError("tags", f"{self.tags!r} is not a list of tags.")
        if isinstance(self.types, str):
            raise ValidationError("types", f"{self.types!r} is not a list of types.")

    def wants(self, change: Change) -> bool:
        """Whether the handler is to see a change of one of its journals."""
        if not isinstance(change, Appended):
            return True
        if self.tags and change.tags.isdisjoint(self.tags):
            return False
        return not self.types or type_name(change.payload) in self.types


# Decisions.


class Judged(NamedTuple):
    """What a projection knows of a journal after a record, None if there is no journal, and what the record changed."""

    journal: ProjectedJournal | None
    changes: list[Change]


def judge(
    fold: JournalFold, journal: ProjectedJournal | None, action: Action, events: Sequence[EventRecord], offset: int
) -> Judged:
    """What a record means for the journal that it finds; nothing if it is void, or included already."""
    before = None if journal is None else journal.life
    if isinstance(action, Mark) or (journal is not None and offset <= journal.applied):
        return Judged(journal, [])
    if not fold.counts(before, action):
        return Judged(journal, [])
    changes: list[Change] = []
    after = fold.apply(before, action, offset)
    if isinstance(action, Append):
        changes = [Appended(fold.key, event) for event in judge_events(fold, before, action, events).kept]
    elif before is not None and before.is_begun:
        if isinstance(action, Purge):
            changes = [Purged(fold.key)]
        elif after is not None and after.delete_to > before.delete_to:
            changes = [Deleted(fold.key, after.delete_to)]
    if after is None:
        return Judged(None, changes)
    named = fold.name(after) if after.is_begun else None
    return Judged(ProjectedJournal(after, named or (journal.stored_id if journal else None), offset), changes)


class CatchUp(NamedTuple):
    """How a journal differs from the store's head: perhaps it was purged, or deleted; which events are to come."""

    is_purged: bool = False
    deleted_to: DeleteTo | None = None
    from_seq_nr: SeqNr | None = None


def plan_catch_up(journal: ProjectedJournal | None, head: JournalHead | None) -> CatchUp:
    """What leads from a journal as it was shown to the one that the store has."""
    shown = None if journal is None else journal.life
    if journal is None or shown is None or not shown.is_begun:
        return CatchUp(from_seq_nr=None if head is None or not head.is_begun else 1)
    if head is None or not head.is_begun:
        return CatchUp(is_purged=True)
    if not _is_same_life(journal, head, shown.seq_nr):
        return CatchUp(is_purged=True, from_seq_nr=1)
    deleted_to = head.delete_to or 0
    is_deleted = deleted_to > shown.delete_to and shown.seq_nr > shown.delete_to
    return CatchUp(False, deleted_to if is_deleted else None, shown.seq_nr + 1)


def _is_same_life(journal: ProjectedJournal, head: JournalHead, seq_nr: SeqNr) -> bool:
    """Whether the store's journal is the one that was shown; random ids cannot be compared with names."""
    one, other = journal.stored_id, head.record_id
    if one is not None and other is not None and is_named(one) == is_named(other):
        return one == other
    return head.seq_nr >= seq_nr


@dataclass(frozen=True, slots=True)
class Follow:
    """Reads the log from an offset."""

    next_offset: int


@dataclass(frozen=True, slots=True)
class ContinueScan:
    """Continues the scan of the store."""


@dataclass(frozen=True, slots=True)
class BeginScan:
    """Scans the store, then reads the log from an offset."""

    next_offset: int


Start: TypeAlias = Follow | ContinueScan | BeginScan


def decide_start(point: ProjectionPoint | None, first: int, replicated: int | None, place: Place) -> Start:
    """Where a partition continues whose log begins at `first`; `RecordsLostError` if neither log nor store has it."""
    if point is not None and point.scan_id is not None:
        return ContinueScan()
    wanted = 0 if point is None else point.next_offset
    if wanted >= first:
        return Follow(wanted)
    if replicated is None or replicated + 1 < first:
        raise RecordsLostError(
            f"{place[0]}[{place[1]}] begins at offset {first}; offset {wanted} is gone, and was not replicated.",
            hint="Retention removed records before the replicator read them; `inorder journal lag` shows its position.",
            wanted=wanted,
            first=first,
        )
    return BeginScan(replicated + 1)


# One transaction.


class Folding:
    """One transaction: folds records, or the store's journals, and calls the handler."""

    def __init__(
        self,
        projection: Projection,
        store: ProjectionStore,
        journals: EventualJournal,
        transaction: Transaction,
        place: Place,
        open_record: OpenRecord,
    ) -> None:
        self._projection = projection
        self._store = store
        self._journals = journals
        self._transaction = transaction
        self._place = place
        self._open_record = open_record
        self._known: dict[str, ProjectedJournal | None] = {}
        self._changed: dict[str, ProjectedJournal | None] = {}
        self.counts = {"appended": 0, "deleted": 0, "purged": 0}

    def take(self, records: Sequence[LogRecord], store_to: int | None) -> None:
        """Folds records of the log; up to `store_to` the store decides about journals that are not known."""
        topic, _ = self._place
        prefix = self._projection.id_prefix
        keyed = [(key_of(record.key, topic), record) for record in records if record.key]
        wanted = [(key, record) for key, record in keyed if key.id.startswith(prefix)]
        if wanted:
            self._known.update(self._store.journals(self._transaction, self._place, (key.id for key, _ in wanted)))
        for key, record in wanted:
            try:
                self._take(key, record, is_in_store=store_to is not None and record.offset <= store_to)
            except DamagedRecordError as error:
                self._damaged(error)

    def scan(self, ids: Sequence[str], most_events: int) -> Iterable[str]:
        """Brings journals to the store's heads; yields the id of each that is finished."""
        if ids:
            self._known.update(self._store.journals(self._transaction, self._place, ids))
        for id in ids:
            before = self.counts["appended"]
            if not self._catch_up(Key(id, self._place[0]), most_events):
                return
            yield id
            most_events -= self.counts["appended"] - before
            if most_events <= 0:
                return

    def save(self) -> None:
        self._store.save(self._transaction, self._place, self._changed)

    def _take(self, key: Key, record: LogRecord, *, is_in_store: bool) -> None:
        topic, partition = self._place
        action = action_of(record, topic, partition)
        if action is None or isinstance(action, Mark):
            return
        if is_in_store and self._known.get(key.id) is None:
            while not self._catch_up(key, SCAN_EVENTS):
                pass
        journal = self._known.get(key.id)
        if journal is not None and record.offset <= journal.applied:
            return
        events = events_of(action, record, topic, partition) if isinstance(action, Append) else ()
        judged = judge(JournalFold(key, partition), journal, action, events, record.offset)
        for change in judged.changes:
            self._call(change)
        if judged.journal is not journal:
            self._set(key.id, judged.journal)

    def _catch_up(self, key: Key, most_events: int) -> bool:
        """Brings a journal to the store's head; whether it is there, or has more events than these."""
        journal = self._known.get(key.id)
        try:
            head, applied = self._settled_head(key)
        except DamagedRecordError as error:
            self._damaged(error)
            self._set(key.id, journal or ProjectedJournal(None, applied=self._replicated()))
            return True
        plan = plan_catch_up(journal, head)
        if plan.is_purged:
            self._call(Purged(key))
        if plan.deleted_to is not None:
            self._call(Deleted(key, plan.deleted_to))
        if head is None:
            self._set(key.id, ProjectedJournal(None, applied=applied))
            return True
        life, last = life_of(head), None
        if plan.from_seq_nr is not None:
            last = self._read_events(key, head, plan.from_seq_nr, most_events)
        if life is not None and last is not None:
            self._set(key.id, ProjectedJournal(replace(life, seq_nr=last), head.record_id))
            return False
        self._set(key.id, ProjectedJournal(life, head.record_id, applied))
        return True

    def _read_events(self, key: Key, head: JournalHead, from_seq_nr: SeqNr, most: int) -> SeqNr | None:
        """Shows events of the store; returns the last number if there may be more, None if that was all."""
        count, last = 0, None
        with closing(self._journals.read(key, head, from_seq_nr)) as records:
            for record in records:
                self._call(Appended(key, record))
                count += 1
                if count >= most:
                    last = record.seq_nr
                    break
        now = self._journals.pointer(key)
        if now is None or (now.record_id, now.delete_to) != (head.record_id, head.delete_to):
            raise JournalChangedError(f"{key} was deleted or purged while it was read.", hint="It is read again.")
        return last

    def _settled_head(self, key: Key) -> tuple[JournalHead | None, int]:
        """The store's head and the offset that it includes.

        The offset of a journal that is absent is the partition's, if that was the same before and after: then the
        journal is absent at this very offset.
        """
        for _ in range(SETTLE_ATTEMPTS):
            before = self._replicated()
            head = self._journals.pointer(key)
            if head is not None:
                return head, head.partition_offset.offset
            if self._replicated() == before:
                return None, before
        raise TransientError(f"{key} is absent, and replication is too fast to see since when.", hint="It is retried.")

    def _replicated(self) -> int:
        found = self._journals.offset(*self._place)
        return -1 if found is None else found

    def _set(self, id: str, journal: ProjectedJournal | None) -> None:
        self._known[id] = self._changed[id] = journal

    def _call(self, change: Change) -> None:
        if isinstance(change, Appended):
            try:
                opened = self._open_record(change.key, change.record)
            except DamagedRecordError as error:
                self._damaged(error)  # the event alone is skipped: by its number the next ones are judged
                return
            if opened is None:
                return
            change = replace(change, record=opened)
        if not self._projection.wants(change):
            return
        if isinstance(change, Appended) and self._projection.events is not None:
            change = replace(change, event=self._projection.events.decode(change.key, change.record.event))
        self._projection.handler(self._transaction, change)
        self.counts[type(change).__name__.lower()] += 1

    def _damaged(self, error: DamagedRecordError) -> None:
        if self._projection.on_damaged is None:
            raise error
        self._projection.on_damaged(error)
