"""Journals as applications use them: append events, read them back, delete, purge.

Everything here works while replication is behind or down, and for any number of readers. A journal may have several
writers: `expected_seq_nr` makes an append count only if the journal is in the state that its writer has seen. The
condition travels in the record, and the order of the log decides (`life.py`). So the answer of Kafka is not enough: the
writer folds what came between its mark and its record, and thus learns whether the record counts.

What may be repeated after an error, when it is not known whether the record was written:

| what          | how                       | what follows                                                          |
|---|---|---|
| append        | with the same `append_id` | it counts once; with `expected_seq_nr` the first one's place is       |
|               |                           | returned. A purge in between forgets it, and it begins a journal. A   |
|               |                           | delete of its events does too: then it conflicts with itself          |
| delete, purge | with the same `life`      | it does nothing in another life of the journal. Without `life` the    |
|               |                           | call means the life that it finds                                     |
| mark          |                           | it changes nothing                                                    |

Each verb reports its latency, its result and its events to `JournalClient.meter`: a delete, which looks up the pointer,
is one delete; a read takes as long as its reader waited for it, not what the reader did in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from time import perf_counter
from types import TracebackType
from typing import Final, NamedTuple, Self
from uuid import UUID, uuid4

from inorder.engines.measures import SILENT, Meter
from inorder.journal.action import NOT_BEGUN, Action, Append, Condition, Delete, Mark, Purge, check_expire_after
from inorder.journal.codec import (
    RecordSender,
    action_of,
    action_record,
    append_record,
    events_of,
    with_condition,
)
from inorder.journal.entity import (
    ATTEMPTS,
    AppendOptions,
    DecideAgain,
    Decided,
    Entity,
    Recovered,
    State,
    Update,
    Updated,
    recover_state,
)
from inorder.journal.keys import DataKey, JournalKeys, key_id_of
from inorder.journal.life import Fork, JournalFold, Life
from inorder.journal.measuring import SlowCalls, timed_stream
from inorder.journal.reading.reader import JournalReader, Moment, wait_for_place
from inorder.journal.snapshots import JournalSnapshots, MarkedMoment, Recovery, SnapshotHistory
from inorder.journal.stores.ports import FORMER, EventualJournal, JournalLog, Window
from inorder.model.deadline import Deadline
from inorder.model.errors import (
    ConfigurationError,
    DamagedRecordError,
    DeadlineError,
    GuaranteeError,
    InorderError,
    RecordsLostError,
    SeqNrConflictError,
    ShreddedError,
    TransientError,
    UnknownOutcomeError,
    ValidationError,
)
from inorder.model.journal import (
    ANY_SNAPSHOT,
    MAX_SEQ_NR,
    MIN_SEQ_NR,
    DeleteTo,
    Event,
    EventRecord,
    Key,
    PartitionOffset,
    Payload,
    PayloadMetadata,
    PayloadType,
    RecordMetadata,
    SeqNr,
    SeqRange,
    Snapshot,
    SnapshotCriteria,
    check_contiguous,
    check_seq_nr,
)
from inorder.model.message import Limits, Record

log = logging.getLogger("inorder.journal")

_NO_HEADERS: Mapping[str, str] = {}


class JournalClient:
    """All journals of a log and a store; safe for use by many threads."""

    def __init__(
        self,
        log: JournalLog,
        store: EventualJournal,
        reader: JournalReader,
        *,
        sender: RecordSender = RecordSender(),  # noqa: B008 - a tuple
        limits: Limits = Limits(),  # noqa: B008 - frozen
        snapshot_history: SnapshotHistory | None = None,
        keys: JournalKeys | None = None,
        meter: Meter = SILENT,
        timeout_seconds: float = 30.0,
        slow_calls: SlowCalls | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.log = log
        self.store = store
        self.reader = reader
        self.sender = sender
        self.limits = limits
        self.snapshot_history = snapshot_history
        self.keys = keys
        self.meter = meter
        self.now = now
        self.slow_calls = slow_calls
        self._clock = clock
        self._timeout = timeout_seconds

    def journal(self, key: Key) -> Journal:
        """The journal of a key; nothing is read or written yet."""
        return Journal(self, key)

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all replicated journals of a topic, parked ones included, in any order."""
        return self.store.ids(topic)

    def update(
        self,
        key: Key,
        entity: Entity[State],
        decide: Callable[[State], Decided],
        *,
        attempts: int = ATTEMPTS,
        expire_after: timedelta | None = None,
        metadata: object = None,
        data: object = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> Updated[State]:
        """Recovers an entity, calls `decide` with its state, and appends the events that it returns.

        They count only if the journal is still what the decision was based on. If another writer came first, the state
        is recovered and decided on again, so `decide` may be called several times, up to `attempts`; then
        `UpdateConflictError` is raised. The rest is as for `Journal.append`. See `entity.py`.
        """
        about = AppendOptions(expire_after, metadata, data, headers)
        update = Update(self.journal(key), entity, attempts=attempts, about=about)
        while True:
            step: Recovered[State] | Updated[State] | DecideAgain = update.recover()
            if isinstance(step, Recovered):
                step = update.append(step, decide(step.state))
            if isinstance(step, Updated):
                return step
            if isinstance(step, DecideAgain):
                time.sleep(step.pause_seconds)

    def state(self, key: Key, entity: Entity[State]) -> State:
        """The state of an entity at this moment; `entity.initial` if it has no journal."""
        return recover_state(self.journal(key), entity).state

    def open_record(self, key: Key, record: EventRecord) -> EventRecord | None:
        """An event as it was written; None if its key is destroyed, because its journal was purged (`keys.py`)."""
        try:
            return record if self.keys is None else self.keys.open_event(key, record)
        except ShreddedError:
            return None

    def send(self, key: Key, action: Action) -> Future[PartitionOffset]:
        """Sends an action that carries no events."""
        return self.log.send(action_record(key, action, self.now(), self.limits))

    def moment(self, key: Key, from_seq_nr: SeqNr = MAX_SEQ_NR) -> MarkedMoment:
        """Sends a mark and reads the journal there.

        A store without transactions that is removing a journal shows nothing, while the log may still have the last
        events of it. They begin above 1. The purge was in the log before it was in the store, so a second mark is
        after it.
        """
        marked = self._moment(key, from_seq_nr)
        return self._moment(key, from_seq_nr) if marked.moment.plan.is_headless else marked

    def _moment(self, key: Key, from_seq_nr: SeqNr) -> MarkedMoment:
        mark = self.send(key, Mark(str(uuid4()), *self.sender))
        try:
            moment = self.reader.moment(key, mark, from_seq_nr)
        except UnknownOutcomeError as error:
            hint = "It was a mark, which changes nothing: repeat the call."
            raise TransientError(error.message, hint=hint) from error
        return MarkedMoment(mark.result(), moment)

    def deadline(self, what: str) -> Deadline:
        return Deadline(self._clock, self._timeout, what)

    def wait_for(self, place: Future[PartitionOffset], what: str, repeat: str) -> PartitionOffset:
        """Waits for the place of a record that was sent; `UnknownOutcomeError` if no answer comes."""
        try:
            return wait_for_place(place, self.deadline(what))
        except (DeadlineError, UnknownOutcomeError) as error:
            raise _unknown_outcome(error, repeat) from error

    def close(self) -> None:
        """Sends what is waiting and releases all connections; may be called twice."""
        self.log.close()
        self.store.close()
        if self.snapshot_history is not None:
            self.snapshot_history.store.close()
        if self.keys is not None:
            self.keys.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Journal:
    def __init__(self, journals: JournalClient, key: Key) -> None:
        self._journals = journals
        self.key = key

    def append(
        self,
        events: Iterable[Event],
        *,
        expected_seq_nr: SeqNr | None = None,
        append_id: str | None = None,
        allow_gaps: bool = False,
        expire_after: timedelta | None = None,
        metadata: object = None,
        data: object = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> PartitionOffset:
        """Appends events with ascending numbers, all or none of them; returns once all Kafka replicas have them.

        `expected_seq_nr` is the number at which the journal must end, 0 for an empty one. If the journal ends elsewhere
        when the record arrives, none of its events counts, and `SeqNrConflictError` is raised. Without it, none counts
        if the first number is taken, and no error says so. `append_id` names the append: repeat it with the same id,
        and it counts once. The numbers of an append are contiguous, and follow `expected_seq_nr` where that is given;
        `allow_gaps` permits others. `expire_after` lets the journal be purged that long after its last append.
        `metadata` and `data` are JSON of the application's own, beside the action and with the events.
        """
        events = list(events)
        with self._measured("append", len(events)):
            id = uuid4().hex if append_id is None else append_id
            about = AppendOptions(expire_after, metadata, data, headers)
            record = self._encode(events, id, about)
            if not allow_gaps:
                check_contiguous(events)
            if expected_seq_nr is None:
                return self._send_append(record, id) if self._journals.keys is None else self._seal(events, id, about)
            if expected_seq_nr != 0:
                check_seq_nr(expected_seq_nr, "expected_seq_nr")
            marked = self._journals.moment(self.key)
            if (marked.moment.plan.pointer or 0) != expected_seq_nr:
                repeated = None if append_id is None else self._find_append(events[0].seq_nr, append_id)
                if repeated is None:
                    raise self._conflict_error(expected_seq_nr, marked.moment.plan.pointer, "nothing was written")
                return repeated
            if not allow_gaps:
                check_contiguous(events, expected_seq_nr)
            return self._append_on(marked, record, events, id, about).place

    @property
    def waits(self) -> bool:
        """Whether every append must wait for what was before it, so that `append_later` cannot be used."""
        return self._journals.keys is not None

    def append_on(
        self, marked: MarkedMoment, events: Sequence[Event], append_id: str, about: AppendOptions
    ) -> CountedAppend:
        """Appends events that count only if they follow just what was read at a mark: this number of this life.

        Raises `SeqNrConflictError` if they do not. It may be called again with the same arguments, and counts once.
        """
        with self._measured("append", len(events)):
            record = self._encode(events, append_id, about)
            check_contiguous(events, marked.moment.plan.pointer or 0)
            return self._append_on(marked, record, events, append_id, about)

    def _append_on(
        self, marked: MarkedMoment, record: Record, events: Sequence[Event], append_id: str, about: AppendOptions
    ) -> CountedAppend:
        end = marked.moment.plan.pointer or 0
        used = self._take_key(marked)
        if used is not None:
            record = self._encode_sealed(used, events, append_id, about)
        place, outcome = self._send_on(marked, record, events, append_id, end)
        self._settle_key(used, self._fold(marked).name(outcome.life), outcome.place)
        if outcome.place is None:
            pointer = None if outcome.life is None else outcome.life.seq_nr
            raise self._conflict_error(end, pointer, f"the append at {place} does not count")
        return CountedAppend(outcome.place, self._fold(marked).name(outcome.life))

    def _send_on(
        self, marked: MarkedMoment, record: Record, events: Sequence[Event], append_id: str, end: SeqNr | None
    ) -> tuple[PartitionOffset, _Outcome]:
        """Sends an append to the life at a mark, and to its end if that is given; says whether it counts."""
        condition = Condition(self._fold(marked).name(marked.moment.plan.life), end)
        place = self._send_append(with_condition(record, condition), append_id)
        numbers = SeqRange(events[0].seq_nr, events[-1].seq_nr)
        action = Append(numbers, PayloadType.JSON, id=append_id, condition=condition)
        try:
            return place, self._judge(marked, place, action)
        except UnknownOutcomeError:
            raise
        except TransientError as error:
            text = f"The append to {self.key} is written at {place}; whether it counts is not known: {error.message}"
            raise UnknownOutcomeError(text, hint=_repeat_append(append_id)) from error

    def _seal(self, events: Sequence[Event], append_id: str, about: AppendOptions) -> PartitionOffset:
        """Appends sealed events to whichever life there is: if a purge comes between, to the next."""
        deadline = self._journals.deadline(f"Appending to {self.key}")
        while True:
            marked = self._journals.moment(self.key)
            used = self._take_key(marked)
            assert used is not None  # noqa: S101 - the caller checks
            record = self._encode_sealed(used, events, append_id, about)
            place, outcome = self._send_on(marked, record, events, append_id, None)
            fold = self._fold(marked)
            self._settle_key(used, fold.name(outcome.life), outcome.place)
            if outcome.place is not None:
                return outcome.place
            if fold.name(outcome.life) == fold.name(marked.moment.plan.life):
                self._report_forks(events, place, 0 if outcome.life is None else outcome.life.end)
                return place
            deadline.remaining()

    def _report_forks(self, events: Sequence[Event], place: PartitionOffset, end: SeqNr) -> None:
        """Of an append whose number is taken: readers take it for one with a condition, and report nothing."""
        now = self._journals.now()
        for event in events:
            log_fork(self.key, Fork(EventRecord(event, now, place), end, event.seq_nr == end))

    def _take_key(self, marked: MarkedMoment) -> DataKey | None:
        if self._journals.keys is None:
            return None
        plan, seen = marked.moment.plan, marked.mark
        # The store may have moved on since the mark: what it shows then began after it.
        if plan.head is not None and plan.head.partition_offset.partition == seen.partition:
            seen = max(seen, plan.head.partition_offset)
        return self._journals.keys.take(self.key, self._fold(marked).name(plan.life), seen)

    def _settle_key(self, used: DataKey | None, life: UUID | None, place: PartitionOffset | None) -> None:
        """After an append that counts at a place, or is void.

        It may fail: the key opens what it seals without it, and a purge finds it by its record.
        """
        if used is None or self._journals.keys is None:
            return
        with suppress(InorderError):
            if place is None:
                self._journals.keys.drop(self.key, used)
            else:
                self._journals.keys.keep(self.key, used, life, place)

    def _encode_sealed(self, used: DataKey, events: Sequence[Event], append_id: str, about: AppendOptions) -> Record:
        assert self._journals.keys is not None  # noqa: S101 - the caller has a key
        try:
            return self._encode(self._journals.keys.seal_events(self.key, used, events), append_id, about)
        except ValidationError:
            self._journals.keys.drop(self.key, used)
            raise

    def append_later(
        self,
        events: Iterable[Event],
        *,
        append_id: str | None = None,
        allow_gaps: bool = False,
        expire_after: timedelta | None = None,
        metadata: object = None,
        data: object = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> Future[PartitionOffset]:
        """Appends without waiting; the future completes once all Kafka replicas have the events.

        Several appends may be in flight at once. Not with `journal.keys`: a key belongs to a life, which must be read.
        """
        if self.waits:
            raise ConfigurationError(
                "append_later cannot be used with journal.keys, whose appends wait for what was before them.",
                hint="Use append.",
            )
        events, began = list(events), perf_counter()
        try:
            id = uuid4().hex if append_id is None else append_id
            record = self._encode(events, id, AppendOptions(expire_after, metadata, data, headers))
            if not allow_gaps:
                check_contiguous(events)
            place = self._journals.log.send(record)
        except BaseException:
            self._report("append", perf_counter() - began, is_success=False)
            raise

        answer: Future[PartitionOffset] = Future()
        answer.set_running_or_notify_cancel()  # a record that is handed over cannot be withdrawn

        def report(place: Future[PartitionOffset]) -> None:
            error = place.exception()
            if isinstance(error, UnknownOutcomeError):
                error = _unknown_outcome(error, _repeat_append(id))
            if error is None:
                answer.set_result(place.result())
            else:
                answer.set_exception(error)
            is_success = error is None
            self._report("append", perf_counter() - began, len(events) if is_success else 0, is_success=is_success)

        place.add_done_callback(report)
        return answer

    def read(self, from_seq_nr: SeqNr = MIN_SEQ_NR, to: SeqNr = MAX_SEQ_NR) -> Iterator[EventRecord]:
        """The events from one number to another, as the journal is at this moment, in order.

        Events are streamed and never held all at once. Raises `JournalChangedError` if the journal is truncated
        meanwhile.
        """
        began = perf_counter()
        try:
            numbers = SeqRange(check_seq_nr(from_seq_nr, "from_seq_nr"), check_seq_nr(to, "to"))
            records = self._open_events(self._journals.reader.events(self._moment(numbers.first), numbers))
        except BaseException:
            self._report("read", perf_counter() - began, is_success=False)
            raise
        if self._journals.meter is SILENT and self._journals.slow_calls is None:
            return records

        def report(seconds: float, events: int, is_success: bool) -> None:
            self._report("read", seconds, events, is_success=is_success)

        return timed_stream(records, report, spent=perf_counter() - began)

    def pointer(self) -> SeqNr | None:
        """The last number of the journal, even if it is deleted; None if there is no journal, or it is purged."""
        with self._measured("pointer"):
            return self._moment().plan.pointer

    def life(self) -> UUID | None:
        """Names the life of the journal, which the next purge ends; None if its name is not known.

        A journal without an event has a name too: `NOT_BEGUN`.
        """
        marked = self._journals.moment(self.key)
        return self._fold(marked).name(marked.moment.plan.life)

    def delete(self, to: DeleteTo = MAX_SEQ_NR, *, life: UUID | None = None) -> PartitionOffset | None:
        """Deletes the events up to a number, but none that are appended later; None if there is no journal.

        It means the life that `life` names, else the one that it finds, and does nothing in another.
        """
        with self._measured("delete"):
            check_seq_nr(to, "to")
            marked = self._journals.moment(self.key)
            end = marked.moment.plan.pointer
            if end is None:
                return None
            condition = self._name_life(marked, life)
            return self._send(Delete(min(to, end), *self._journals.sender, condition), "Deleting from")

    def purge(self, *, life: UUID | None = None) -> PartitionOffset:
        """Removes the journal and everything known about it; the next append begins a new one.

        It means the life that `life` names, else the one that it finds, and does nothing in another. Of a journal that
        cannot be read, because it is damaged or its store is away, it removes whatever there is. With `journal.keys` it
        then destroys the keys of that life. After a crash before that, or if the key database is away, the journal is
        purged and its keys are left: purge it again, with the same `life`.
        """
        with self._measured("purge"):
            marked = None
            try:
                marked = self._journals.moment(self.key)
                condition = self._name_life(marked, life)
            except (DamagedRecordError, RecordsLostError, ConfigurationError, TransientError):
                condition = None if life is None else Condition(life)
            place = self._send(Purge(*self._journals.sender, condition), "Purging")
            self._shred(marked, place, life)
            return place

    def purge_unchanged(self, marked: MarkedMoment) -> bool:
        """Removes the journal if nothing was appended since a mark; returns whether it did."""
        plan = marked.moment.plan
        with self._measured("purge"):
            condition = Condition(self._fold(marked).name(plan.life), plan.pointer or 0, marked.mark)
            purge = Purge(*self._journals.sender, condition)
            place = self._send(purge, "Purging")
            is_purged = self._judge(marked, place, purge).place is not None
            if is_purged:
                self._shred(marked, place, None)
            return is_purged

    def _shred(self, marked: MarkedMoment | None, place: PartitionOffset, life: UUID | None) -> None:
        """Destroys keys after a purge at a place, which means the life that is given, or the one at the mark."""
        keys = self._journals.keys
        if keys is None:
            return
        name = None if marked is None else self._fold(marked).name(marked.moment.plan.life)
        spared = name if life is not None and name not in (None, NOT_BEGUN, life) else None
        # Without a mark and a life, the purge has no condition, and nothing is left at its place.
        before = marked.mark if marked is not None else place if life is None else None
        try:
            keys.shred(self.key, life or name, before, spared, self._find_sealed)
        except InorderError as error:
            meant = life or name
            again = "" if meant in (None, NOT_BEGUN) else f", with life={meant!r}"
            raise TransientError(
                f"The journal {self.key} is purged at {place}, but its keys are not destroyed: {error.message}",
                hint=f"Repeat the purge{again}.",
            ) from error

    def _find_sealed(self, after: int, before: PartitionOffset) -> set[UUID]:
        """The ids of the keys of this journal's appends between two offsets, as far as the log has them."""
        if after + 1 >= before.offset:
            return set()
        window = Window(self.key.topic, before.partition, after + 1, before.offset - 1)
        deadline = self._journals.deadline(f"Looking for keys of {self.key} in {window}")
        found: set[UUID | None] = set()
        try:
            with closing(self._journals.log.records(window, self.key.id.encode(), deadline)) as records:
                for record in records:
                    with suppress(DamagedRecordError):
                        action = action_of(record, window.topic, window.partition)
                        if isinstance(action, Append):
                            events = events_of(action, record, window.topic, window.partition)
                            found.update(key_id_of(each.event.payload) for each in events)
        except RecordsLostError as lost:
            return self._find_sealed(lost.first - 1, before)
        return {id for id in found if id is not None}

    def mark(self, id: str | None = None) -> PartitionOffset:
        """Writes a mark, which changes nothing; who has read up to its place knows everything written before it."""
        with self._measured("mark"):
            return self._send(self._mark(id), "Marking")

    def save_snapshot(
        self, seq_nr: SeqNr, payload: Payload = None, *, metadata: object = None, life: UUID | None = None
    ) -> Snapshot | None:
        """Saves the state after the events up to a number in the store; replaces a snapshot of the same number.

        Raises `ValidationError` for a number above the journal's end. `life` names the life whose state it is; in
        another `JournalChangedError` is raised. Returns None, and writes nothing, if the journal already has as many
        newer snapshots as it keeps (`journal.snapshots`). Saving again does no harm.
        """
        now = self._journals.now()
        # Not all stores keep more than milliseconds.
        time = now.replace(microsecond=now.microsecond // 1000 * 1000)
        snapshot = Snapshot(seq_nr, payload, time, metadata, *self._journals.sender)
        with self._measured("save_snapshot"):
            sealed = snapshot
            if self._journals.keys is not None:
                sealed, life = self._seal_snapshot(self._journals.keys, snapshot, life)
            return snapshot if self._snapshots.save(sealed, life) else None

    def _seal_snapshot(self, keys: JournalKeys, snapshot: Snapshot, life: UUID | None) -> tuple[Snapshot, UUID | None]:
        """The snapshot, and the life that it can be saved in: the one whose key it is sealed with."""
        marked = self._journals.moment(self.key)
        name = self._fold(marked).name(marked.moment.plan.life)
        used = None if name == NOT_BEGUN or life not in (None, name) else self._take_key(marked)
        return (snapshot, life or name) if used is None else (keys.seal_snapshot(self.key, used, snapshot), name)

    def snapshot(self, criteria: SnapshotCriteria = ANY_SNAPSHOT) -> Snapshot | None:
        """The latest snapshot that fits, by number, then by time; never one taken before a purge."""
        with self._measured("snapshot"):
            found = self._snapshots.latest(criteria)
            return None if found is None else self._open_snapshot(found)

    def snapshots(self) -> list[Snapshot]:
        """All snapshots, the latest first."""
        with self._measured("snapshots"):
            return [self._open_snapshot(each) for each in self._snapshots.all()]

    def delete_snapshots(self, criteria: SnapshotCriteria = ANY_SNAPSHOT) -> int:
        """Deletes the snapshots that fit, and no event; returns how many there were."""
        with self._measured("delete_snapshots"):
            return self._snapshots.delete(criteria)

    def recover(self, criteria: SnapshotCriteria = ANY_SNAPSHOT) -> Recovery:
        """The latest snapshot that fits and the events after it, as a stream; all events if none fits.

        Raises `SnapshotTooOldError` if events after the snapshot are deleted: the rest would have a hole.
        """
        with self._measured("recover"):
            found = self._snapshots.recover(criteria)
            if self._journals.keys is None:
                return found
            snapshot = None if found.snapshot is None else self._open_snapshot(found.snapshot)
            return Recovery(snapshot, self._open_events(found.events), found.marked)

    def _open_events(self, records: Iterator[EventRecord]) -> Iterator[EventRecord]:
        keys = self._journals.keys
        return records if keys is None else keys.open_events(self.key, records)

    def _open_snapshot(self, snapshot: Snapshot) -> Snapshot:
        keys = self._journals.keys
        return snapshot if keys is None else keys.open_snapshot(self.key, snapshot)

    @property
    def _snapshots(self) -> JournalSnapshots:
        journals = self._journals
        if journals.snapshot_history is None:
            raise ConfigurationError(
                "These journals have no snapshot store.", hint="Pass `snapshot_history` to `JournalClient`."
            )
        return JournalSnapshots(
            self.key, journals.snapshot_history, self._mark_moment, journals.reader, journals.deadline
        )

    def _moment(self, from_seq_nr: SeqNr = MAX_SEQ_NR) -> Moment:
        return self._mark_moment(from_seq_nr).moment

    def _mark_moment(self, from_seq_nr: SeqNr = MAX_SEQ_NR) -> MarkedMoment:
        return self._journals.moment(self.key, from_seq_nr)

    def _mark(self, id: str | None = None) -> Mark:
        return Mark(str(uuid4()) if id is None else id, *self._journals.sender)

    def _send(self, action: Delete | Purge | Mark, what: str) -> PartitionOffset:
        condition = None if isinstance(action, Mark) else action.condition
        repeat = "Read the journal before you repeat it."
        if isinstance(action, Mark):
            repeat = "Repeating it does no harm."
        elif condition is not None and condition.life is not None:
            repeat = f"Repeat it with life={condition.life!r}: it does nothing in another life of the journal."
        return self._journals.wait_for(self._journals.send(self.key, action), f"{what} {self.key}", repeat)

    def _send_append(self, record: Record, append_id: str) -> PartitionOffset:
        place = self._journals.log.send(record)
        return self._journals.wait_for(place, f"Appending to {self.key}", _repeat_append(append_id))

    def _fold(self, marked: MarkedMoment) -> JournalFold:
        return JournalFold(self.key, marked.mark.partition)

    def _name_life(self, marked: MarkedMoment, life: UUID | None) -> Condition | None:
        name = self._fold(marked).name(marked.moment.plan.life)
        if life is not None and life != name:
            return Condition(life)
        return None if name is None else Condition(name, seen=marked.mark)

    def _judge(self, marked: MarkedMoment, place: PartitionOffset, action: Append | Purge) -> _Outcome:
        """Whether an action at a place counts, given the journal at a mark before it."""
        mark, moment = marked
        if mark.partition != place.partition:
            # Partitions were added in between; the offsets cannot be compared.
            raise UnknownOutcomeError(
                f"The record of {self.key} is at {place}, its mark at {mark}: whether it counts is not known.",
                hint="Do not add partitions to a topic in use.",
            )
        fold, life = self._fold(marked), moment.plan.life
        window = Window(self.key.topic, place.partition, moment.known_to + 1, place.offset - 1)
        repeated: _Outcome | None = None
        for offset, found in self._actions(window) if place.offset - mark.offset > 1 else ():
            is_same = isinstance(action, Append) and isinstance(found, Append) and found.id == action.id
            is_repeated = is_same and fold.counts(life, found)
            life = fold.after(life, found, offset)
            if is_repeated:
                repeated = _Outcome(PartitionOffset(place.partition, offset), life)
        if fold.counts(life, action):
            return _Outcome(place, fold.apply(life, action, place.offset))
        return repeated or _Outcome(None, life)

    def _find_append(self, first: SeqNr, append_id: str) -> PartitionOffset | None:
        """The place of the append with an id, if it counts and begins with a number.

        The journal has the place of each event, and the log the record with the id, unless that was in a former topic.
        """
        moment = self._journals.moment(self.key, first).moment
        with closing(self._journals.reader.events(moment, SeqRange(first, first))) as events:
            place = next((event.partition_offset for event in events), None)
        if place is None or place.partition >= FORMER:
            return None
        try:
            window = Window(self.key.topic, place.partition, place.offset, place.offset)
            [(_, action)] = self._actions(window)
        except RecordsLostError:
            return None
        return place if isinstance(action, Append) and action.id == append_id else None

    def _actions(self, window: Window) -> Iterator[tuple[int, Action]]:
        deadline = self._journals.deadline(f"Reading {self.key} back from {window}")
        seen = -1
        with closing(self._journals.log.records(window, self.key.id.encode(), deadline)) as records:
            for record in records:
                action = action_of(record, window.topic, window.partition) if record.offset > seen else None
                seen = record.offset
                if action is not None:
                    yield record.offset, action

    def _conflict_error(self, expected: SeqNr, found: SeqNr | None, outcome: str) -> SeqNrConflictError:
        is_other_life = (found or 0) == expected
        what = "was purged meanwhile" if is_other_life else f"ends at {found or 0}, not at {expected}"
        return SeqNrConflictError(
            f"The journal {self.key} {what}; {outcome}.",
            hint="Read what was appended meanwhile, decide again, and append after that.",
            expected=expected,
            found=found,
        )

    def _encode(
        self,
        events: Sequence[Event],
        append_id: str,
        about: AppendOptions,
    ) -> Record:
        metadata = RecordMetadata(about.metadata, PayloadMetadata(check_expire_after(about.expire_after), about.data))
        journals, began = self._journals, perf_counter()
        sender, headers, limits = journals.sender, about.headers, journals.limits
        record = append_record(self.key, events, journals.now(), sender, metadata, headers, limits, append_id=append_id)
        kind = "json" if (record.value or b"").startswith(b"{") else "binary"
        journals.meter.took("journal_encode", perf_counter() - began, kind)
        return record

    @contextmanager
    def _measured(self, verb: str, events: int | None = None) -> Iterator[None]:
        began, is_success = perf_counter(), False
        try:
            yield
            is_success = True
        finally:
            self._report(verb, perf_counter() - began, events if is_success else None, is_success=is_success)

    def _report(self, verb: str, seconds: float, events: int | None = None, *, is_success: bool) -> None:
        meter, topic = self._journals.meter, self.key.topic
        if self._journals.slow_calls is not None:
            self._journals.slow_calls.report(verb, topic, seconds)
        meter.took("journal_latency", seconds, topic, verb)
        meter.add("journal_results", 1, topic, verb, "success" if is_success else "failure")
        if events is not None:
            meter.add("journal_events", events, topic, verb)


def log_fork(key: Key, fork: Fork) -> None:
    """Reports an event that does not count; see `life.py`."""
    log.warning("journal.fork", extra={"journal": str(key), "fork": str(fork), "is_proven": fork.is_proven})


def _unknown_outcome(error: InorderError, repeat: str) -> UnknownOutcomeError:
    return UnknownOutcomeError(error.message, hint=f"It may have been written. {repeat}")


def _repeat_append(append_id: str) -> str:
    return f"Repeat it with append_id={append_id!r}: it counts once, unless the journal is purged in between."


class CountedAppend(NamedTuple):
    """The place of an append that counts, and the name of the life that has it; None if that is not known."""

    place: PartitionOffset
    life: UUID | None


class _Outcome(NamedTuple):
    """The place of the record that counts, and the journal after it; None if none does, and the journal before it."""

    place: PartitionOffset | None
    life: Life | None


MAX_EVENTS: Final = 500
MAX_BYTES: Final = 256 * 1024
"""Limits of one append: it is one Kafka record, and brokers refuse large ones."""


def append_missing(journals: JournalClient, key: Key, events: Sequence[Event]) -> int:
    """Appends those events, in ascending order, that the journal lacks; returns how many.

    A task that is run again brings the events that it brought before, and the journal's end says how far it got. What
    is at or below the end must be in the journal. If it is not, another writer has appended higher numbers first, and
    since a journal never goes back the event is lost: `GuaranteeError`. Numbers below the one that a journal began with
    count as deleted (`life.py`), so there a lost event cannot be detected.
    """
    life = journals.moment(key).moment.plan.life
    ahead = [event for event in events if event.seq_nr > (life.seq_nr if life else 0)]
    _require_present(journals, key, life, events[: len(events) - len(ahead)])
    for some in split_events(ahead):
        # Waits, so that nothing overtakes an append that fails. The numbers are the caller's, gaps included.
        journals.journal(key).append(some, allow_gaps=True)
    return len(ahead)


def split_events(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """The events in chunks within the limits of one append; a larger event is a chunk of its own."""
    first = size = 0
    for index, event in enumerate(events):
        length = len(event.payload) if isinstance(event.payload, bytes | str) else 0
        if index > first and (size + length > MAX_BYTES or index - first >= MAX_EVENTS):
            yield events[first:index]
            first, size = index, 0
        size += length
    if events:
        yield events[first:]


def _require_present(journals: JournalClient, key: Key, life: Life | None, events: Sequence[Event]) -> None:
    wanted = [event.seq_nr for event in events if life is not None and event.seq_nr > life.delete_to]
    if not wanted:
        return
    found = {record.seq_nr for record in journals.journal(key).read(wanted[0], wanted[-1])}
    lost = [number for number in wanted if number not in found]
    if lost:
        raise GuaranteeError(
            f"Event {lost[0]} comes too late: the journal {key} is past it and does not have it.",
            hint="Another writer appended higher numbers first; a journal has one writer, which appends in order.",
        )
