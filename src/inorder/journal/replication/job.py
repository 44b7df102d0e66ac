"""The job `replicate`: slices of journal topics in, journals in a store out, exactly once in effect.

An engine reads slices from Kafka and calls the worker for each. What makes the effect exact is here and in the store,
nothing in the engine.

**What is authoritative.** The topic; the store is a copy of it. The partition's row in `pointer2` says how far the copy
goes: every record up to its offset is in the store, in quarantine, or not of a journal.

**What is only a hint.** Spark's checkpoint, the offsets that an engine planned, which task is believed to own a
partition, the driver's memory of the last offset, the figures of an outcome after a lost answer, every clock.

One slice:

    lock the offset       PostgreSQL: the row is locked. Cassandra: it is remembered, and the largest one wins
    drop what is applied  and raise `GuaranteeError` if the offset is below one that was seen committed
    group by journal      records that are not of journals count as applied
    decide what is parked a record that cannot be read parks its journal; the others go on (`actions.py`)
    collapse, transition  fewer writes for the same result; (head, action) → statements (`transition.py`)
    carry out             events before the head when they are added, the head first when they are deleted
    quarantine            what is parked
    move the offset       last of all

Invariants:

1. For every journal that is not parked the store shows the fold of its actions up to the offset (`life.py`). Readers
   of a parked one get an error, and the store shows the fold up to its first damaged record.
2. The offset never moves back. It moves after everything that it covers is written.
3. A slice may be applied again, whole or in other chunks, by any process at any time: offset and heads drop what they
   include, and in Cassandra every cell has the time of its action, so that what is older loses.
4. A head never falls, and a late append of a former life does not bring a purged journal back.

Failure table:

| what happens                              | PostgreSQL                        | Cassandra                           |
|---|---|---|
| crash after events, before the head       | rolled back, read again           | rows that no head shows; written    |
|                                           |                                   | again, the same cells and times     |
| crash after the head, before the offset   | rolled back, read again           | the head drops what it includes     |
| crash between the steps of a purge        | rolled back                       | its head is hidden first and        |
|                                           |                                   | deleted last; the purge is repeated |
| answer to the commit is lost              | tried again: the lock waits until | tried again: the offset shows it,   |
|                                           | the old session is gone, then the | and moving it once more does no     |
|                                           | offset shows it                   | harm                                |
| two replicators, or one that was paused   | one waits for the lock, then      | both write the same cells; the      |
|                                           | drops what is applied             | larger offset wins, and the other   |
|                                           |                                   | reads it next time and drops        |
| paused within a transaction               | the server ends the session       | its cells are older than what came  |
|                                           |                                   | since, and lose                     |
| replay of any range in any chunking       | nothing changes                   | nothing changes                     |
| the store is restored from a backup       | `GuaranteeError` in a running job; a new start replays from the offset  |
| a record cannot be read                   | its journal is parked, all others go on                                 |
| the store refuses a record, or applying a | the records of the slice are applied one by one; the one that fails     |
| slice raises an error no one expected     | parks its journal                                                       |
| two writers of one journal                | the first wins; the other's events are reported as forks                |
| store unavailable, disk full, deadlock    | `TransientError`: the slice is read again from the offset               |
| retention removed what was not applied    | `GuaranteeError` at the start, or from the client                       |
| the topic was deleted and re-created, or  | `OtherTopicError` at the start, and within seconds in a running job     |
| has more partitions                       | (`topic_identity.py`)                                                   |
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import Final, Protocol

from inorder.engines.measures import MeasureTally
from inorder.engines.slice_work import (
    Pointer,
    Slice,
    SliceOutcome,
    SliceWorker,
    check_order,
    later_outcome,
    settle_commit,
)
from inorder.journal.action import Append, Delete, Mark, Purge
from inorder.journal.codec import describe_fault, is_of_record
from inorder.journal.life import Fork
from inorder.journal.measuring import timed
from inorder.journal.replication.actions import (
    JournalOutcome,
    JournalRecords,
    ParkingDecision,
    SliceActions,
    SliceSource,
    collect_records,
    decide_parking,
    group_by_journal,
    quarantine_from,
    read_action,
    replicate_journal,
)
from inorder.journal.replication.store_port import (
    JournalReplica,
    Quarantine,
    Quarantined,
    ReplicaSlice,
    group_by_partition,
)
from inorder.journal.replication.transition import ActionRecord
from inorder.journal.stores.ports import JournalHead, LogRecord, TopicIncarnation
from inorder.model.errors import (
    ConfigurationError,
    FencedError,
    GuaranteeError,
)
from inorder.model.journal import Key

log = logging.getLogger("inorder.journal")

RESET: Final = "inorder journal reset"
"""The command that accepts what has become of a topic."""


class Announcer(Protocol):
    """Publishes how far the store is, for readers that wait for it. Called by one thread; never blocks or raises."""

    def announce(self, topic: str, partition: int, offset: int) -> None:
        """The store has everything of the partition up to the offset; of several calls only the newest matters."""

    def close(self) -> None:
        """Sends what is waiting, within a time limit; may be used again afterwards."""


@dataclass(frozen=True, slots=True)
class ReplicateWork:
    """Journal topics and the store they are replicated to; `replicas` is pickled and must be comparable."""

    topics: tuple[str, ...] = field(compare=False)
    """Not compared: the worker does not depend on them, so it is kept when a topic is added."""
    replicas: Callable[[], JournalReplica]
    segment_size: int = 10_000
    needs_headers: bool = True
    name: str = "replicate"
    is_measured: bool = False
    """Whether outcomes carry measures; costs little."""
    announcers: Callable[[], Announcer] | None = None
    """Opens what announces how far the store is; pickled and compared, too."""

    def open(self) -> SliceWorker:
        """A worker; it connects at its first call."""
        tally = ReplicationTally(MeasureTally()) if self.is_measured else None
        announcer = None if self.announcers is None else self.announcers()
        return ReplicateWorker(self.replicas(), self.segment_size, tally, announcer)


class ReplicateWorker:
    """Replicates slice after slice into one store.

    It announces what it has applied right after the commit, also what another replicator applied first. The driver
    learns of slices too, but later: reports of a resident task are a twentieth of a second apart or more.
    """

    def __init__(
        self,
        replica: JournalReplica,
        segment_size: int,
        tally: ReplicationTally | None = None,
        announcer: Announcer | None = None,
    ) -> None:
        self._replica = replica
        self._segment_size = segment_size
        self._tally = tally
        self._announcer = announcer

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        with self._timed("offsets"):
            offsets = self._replica.offsets(topic)
        recorded = self._replica.incarnation(topic)
        return {partition: _pointer(offset + 1, recorded) for partition, offset in offsets.items()}

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        """Records which topic it is, unless the store knows that. A partition without an offset gets none here."""
        recorded = self._replica.adopt(topic, TopicIncarnation(topic_id, len(firsts)))
        begun = {partition: _pointer(first, recorded) for partition, first in firsts.items()}
        return begun | dict(self.pointers(topic))

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        """Applies what is new in the slice, once."""
        check_order(batch)
        if self._tally is not None:
            self._tally.begin_slice()
        try:
            outcome, written = self._settle(batch, expected, isolates=False)
        except Exception as error:
            if not is_of_record(error):
                raise
            # Nothing of the first attempt counts. One record at a time is slow, so only such a slice pays for it.
            outcome, written = self._settle(batch, expected, isolates=True)
        if self._announcer is not None and outcome.next_offset > 0:
            self._announcer.announce(outcome.topic, outcome.partition, outcome.next_offset - 1)
        if self._tally is None:
            return outcome
        self._tally.add_slice(written.found, written.done, written.parked)
        return replace(outcome, measures=self._tally.tally.take())

    def close(self) -> None:
        with closing(self._replica):
            if self._announcer is not None:
                self._announcer.close()

    def _settle(self, batch: Slice, expected: int, *, isolates: bool) -> tuple[SliceOutcome, _SliceResult]:
        source = SliceSource(batch.topic, batch.partition, self._segment_size)
        transaction = _SliceTransaction(source, batch, expected, isolates, self._timed)
        return settle_commit(
            lambda: self._slice(batch),
            lambda writing, _lost: transaction.apply(writing),
            lambda lost, now: lost if later_outcome(lost[0], now[0]) is lost[0] else now,
            what=str(batch),
            hint="The row in pointer2 says what is applied; the next start reads it.",
            retry_on=(FencedError,),  # the offset was moved meanwhile, by another or by a commit whose answer was lost
        )

    @contextmanager
    def _slice(self, batch: Slice) -> Iterator[ReplicaSlice]:
        with self._replica.slice(batch.topic, batch.partition) as writing:
            yield writing
            began = perf_counter()
        if self._tally is not None:
            self._tally.took_store("commit", perf_counter() - began)

    def _timed(self, verb: str) -> AbstractContextManager[None]:
        return nullcontext() if self._tally is None else self._tally.timed(verb)


def _pointer(next_offset: int, recorded: TopicIncarnation | None) -> Pointer:
    if recorded is None:
        return Pointer(next_offset, reset_command=RESET)
    return Pointer(next_offset, topic_id=recorded.id, partitions=recorded.partitions, reset_command=RESET)


@dataclass(slots=True)
class _SliceResult:
    applied: int = 0
    parked: list[Quarantined] = field(default_factory=list)
    forks: list[tuple[Key, Fork]] = field(default_factory=list)
    found: SliceActions = field(default_factory=SliceActions)
    done: list[JournalOutcome] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _SliceTransaction:
    """Everything between the lock and the commit."""

    place: SliceSource
    batch: Slice
    expected: int
    isolates: bool
    """Whether records are written one at a time, to find the one that the store refuses."""
    timed: Callable[[str], AbstractContextManager[None]]

    def apply(self, writing: ReplicaSlice) -> tuple[SliceOutcome, _SliceResult]:
        batch = self.batch
        with self.timed("lock_offset"):
            offset = writing.lock_offset()
        due = 0 if offset is None else offset + 1
        if due < self.expected:
            raise _moved_back_error(batch, due, self.expected)
        if not batch.offsets or batch.next_offset <= due:
            nothing = SliceOutcome(batch.topic, batch.partition, due, read=len(batch), replayed=len(batch))
            return nothing, _SliceResult()
        new = sum(each >= due for each in batch.offsets)
        written = self._write(writing, due - 1)
        with self.timed("move_offset"):
            writing.move_offset(batch.offsets[-1], batch.topic_id)
        _log_result(written)
        outcome = SliceOutcome(
            batch.topic,
            batch.partition,
            batch.next_offset,
            read=len(batch),
            applied=written.applied,
            ignored=new - written.applied - len(written.parked),
            rejected=len(written.parked),
            replayed=len(batch) - new,
        )
        return outcome, written

    def _write(self, writing: ReplicaSlice, above: int) -> _SliceResult:
        found = group_by_journal(self.batch, above)
        journals = collect_records(found.journals.items(), found.damaged)
        keys = [journal.key for journal in journals]
        parked: Collection[Key] = ()
        heads: Mapping[Key, JournalHead] = {}
        if keys:
            with self.timed("parked"):
                parked = writing.parked(keys)
            with self.timed("heads"):
                heads = writing.heads(keys)
        written, decisions = _SliceResult(found=found), list[tuple[JournalRecords, ParkingDecision]]()
        for journal in journals:
            decisions.append(
                (journal, decide_parking(self.place, journal, heads.get(journal.key), is_parked=journal.key in parked))
            )
        writing.free({journal.key: decision.purged for journal, decision in decisions if decision.purged is not None})
        if self.isolates:
            for journal, decision in decisions:
                self._isolate(writing, journal.key, heads.get(journal.key), decision, written)
        else:
            self._carry_out(writing, decisions, written)
        writing.quarantine(written.parked)
        return written

    def _carry_out(
        self, writing: ReplicaSlice, decisions: Sequence[tuple[JournalRecords, ParkingDecision]], written: _SliceResult
    ) -> None:
        done = [decision.replicated for _, decision in decisions if decision.replicated is not None]
        with self.timed("carry_out"):
            writing.carry_out([each.change for each in done if each.change.statements])
        written.done += done
        for journal, decision in decisions:
            written.applied += len(decision.applied)
            written.parked += decision.parked
            written.forks += [(journal.key, fork) for fork in decision.replicated.forks] if decision.replicated else []

    def _isolate(
        self,
        writing: ReplicaSlice,
        key: Key,
        head: JournalHead | None,
        decision: ParkingDecision,
        written: _SliceResult,
    ) -> None:
        """Writes one record after the other, to find the one that the store refuses."""
        for number, acted in enumerate(decision.applied):
            try:
                done = replicate_journal(self.place, key, head, [acted])
                with writing.attempt(), self.timed("carry_out"):
                    writing.carry_out([done.change] if done.change.statements else [])
            except Exception as error:
                if not is_of_record(error):
                    raise
                written.parked += quarantine_from(self.place, key, decision.applied[number:], describe_fault(error))
                break
            head = done.change.head
            written.done.append(done)
            written.applied += 1
            written.forks += [(key, fork) for fork in done.forks]
        written.parked += decision.parked


def first_of_each_journal(records: Sequence[Quarantined]) -> Iterator[Quarantined]:
    seen: set[Key] = set()
    for each in records:
        if each.key not in seen:
            seen.add(each.key)
            yield each


def _log_result(written: _SliceResult) -> None:
    for key, fork in written.forks:
        log.warning("journal.fork", extra={"journal": str(key), "fork": str(fork), "is_proven": fork.is_proven})
    for each in first_of_each_journal(written.parked):
        extra = {"journal": str(each.key), "partition": each.partition, "offset": each.offset, "reason": each.reason}
        log.error("journal.parked", extra=extra)


def _moved_back_error(batch: Slice, found: int, expected: int) -> GuaranteeError:
    return GuaranteeError(
        f"The offset of {batch.topic}[{batch.partition}] in pointer2 says that {found} is due,"
        f" but all below {expected} was replicated before.",
        hint="The store went back, perhaps to a backup. Make sure it is the right store, then journal"
        " `inorder pipeline run replicate` again: it replays from there.",
    )


def release(store: Quarantine, key: Key, segment_size: int) -> int:
    """Applies the records of a parked journal in offset order, all or nothing; returns how many there were.

    Raises `DamagedRecordError`, and changes nothing, if one still cannot be read. Replicators wait meanwhile
    (PostgreSQL), or what they add stays in quarantine for another release (Cassandra).
    """
    found = group_by_partition(store.quarantined(key.topic, key.id))
    if not found:
        raise ConfigurationError(
            f"The journal {key} has nothing in quarantine.", hint="`inorder journal quarantine list` shows what has."
        )
    with store.slice(key.topic, found[-1][0]) as writing:
        writing.lock_offset()
        records = store.quarantined(key.topic, key.id)
        head = writing.heads([key]).get(key)
        for partition, some in group_by_partition(records):
            head = _release_records(writing, SliceSource(key.topic, partition, segment_size), key, head, some)
        for each in records:
            writing.lift(key, each.partition, each.offset)
    return len(records)


def _release_records(
    writing: ReplicaSlice, place: SliceSource, key: Key, head: JournalHead | None, records: Sequence[Quarantined]
) -> JournalHead | None:
    change = replicate_journal(place, key, head, list(_read_actions(place, records))).change
    if change.statements:
        writing.carry_out([change])
    return change.head


def _read_actions(place: SliceSource, records: Sequence[Quarantined]) -> list[ActionRecord[LogRecord]]:
    actions = [(each.record, read_action(each.record, place.topic, place.partition)) for each in records]
    return [ActionRecord(record.offset, action, record) for record, action in actions if action is not None]


TYPES: Final = {Append: "append", Delete: "delete", Purge: "purge", Mark: "mark"}
EXPIRIES: Final = {"day": 1, "week": 7, "month": 31, "year": 366}
"""Labels for how long a journal lives at most, and their days."""


@dataclass(slots=True)
class ReplicationTally:
    """Gathers the figures of one worker, slice by slice; the driver serves the sums (`engines/measures.py`).

    | name                 | what                                                                              |
    |---|---|
    | `records`, `bytes`   | new records of journals, and the bytes of their values                            |
    | `events`             | events written to the store                                                       |
    | `forks`              | events that lost against those of another writer                                  |
    | `parked`             | journals that were parked, or got more records in quarantine                      |
    | `quarantined`        | those records                                                                     |
    | `replication/<type>` | from a record's time to its commit                                                |
    | `delivery/<type>`    | from a record's time to the time at which its slice was read                      |
    | `round`              | from then to the commit                                                           |
    | `round_records`      | records of a slice                                                                |
    | `version/<version>`  | records by the version of the library that wrote them                             |
    | `expiry/<how long>`  | journals written to, by how long they live after their last append                |
    | `store/<verb>`       | how long the store took                                                           |

    All but the times of the store are taken once a slice, after its commit. A slice whose outcome never reaches the
    driver is missing from the figures: they are hints, the store is authoritative.
    """

    tally: MeasureTally
    now: Callable[[], float] = time.time
    """Seconds since 1970, as the times of records are."""
    read_at: float = 0.0

    def begin_slice(self) -> None:
        self.read_at = self.now()

    def timed(self, verb: str) -> AbstractContextManager[None]:
        """Measures a call to the store, whether it succeeds or fails."""
        return timed(partial(self.took_store, verb))

    def took_store(self, verb: str, seconds: float) -> None:
        self.tally.took(f"store/{verb}", _micros(seconds))

    def add_slice(self, found: SliceActions, done: Sequence[JournalOutcome], parked: Sequence[Quarantined]) -> None:
        """Counts what was new in a slice, right after its commit."""
        tally, committed_at = self.tally, self.now()
        acted = [each for some in found.journals.values() for each in some]
        records = len(acted) + len(found.damaged)
        tally.add("records", records)
        tally.add("bytes", sum(map(len, filter(None, [each.record.value for each in acted]))))
        tally.add("events", sum(each.events for each in done))
        tally.add("forks", sum(len(each.forks) for each in done))
        tally.add("parked", len({each.key for each in parked}))
        tally.add("quarantined", len(parked))
        tally.took("round", _micros(committed_at - self.read_at))
        tally.had("round_records", records + found.foreign)
        moments = [(type(each.action), each.record.timestamp_ms, each.action.version) for each in acted]
        self._add_times(Counter(moments), committed_at)
        heads = {each.change.key.id: each.change.head for each in done}
        for word, journals in Counter([expiry_label(head) for head in heads.values() if head is not None]).items():
            tally.add(f"expiry/{word}", journals)

    def _add_times(self, moments: Mapping[tuple[type, int | None, str | None], int], committed_at: float) -> None:
        """Takes counts by type, time and version, of which there are far fewer than records."""
        versions: dict[str | None, int] = {}
        kinds: dict[type, dict[int, int]] = {}
        for (kind, written_at, version), times in moments.items():
            versions[version] = versions.get(version, 0) + times
            at = (written_at or 0) * 1000
            found = kinds.setdefault(kind, {})
            found[at] = found.get(at, 0) + times
        self.tally.add_labels("version", versions)
        for name, now in (("replication", _micros(committed_at)), ("delivery", _micros(self.read_at))):
            for kind, times_at in kinds.items():
                self.tally.took_all(f"{name}/{TYPES[kind]}", {now - at: times for at, times in times_at.items()})


def expiry_label(head: JournalHead) -> str:
    """How long a journal lives after its last append, as one of a few labels."""
    if head.expiry is None:
        return "none"
    return next((word for word, days in EXPIRIES.items() if head.expiry.after <= timedelta(days=days)), "longer")


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
