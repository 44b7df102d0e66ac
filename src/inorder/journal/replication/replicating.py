"""The job `replicate`: slices of journal topics in, journals in a store out, exactly once in effect.

An engine reads slices from Kafka and calls the worker for each. What makes the effect exact is here and in the store,
nothing in the engine.

**What is authoritative.** The topic; the store is a copy of it. How far the copy goes is told by the partition's row in
`pointer2`: every record up to its offset is in the store, in quarantine, or was nothing to a journal.

**What is only a hint.** Spark's checkpoint, the offsets that an engine planned, who is believed to own a partition, the
driver's memory of the last offset, the figures of an outcome after a lost answer, every clock.

One slice:

    lock the offset       PostgreSQL: the row is locked. Cassandra: it is remembered, and moved by compare-and-set
    drop what is applied  and stop loudly where the offset is below one that was seen committed
    group by journal      records of no journal count as applied
    sort out              a record that cannot be read parks its journal (`parking`); the others go on
    collapse, transition  fewer writes for the same result; (head, action) → statements (`replicate`)
    carry out             events before the head where they are added, the head first where they go
    quarantine            what is parked
    move the offset       last of all

Invariants:

1. For every journal that is not parked the store shows what the fold of its actions up to the offset gives (`life`). A
   parked one is refused to readers, and its store shows the fold up to its first damaged record.
2. The offset never moves back. It moves after everything that it stands for is written.
3. A slice may be carried out again, whole or in other chunks, by anybody at any time: offset and heads drop what they
   include, and in Cassandra every cell has the time of its action, so that what is older loses.
4. A head never falls, and a journal that was purged does not come back by a late append of its former life.

Failure table:

| what happens                              | PostgreSQL                        | Cassandra                           |
|---|---|---|
| crash after events, before the head       | rolled back, read again           | rows that no head shows; written    |
|                                           |                                   | again, the same cells and times     |
| crash after the head, before the offset   | rolled back, read again           | the head drops what it includes     |
| crash between the steps of a purge        | rolled back                       | its head is hidden first and goes   |
|                                           |                                   | last; the purge is done again       |
| answer to the commit is lost              | tried again: the lock waits until | tried again: the offset tells, and  |
|                                           | the old session is gone, then the | a compare-and-set that finds its    |
|                                           | offset tells                      | own value is no harm                |
| two replicators, or one that was paused   | one waits for the lock, then      | both write the same cells; one      |
|                                           | drops what is applied             | moves the offset, the other is      |
|                                           |                                   | fenced, reads it again and drops    |
| paused within a transaction               | the server ends the session       | its cells are older than what came  |
|                                           |                                   | since, and lose                     |
| replay of any range in any chunking       | nothing changes                   | nothing changes                     |
| the store went back to a backup           | `GuaranteeError` in a running job; a new start replays from the offset  |
| a record cannot be read                   | its journal is parked, all others go on                                 |
| the store refuses a record                | it is isolated, its journal is parked                                   |
| two writers of one journal                | the first wins; the other's events are reported as forks                |
| store away, disk full, deadlock           | `TransientError`: the slice is read again from the offset               |
| retention removed what was not applied    | `GuaranteeError` at the start, or from the client                       |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

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
from inorder.journal.life import Fork
from inorder.journal.replication.measures import MeasuredReplica, Measuring
from inorder.journal.replication.replica import JournalReplica, Quarantine, Quarantined, ReplicaSlice, by_partition
from inorder.journal.replication.replicate import (
    Grouped,
    Place,
    Replicated,
    Run,
    Sorted,
    cut_off,
    grouped,
    opened,
    replicated,
    runs,
    sorted_out,
)
from inorder.journal.replication.transition import Acted
from inorder.journal.stores.ports import JournalHead, LogRecord
from inorder.model.errors import (
    ConfigurationError,
    FencedError,
    GuaranteeError,
    RejectedError,
)
from inorder.model.journal import Key

# Says after each slice how far the store is, for readers that would rather wait for it than read Kafka.


class Announcer(Protocol):
    """Publishes notices. Used by one thread, which never waits for it; nothing that it meets is raised."""

    def announce(self, topic: str, partition: int, offset: int) -> None:
        """The store has everything of the partition up to the offset; only the newest of several need be told."""

    def close(self) -> None:
        """Sends what is waiting, within a limit; may be used again afterwards."""


class AnnouncingWorker:
    """A worker that announces what it has applied, right after the commit and in the process that made it.

    The driver hears of slices too, but later: reports of resident tasks are a twentieth of a second apart.
    """

    def __init__(self, worker: SliceWorker, announcer: Announcer) -> None:
        self._worker = worker
        self._announcer = announcer

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        """Where each partition goes on."""
        return self._worker.pointers(topic)

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        """Applies a slice, then tells how far the store is: also where another replicator was first."""
        outcome = self._worker.apply(batch, expected)
        if outcome.next_offset > 0:
            self._announcer.announce(outcome.topic, outcome.partition, outcome.next_offset - 1)
        return outcome

    def close(self) -> None:
        """Gives connections back."""
        with closing(self._worker):
            self._announcer.close()


log = logging.getLogger("inorder.journal")


@dataclass(frozen=True, slots=True)
class ReplicateWork:
    """Journal topics and the store that they are replicated to; `replicas` travels pickled and must be comparable."""

    topics: tuple[str, ...] = field(compare=False)
    """Not compared: whichever they are, the worker is the same, so one serves when a topic is added."""
    replicas: Callable[[], JournalReplica]
    segment_size: int = 10_000
    needs_headers: bool = True
    name: str = "replicate"
    is_measured: bool = False
    """Whether outcomes carry measures, which costs little."""
    announcers: Callable[[], Announcer] | None = None
    """Who tells readers how far the store is; travels pickled and is compared, too."""

    def open(self) -> SliceWorker:
        """A worker; it connects when it is first asked."""
        worker = self._worker()
        return worker if self.announcers is None else AnnouncingWorker(worker, self.announcers())

    def _worker(self) -> SliceWorker:
        if not self.is_measured:
            return ReplicateWorker(self.replicas(), self.segment_size)
        tally = MeasureTally()
        return ReplicateWorker(MeasuredReplica(self.replicas(), tally), self.segment_size, Measuring(tally))


class ReplicateWorker:
    """Replicates slice after slice with one replica."""

    def __init__(self, replica: JournalReplica, segment_size: int, measuring: Measuring | None = None) -> None:
        self._replica = replica
        self._segment_size = segment_size
        self._measuring = measuring

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        """Where each partition goes on."""
        offsets = self._replica.offsets(topic)
        return {partition: Pointer(offset + 1) for partition, offset in offsets.items()}

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        """Applies what is new in the slice, once."""
        check_order(batch)
        if self._measuring is not None:
            self._measuring.begin()
        try:
            outcome, written = self._settled(batch, expected, isolates=False)
        except RejectedError:
            # Nothing counts of the first try. One record at a time costs something, so only such a slice pays for it.
            outcome, written = self._settled(batch, expected, isolates=True)
        if self._measuring is None:
            return outcome
        self._measuring.committed(written.found, written.done, written.parked)
        return replace(outcome, measures=self._measuring.tally.take())

    def close(self) -> None:
        """Gives connections back."""
        self._replica.close()

    def _settled(self, batch: Slice, expected: int, *, isolates: bool) -> tuple[SliceOutcome, _Written]:
        place = Place(batch.topic, batch.partition, self._segment_size)
        replicating = _Replicating(place, batch, expected, isolates)
        return settle_commit(
            lambda: self._replica.slice(batch.topic, batch.partition),
            lambda writing, _lost: replicating.apply(writing),
            lambda lost, now: lost if later_outcome(lost[0], now[0]) is lost[0] else now,
            what=str(batch),
            hint="The row in pointer2 says what is applied; the next start reads it.",
            retry_on=(FencedError,),  # the offset was moved meanwhile, by another or by a commit whose answer was lost
        )


@dataclass(slots=True)
class _Written:
    """What was done within a slice."""

    applied: int = 0
    parked: list[Quarantined] = field(default_factory=list)
    forks: list[tuple[Key, Fork]] = field(default_factory=list)
    found: Grouped = field(default_factory=Grouped)
    done: list[Replicated] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Replicating:
    """What is done between the lock and the commit."""

    place: Place
    batch: Slice
    expected: int
    isolates: bool

    def apply(self, writing: ReplicaSlice) -> tuple[SliceOutcome, _Written]:
        batch, offset = self.batch, writing.lock_offset()
        due = 0 if offset is None else offset + 1
        if due < self.expected:
            raise _moved_back(batch, due, self.expected)
        if not batch.offsets or batch.next_offset <= due:
            nothing = SliceOutcome(batch.topic, batch.partition, due, read=len(batch), replayed=len(batch))
            return nothing, _Written()
        new = sum(each >= due for each in batch.offsets)
        written = self._write(writing, due - 1)
        writing.move_offset(batch.offsets[-1])
        _tell(written)
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

    def _write(self, writing: ReplicaSlice, above: int) -> _Written:
        found = grouped(self.batch, above)
        all_runs = runs(found.journals.items(), found.damaged)
        keys = [run.key for run in all_runs]
        parked = writing.parked(keys) if keys else ()
        heads = writing.heads(keys) if keys else {}
        written, fates = _Written(found=found), list[tuple[Run, Sorted]]()
        for run in all_runs:
            fates.append((run, sorted_out(self.place, run, heads.get(run.key), is_parked=run.key in parked)))
        writing.free({run.key: fate.purged for run, fate in fates if fate.purged is not None})
        if self.isolates:
            for run, fate in fates:
                self._isolate(writing, run.key, heads.get(run.key), fate, written)
        else:
            _carry_out(writing, fates, written)
        writing.quarantine(written.parked)
        return written

    def _isolate(
        self, writing: ReplicaSlice, key: Key, head: JournalHead | None, fate: Sorted, written: _Written
    ) -> None:
        """One record after the other, so that it is known which one the store refuses."""
        for number, acted in enumerate(fate.applied):
            done = replicated(self.place, key, head, [acted])
            try:
                with writing.attempt():
                    writing.carry_out([done.change] if done.change.statements else [])
            except RejectedError as error:
                written.parked += cut_off(self.place, key, fate.applied[number:], error.message)
                break
            head = done.change.head
            written.done.append(done)
            written.applied += 1
            written.forks += [(key, fork) for fork in done.forks]
        written.parked += fate.parked


def _carry_out(writing: ReplicaSlice, fates: Sequence[tuple[Run, Sorted]], written: _Written) -> None:
    done = [fate.replicated for _, fate in fates if fate.replicated is not None]
    writing.carry_out([each.change for each in done if each.change.statements])
    written.done += done
    for run, fate in fates:
        written.applied += len(fate.applied)
        written.parked += fate.parked
        written.forks += [(run.key, fork) for fork in fate.replicated.forks] if fate.replicated else []


def newly_parked(records: Sequence[Quarantined]) -> Iterator[Quarantined]:
    """The first record of each journal: the one that is told about."""
    told: set[Key] = set()
    for each in records:
        if each.key not in told:
            told.add(each.key)
            yield each


def _tell(written: _Written) -> None:
    for key, fork in written.forks:
        log.warning("journal.fork", extra={"journal": str(key), "fork": str(fork), "is_proven": fork.is_proven})
    for each in newly_parked(written.parked):
        extra = {"journal": str(each.key), "partition": each.partition, "offset": each.offset, "reason": each.reason}
        log.error("journal.parked", extra=extra)


def _moved_back(batch: Slice, found: int, expected: int) -> GuaranteeError:
    return GuaranteeError(
        f"The offset of {batch.topic}[{batch.partition}] in pointer2 says that {found} is due,"
        f" but all below {expected} was replicated before.",
        hint="The store went back, perhaps to a backup. Make sure it is the right one, then run"
        " `inorder pipeline run replicate` again: it replays from there.",
    )


# Applies late what was in quarantine: in the order of the offsets, all of a journal or nothing.


def release(store: Quarantine, key: Key, segment_size: int) -> int:
    """Applies the records of a parked journal; returns how many there were.

    Raises `DamagedRecordError` where one still cannot be read: nothing has changed then. Replicators wait meanwhile
    (PostgreSQL), or what they add stays in quarantine for another release (Cassandra).
    """
    found = by_partition(store.quarantined(key.topic, key.id))
    if not found:
        raise ConfigurationError(
            f"The journal {key} has nothing in quarantine.", hint="`inorder journal quarantine list` tells what has."
        )
    with store.slice(key.topic, found[-1][0]) as writing:
        writing.lock_offset()
        records = store.quarantined(key.topic, key.id)
        head = writing.heads([key]).get(key)
        for partition, some in by_partition(records):
            head = _apply(writing, Place(key.topic, partition, segment_size), key, head, some)
        for each in records:
            writing.lift(key, each.partition, each.offset)
    return len(records)


def _apply(
    writing: ReplicaSlice, place: Place, key: Key, head: JournalHead | None, records: Sequence[Quarantined]
) -> JournalHead | None:
    change = replicated(place, key, head, list(_opened(place, records))).change
    if change.statements:
        writing.carry_out([change])
    return change.head


def _opened(place: Place, records: Sequence[Quarantined]) -> list[Acted[LogRecord]]:
    actions = [(each.record, opened(each.record, place.topic, place.partition)) for each in records]
    return [Acted(record.offset, action, record) for record, action in actions if action is not None]
