"""Journals as applications use them: append events, read them back, delete, purge.

Everything here works while replication is behind or down, and for any number of readers. A journal should have one
writer at a time; where it has two, the first one's events count and the other's are reported (`forks`).

Appending the same events again after an error is safe: numbers that are taken already do not count twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from inorder.journal.action import Action, Append, Delete, Mark, Purge, check_expire_after
from inorder.journal.codec import RecordSender, action_of, action_record, append_record
from inorder.journal.life import Life
from inorder.journal.reading.reader import JournalReader, Moment, wait_for_place
from inorder.journal.snapshots import JournalSnapshots, MarkedMoment, Recovery, SnapshotHistory
from inorder.journal.stores.ports import EventualJournal, JournalLog, Window
from inorder.model.deadline import Deadline
from inorder.model.errors import (
    ConfigurationError,
    DeadlineError,
    GuaranteeError,
    SeqNrConflictError,
    UnknownOutcomeError,
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
    RecordMetadata,
    SeqNr,
    SeqRange,
    Snapshot,
    SnapshotCriteria,
    check_seq_nr,
)
from inorder.model.message import Limits, Record

_NO_HEADERS: Mapping[str, str] = {}


class Journals:
    """All journals that a log and a store hold; many threads may use it at a time."""

    def __init__(
        self,
        log: JournalLog,
        store: EventualJournal,
        reader: JournalReader,
        *,
        sender: RecordSender = RecordSender(),  # noqa: B008 - a tuple
        limits: Limits = Limits(),  # noqa: B008 - frozen
        encode: Callable[..., Record] = append_record,
        rings: SnapshotHistory | None = None,
        timeout_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.log = log
        self.store = store
        self.reader = reader
        self.sender = sender
        self.limits = limits
        self.encode = encode
        self.rings = rings
        self.now = now
        self._clock = clock
        self._timeout = timeout_seconds

    def journal(self, key: Key) -> Journal:
        """The journal of a key; nothing is asked or written yet."""
        return Journal(self, key)

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all journals of a topic that are replicated, in any order; of parked ones too."""
        return self.store.ids(topic)

    def send(self, key: Key, action: Action) -> Future[PartitionOffset]:
        """Sends an action that carries no events."""
        return self.log.send(action_record(key, action, self.now(), self.limits))

    def deadline(self, what: str) -> Deadline:
        """The time that one step may take."""
        return Deadline(self._clock, self._timeout, what)

    def sent(self, place: Future[PartitionOffset], what: str) -> PartitionOffset:
        """The place of what was sent; `UnknownOutcomeError` if it is not known in time."""
        try:
            return wait_for_place(place, self.deadline(what))
        except DeadlineError as error:
            hint = "It may have been written. To send it again does no harm."
            raise UnknownOutcomeError(error.message, hint=hint) from error

    def close(self) -> None:
        """Sends what is waiting and gives everything back; may be called twice."""
        self.log.close()
        self.store.close()
        if self.rings is not None:
            self.rings.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Journal:
    """The journal of one key."""

    def __init__(self, journals: Journals, key: Key) -> None:
        self._journals = journals
        self.key = key

    def append(
        self,
        events: Iterable[Event],
        *,
        expected_seq_nr: SeqNr | None = None,
        expire_after: timedelta | None = None,
        metadata: object = None,
        data: object = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> PartitionOffset:
        """Appends events with rising numbers, all or none of them; returns once all replicas have them.

        `expected_seq_nr` is the number at which the journal must end, 0 for none: if it does not, nothing is written
        and `SeqNrConflictError` is raised; so too, after the fact, if another writer came in between. `expire_after`
        lets the journal go so long after its last append. `metadata` and `data` are JSON of the application's own,
        beside the action and with the events.
        """
        record = self._record(events, expire_after, metadata, data, headers)
        mark = None if expected_seq_nr is None else self._require_end(expected_seq_nr)
        place = self._journals.sent(self._journals.log.send(record), f"Appending to {self.key}")
        if mark is not None:
            self._require_nobody_between(mark, place, expected_seq_nr)
        return place

    def append_later(
        self,
        events: Iterable[Event],
        *,
        expire_after: timedelta | None = None,
        metadata: object = None,
        data: object = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> Future[PartitionOffset]:
        """Appends without waiting; the future tells when all replicas have them. Several may be on their way."""
        return self._journals.log.send(self._record(events, expire_after, metadata, data, headers))

    def read(self, from_seq_nr: SeqNr = MIN_SEQ_NR, to: SeqNr = MAX_SEQ_NR) -> Iterator[EventRecord]:
        """The events from one number to another, as the journal is at this moment, in order.

        They are streamed, never held all at once. `JournalChangedError` tells that the journal was truncated meanwhile.
        """
        numbers = SeqRange(check_seq_nr(from_seq_nr, "from_seq_nr"), check_seq_nr(to, "to"))
        return self._journals.reader.events(self._moment(numbers.first), numbers)

    def pointer(self) -> SeqNr | None:
        """The last number of the journal, be it deleted; None where there is no journal, or it is purged."""
        return self._moment().plan.pointer

    def delete(self, to: DeleteTo = MAX_SEQ_NR) -> PartitionOffset | None:
        """Deletes the events up to a number; those to come are not touched. None where there is no journal."""
        check_seq_nr(to, "to")
        end = self.pointer()
        if end is None:
            return None
        return self._send(Delete(min(to, end), *self._journals.sender), "Deleting from")

    def purge(self) -> PartitionOffset:
        """Removes the journal with all that is known about it; the next append begins a new one."""
        return self._send(Purge(*self._journals.sender), "Purging")

    def mark(self, id: str | None = None) -> PartitionOffset:
        """Writes a mark, which changes nothing; its place tells how far one must have read to know what was before."""
        return self._send(self._mark(id), "Marking")

    def save_snapshot(self, seq_nr: SeqNr, payload: Payload = None, *, metadata: object = None) -> Snapshot | None:
        """Keeps what the events up to a number amount to, in the store; one of the same number is replaced.

        A number above the journal's end is refused with `ValidationError`. None where the journal has as many newer
        snapshots as it keeps (`journal.snapshots`): then nothing was written. To save it again does no harm.
        """
        now = self._journals.now()
        # Not all stores keep more than milliseconds.
        time = now.replace(microsecond=now.microsecond // 1000 * 1000)
        snapshot = Snapshot(seq_nr, payload, time, metadata, *self._journals.sender)
        return snapshot if self._snapshots.save(snapshot) else None

    def snapshot(self, criteria: SnapshotCriteria = ANY_SNAPSHOT) -> Snapshot | None:
        """The latest snapshot that fits, by number, then by time; never one from before a purge."""
        return self._snapshots.latest(criteria)

    def snapshots(self) -> list[Snapshot]:
        """All snapshots, the latest first."""
        return self._snapshots.all()

    def delete_snapshots(self, criteria: SnapshotCriteria = ANY_SNAPSHOT) -> int:
        """Deletes the snapshots that fit, and no event; returns how many there were."""
        return self._snapshots.delete(criteria)

    def recover(self, criteria: SnapshotCriteria = ANY_SNAPSHOT) -> Recovery:
        """The latest snapshot that fits and the events behind it, as a stream; all events where none fits.

        `SnapshotTooOldError` where events behind the snapshot are deleted: what is left would have a hole.
        """
        return self._snapshots.recover(criteria)

    @property
    def _snapshots(self) -> JournalSnapshots:
        journals = self._journals
        if journals.rings is None:
            raise ConfigurationError(
                "These journals were made without a store of snapshots.", hint="Give them `rings`."
            )
        return JournalSnapshots(self.key, journals.rings, self._look, journals.reader, journals.deadline)

    def _moment(self, from_seq_nr: SeqNr = MAX_SEQ_NR) -> Moment:
        return self._look(from_seq_nr).moment

    def _look(self, from_seq_nr: SeqNr = MAX_SEQ_NR) -> MarkedMoment:
        mark = self._journals.send(self.key, self._mark())
        moment = self._journals.reader.moment(self.key, mark, from_seq_nr)
        return MarkedMoment(mark.result(), moment)

    def _mark(self, id: str | None = None) -> Mark:
        return Mark(str(uuid4()) if id is None else id, *self._journals.sender)

    def _send(self, action: Action, what: str) -> PartitionOffset:
        return self._journals.sent(self._journals.send(self.key, action), f"{what} {self.key}")

    def _record(
        self,
        events: Iterable[Event],
        expire_after: timedelta | None,
        metadata: object,
        data: object,
        headers: Mapping[str, str],
    ) -> Record:
        about = RecordMetadata(metadata, PayloadMetadata(check_expire_after(expire_after), data))
        journals = self._journals
        return journals.encode(self.key, events, journals.now(), journals.sender, about, headers, journals.limits)

    def _require_end(self, expected: SeqNr) -> PartitionOffset:
        if expected != 0:
            check_seq_nr(expected, "expected_seq_nr")
        mark, moment = self._look()
        found = moment.plan.pointer
        if (found or 0) != expected:
            raise SeqNrConflictError(
                f"The journal {self.key} ends at {found or 0}, not at {expected}; nothing was written.",
                hint="Read what was appended meanwhile, decide again, and append after it.",
                expected=expected,
                found=found,
            )
        return mark

    def _require_nobody_between(self, mark: PartitionOffset, place: PartitionOffset, expected: SeqNr | None) -> None:
        if mark.partition != place.partition or place.offset - mark.offset <= 1:
            return
        window = Window(self.key.topic, place.partition, mark.offset + 1, place.offset - 1)
        deadline = self._journals.deadline(f"Looking for other writers of {self.key}")
        with closing(self._journals.log.records(window, self.key.id.encode(), deadline)) as records:
            for record in records:
                action = action_of(record, window.topic, window.partition)
                if isinstance(action, Append | Purge):
                    raise SeqNrConflictError(
                        f"Another writer came to the journal {self.key} at {window.partition}:{record.offset}, before"
                        f" this append at {place}: of its events those count whose numbers are still free.",
                        hint="Read the journal, and see that it has one writer at a time.",
                        expected=expected,
                        found=action.range.last if isinstance(action, Append) else None,
                    )


# Appending events that somebody may have appended before: what the journal has is left out, and the rest appended.
#
# A task that is run again brings the events that it brought before, and the journal's end tells how far it came. What
# is at or below the end must be there, or it was overtaken: somebody appended higher numbers of the same journal
# first, and a journal never goes back. Such events are lost to it, and that is said loudly. What is below the number
# that a journal began with counts as deleted (`life.py`), so there nobody can tell.

MAX_EVENTS: Final = 500
MAX_BYTES: Final = 256 * 1024
"""What one append takes: it is one record of Kafka, and brokers refuse large ones."""


def append_missing(journals: Journals, key: Key, events: Sequence[Event]) -> int:
    """Appends those events, of rising numbers, that the journal lacks; how many these were."""
    life = _read_life(journals, key)
    ahead = [event for event in events if event.seq_nr > (life.seq_nr if life else 0)]
    _require_present(journals, key, life, events[: len(events) - len(ahead)])
    for some in split_events(ahead):
        journals.journal(key).append(some)  # it waits, since nothing may pass what fails
    return len(ahead)


def split_events(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """The events in pieces that one append can carry, or the one event that is larger."""
    first = size = 0
    for index, event in enumerate(events):
        length = len(event.payload) if isinstance(event.payload, bytes | str) else 0
        if index > first and (size + length > MAX_BYTES or index - first >= MAX_EVENTS):
            yield events[first:index]
            first, size = index, 0
        size += length
    if events:
        yield events[first:]


def _read_life(journals: Journals, key: Key) -> Life | None:
    mark = journals.send(key, Mark(str(uuid4()), *journals.sender))
    return journals.reader.moment(key, mark, MAX_SEQ_NR).plan.life


def _require_present(journals: Journals, key: Key, life: Life | None, events: Sequence[Event]) -> None:
    wanted = [event.seq_nr for event in events if life is not None and event.seq_nr > life.delete_to]
    if not wanted:
        return
    found = {record.seq_nr for record in journals.journal(key).read(wanted[0], wanted[-1])}
    lost = [number for number in wanted if number not in found]
    if lost:
        raise GuaranteeError(
            f"The journal {key} is past event {lost[0]} and does not have it: it comes too late.",
            hint="Somebody appended higher numbers first. A journal has one writer at a time, who appends in order.",
        )
