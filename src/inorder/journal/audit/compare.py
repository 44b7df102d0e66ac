"""The audit: does the store show what the topic says? Journal by journal, from values alone.

**What is authoritative.** The topic. The store is a copy, and `pointer2` says how far it goes: the audit takes the
replicated offset *R* of a partition first and then reads its records from the first that is there, *F*, to *R*. What
comes after *R* is lag, not a difference.

**What is compared.** The actions of a journal are folded one by one with the code of the replicator
(`replication/actions.py`), and the result is compared with the rows of the store: the head, and every visible event
with all its columns. Both come in the order of their numbers, so one of each is held at a time.

**At which moment.** The head names the last action that it includes. If that is at or before *R*, the head is the
journal as of *R*. If it is after *R*, the journal has moved on: it agrees if everything up to *R* is there and the head
has not gone back; otherwise it is *unsettled* and compared again in the next pass, with a newer *R*. A missing head may
have been purged since *R*: the next pass reads up to a newer *R* and finds the purge. The caller compares every journal
that differs twice before it reports it, and drops what it found if the head has changed (`job.py`).

**What retention removed.** If *F* is not 0, or rows come from another partition, the beginning of a journal is not
known. Rows older than *F* come first; they are taken as they are and counted. Everything after them is compared. A
purge among the records makes everything known again, and so does the append that began the life of the head. Until
then, if no older row says where the journal ended at *F*, the store's rows show which appends counted.

Invariants:

1. What is reported was different in the store at one moment, whatever replicators did meanwhile.
2. Memory does not grow with a journal: a page of rows, the places of its quarantine, and `MAX_FINDINGS` findings.
3. The store is never written to.

Failure table:

| what happens meanwhile                     | what follows                                                        |
|---|---|
| the replicator goes on                     | heads are after *R*: the journal agrees, or is compared again       |
| a journal is purged                        | its head is gone or of a later life: compared again                 |
| a journal is truncated                     | its head has moved: compared again                                  |
| retention moves *F*                        | records are missing, so it differs; compared again with a newer *F* |
| a parked journal is released               | the quarantine has changed: compared again                          |
| records were discarded (`discard`)         | the topic has them, the store has not: reported as long as they are |
| rows written by Kafka Journal's replicator | other record ids, other spellings of JSON: no difference            |
| a head is wrong                            | reported once, not for each event that it hides or shows            |
| the audit is killed                        | nothing                                                             |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from inorder.journal.action import Append, Mark, Purge, expiry_at
from inorder.journal.audit.findings import (
    AuditFinding,
    FindingKind,
    StoredRow,
    StoredState,
    describe_columns,
    describe_event,
    describe_head,
    find_differences,
    select_columns,
)
from inorder.journal.codec import timestamp_of
from inorder.journal.life import JournalFold, Life, life_id, life_of
from inorder.journal.replication.actions import JournalOutcome, SliceSource, read_action, replicate_journal
from inorder.journal.replication.transition import ActionRecord, InsertEvents
from inorder.journal.segments import journal_segment
from inorder.journal.stores.ports import Expiry, JournalHead, LogRecord
from inorder.journal.stores.rows import event_columns
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import EventRecord, Key, PartitionOffset

MAX_FINDINGS: Final = 1_000
"""Findings of one journal that are listed; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Span:
    """What is read of a partition: from its first record to the replicated offset, -1 if there is none."""

    first: int
    replicated: int
    before: int | None = None
    """The replicated offset of the previous pass, if this is not the first."""


@dataclass(frozen=True, slots=True)
class JournalVerdict:
    """The result of comparing one journal."""

    findings: tuple[AuditFinding, ...] = ()
    is_settled: bool = True
    """Whether it could be compared; else it has moved on, and must be compared again."""
    events: int = 0
    """Events that were compared."""
    older: int = 0
    """Rows, or a head, older than the first record of the topic."""

    @property
    def is_suspect(self) -> bool:
        """Whether it must be compared again before anything is reported."""
        return not self.is_settled or any(each.kind.is_difference for each in self.findings)

    @property
    def misses_journal(self) -> bool:
        """Whether the store has nothing of a journal that the topic has."""
        return any(each.kind is FindingKind.missing_journal for each in self.findings)


@dataclass(slots=True)
class _Findings:
    listed: list[AuditFinding] = field(default_factory=list)
    left_out: int = 0

    def add(self, finding: AuditFinding) -> None:
        if len(self.listed) < MAX_FINDINGS:
            self.listed.append(finding)
        else:
            self.left_out += finding.kind.is_difference


class JournalAudit:
    """Compares one journal: takes its records in offset order, then returns the verdict."""

    def __init__(
        self,
        key: Key,
        partition: int,
        span: Span,
        state: StoredState,
        rows: Callable[[], Iterator[StoredRow]],
        size: int,
    ) -> None:
        """`rows` starts reading the rows of the journal; `size` is the segment size if the store has no head."""
        self._key = key
        self._span = span
        self._head = state.head
        self._place = SliceSource(key.topic, partition, state.head.segment_size if state.head else size)
        self._new_rows = rows
        self._rows: VisibleRows | None = None
        self._waiting = {place.offset for place in state.waiting if place.partition == partition}
        self._unseen = {offset for offset in self._waiting if span.first <= offset <= span.replicated}
        self._parked_from = self._find_parked_from()
        self._life = FoldedLife()
        self._stopped: _Stopped | None = None
        self._purged_at = -1
        self._found = _Findings()
        self._events = self._older = 0
        self._is_settled = False
        """Whether it is known where the journal ends."""
        if self._head is not None:
            self._begin(self._head)

    def take(self, record: LogRecord) -> None:
        try:
            action = read_action(record, self._place.topic, self._place.partition)
            if action is None or isinstance(action, Mark):
                return
            self._unseen.discard(record.offset)
            if isinstance(action, Purge):
                if self._counts(action):
                    self._purge(record.offset)
            elif self._parked_from is not None and record.offset >= self._parked_from:
                self._stop()
                self._require_quarantined(record.offset, "It follows a record in quarantine.")
            else:
                if isinstance(action, Append) and not self._life.is_whole:
                    action = self._settle(action, record)
                acted = [ActionRecord(record.offset, action, record)] if action is not None else []
                done = replicate_journal(self._place, self._key, self._life.head, acted)
                self._follow(record, done, is_append=isinstance(action, Append))
        except DamagedRecordError as error:
            self._stop()
            self._require_quarantined(record.offset, error.message)

    def _stop(self) -> None:
        """Remembers the life in which the journal was parked: a purge that frees it also takes its quarantine away."""
        self._stopped = self._stopped or _Stopped(life_of(self._life.head))

    def _counts(self, purge: Purge) -> bool:
        """Whether a purge counts; if the store has no head, what it found is not known before the first that does."""
        fold = JournalFold(*self._journal)
        is_unknown = self._head is None and self._span.first > 0 and self._purged_at < 0
        if is_unknown or fold.counts(life_of(self._life.head), purge):
            return True
        return self._stopped is not None and fold.frees(self._stopped.life, purge)

    def _settle(self, action: Append, record: LogRecord) -> Append | None:
        """The append as it is judged while the beginning of the journal is not known; None if it is void."""
        head = self._head
        if head is not None and head.record_id == life_id(*self._journal, record.offset):
            self._found, self._life, self._rows = _Findings(), FoldedLife(self._bound_before(head, action)), None
            self._events = self._older = 0
            return replace(action, id=None, condition=None)
        if head is None or self._is_settled or (action.id is None and action.condition is None):
            return action
        row = self._visible(head).peek()
        if row is not None and (row.columns.partition, row.columns.offset) == (self._place.partition, record.offset):
            self._is_settled = True
            return replace(action, id=None, condition=None)
        return None

    def _bound_before(self, head: JournalHead, action: Append) -> JournalHead | None:
        """The head that the first append of the store's life has found: deletes before it may have set a bound.

        One above what this life has deleted since would make no difference.
        """
        bound = min(head.delete_to or 0, action.range.first - 1)
        found = self._life.head
        return replace(found, seq_nr=bound, delete_to=bound, record_id=None) if found is not None and bound else None

    @property
    def _journal(self) -> tuple[Key, int]:
        return self._key, self._place.partition

    def finish(self) -> JournalVerdict:
        is_settled = True
        self._check_remaining_rows()
        if self._head is None:
            is_settled = self._check_missing_head()
        elif self._life.head is None:
            is_settled = self._report_surplus(self._head)
        else:
            is_settled = self._compare_heads(self._head, self._life.head)
        for offset in sorted(self._unseen):
            self._report(FindingKind.not_in_topic, offset, in_store="a record in quarantine")
        self._add_notes()
        return JournalVerdict(tuple(self._findings()), is_settled, self._events, self._older)

    def _begin(self, head: JournalHead) -> None:
        """Skips rows that are older than the topic, and starts from what the store says there."""
        rows, end, before = self._visible(head), 0, None
        while (row := rows.peek()) is not None and self._is_older(row):
            end, before = row.seq_nr, row.place
            self._older += 1
            rows.take()
        self._is_settled = before is not None
        if self._span.first > 0:
            before = PartitionOffset(self._place.partition, self._span.first - 1)
        if before is not None:
            start = replace(head, partition_offset=before, seq_nr=max(end, head.delete_to or 0))
            self._life = FoldedLife(start, is_whole=False, changed_at=-1, last_at=self._span.replicated)

    def _is_older(self, row: StoredRow) -> bool:
        return row.columns.partition != self._place.partition or row.columns.offset < self._span.first

    def _purge(self, offset: int) -> None:
        void = sorted(each for each in self._waiting if each < offset)
        self._found, self._life, self._purged_at, self._rows = _Findings(), FoldedLife(), offset, None
        self._stopped = None
        self._events = self._older = 0
        for each in void:
            self._report(
                FindingKind.not_in_topic, each, in_topic=f"a purge at {offset} has made it void", in_store="a record"
            )
        self._waiting = {each for each in self._waiting if each > offset}
        self._parked_from = self._find_parked_from()
        self._unseen = {each for each in self._unseen if each > offset}

    def _find_parked_from(self) -> int | None:
        """Where the journal is parked: at the first record in quarantine that its head does not include.

        A slice that was interrupted after it parked a journal puts all its records there when it is repeated.
        """
        place = self._head.partition_offset if self._head else None
        included = place.offset if place is not None and place.partition == self._place.partition else -1
        return min((offset for offset in self._waiting if offset > included), default=None)

    def _require_quarantined(self, offset: int, reason: str) -> None:
        """A record that is not applied must be in quarantine."""
        self._unseen.discard(offset)
        if offset not in self._waiting:
            self._report(FindingKind.not_in_quarantine, offset, in_topic=reason)

    def _follow(self, record: LogRecord, done: JournalOutcome, *, is_append: bool) -> None:
        for _, statement in done.change.statements:
            if isinstance(statement, InsertEvents):
                for event in statement.events:
                    self._compare_event(event, statement.segment)
        for fork in done.forks:
            if self._life.is_whole:
                self._report(FindingKind.fork, record.offset, fork.record.seq_nr, in_topic=str(fork))
        self._life.follow(record, done.change.head, is_append=is_append)

    def _compare_event(self, event: EventRecord, segment: int) -> None:
        head = self._head
        if head is None or not (head.delete_to or 0) < event.seq_nr <= head.seq_nr:
            return  # reported with the head, if at all
        self._events += 1
        rows = self._visible(head)
        while (row := rows.peek()) is not None and row.seq_nr < event.seq_nr:
            self._report_surplus_row(rows.take())
        if row is None or row.seq_nr > event.seq_nr:
            self._report(
                FindingKind.missing_event, event.offset, event.seq_nr, in_topic=describe_event(event_columns(event))
            )
            return
        self._compare_row(event, segment, rows.take())

    def _compare_row(self, event: EventRecord, segment: int, row: StoredRow) -> None:
        if names := find_differences(event, segment, row):
            ours = select_columns(names, event_columns(event), segment, event.timestamp)
            theirs = select_columns(names, row.columns, row.segment, row.timestamp)
            in_topic, in_store = describe_columns(ours), describe_columns(theirs)
            self._report(
                self._kind_of(row, FindingKind.different_event), event.offset, event.seq_nr, in_topic, in_store
            )

    def _report_surplus_row(self, row: StoredRow) -> None:
        if not self._life.is_whole and self._is_older(row):
            self._older += 1
            return
        kind = self._kind_of(row, FindingKind.surplus_event)
        self._report(kind, row.columns.offset, row.seq_nr, in_store=describe_event(row.columns))

    def _kind_of(self, row: StoredRow, otherwise: FindingKind) -> FindingKind:
        is_former = row.columns.partition == self._place.partition and row.columns.offset < self._purged_at
        return FindingKind.foreign_life if is_former else otherwise

    def _check_remaining_rows(self) -> None:
        """Visible rows after the last event; in a journal that has moved on they may be correct."""
        if self._head is None or self._life.head is None:
            return
        rows = self._visible(self._head)
        while rows.peek() is not None:
            row = rows.take()
            if not (self._has_moved_on and row.columns.offset > self._span.replicated):
                self._report_surplus_row(row)
        for row in rows.misplaced:
            self._report_misplaced(row)

    def _report_misplaced(self, row: StoredRow) -> None:
        """A row in the wrong segment is one finding, not a missing event and a surplus one."""
        missing = [
            each for each in self._found.listed if each.kind is FindingKind.missing_event and each.seq_nr == row.seq_nr
        ]
        for each in missing:
            self._found.listed.remove(each)
        self._report(
            FindingKind.different_event, row.columns.offset, row.seq_nr, in_store=f"it lies in segment {row.segment}"
        )

    @property
    def _has_moved_on(self) -> bool:
        place = self._head.partition_offset if self._head else None
        return place is not None and place.partition == self._place.partition and place.offset > self._span.replicated

    def _check_missing_head(self) -> bool:
        expected = self._life.head
        if expected is None:
            return True
        self._report(FindingKind.missing_journal, self._life.last_at, in_topic=describe_head(expected))
        before = self._span.before
        return before is not None and self._purged_at <= before and self._life.began_at <= before

    def _report_surplus(self, head: JournalHead) -> bool:
        if self._has_moved_on:
            return False
        in_topic = f"purged at {self._purged_at}" if self._purged_at >= 0 else "nothing"
        self._report(
            FindingKind.surplus_journal, head.partition_offset.offset, in_topic=in_topic, in_store=describe_head(head)
        )
        return True

    def _compare_heads(self, head: JournalHead, expected: JournalHead) -> bool:
        if self._has_moved_on:
            has_grown = head.seq_nr >= expected.seq_nr and (head.delete_to or 0) >= (expected.delete_to or 0)
            return has_grown and not any(each.kind.is_difference for each in self._visible_findings(expected))
        if not self._life.agrees(head):
            in_topic = describe_head(expected)
            self._report(
                FindingKind.wrong_head, head.partition_offset.offset, head.seq_nr, in_topic, describe_head(head)
            )
        return True

    def _visible(self, head: JournalHead) -> VisibleRows:
        if self._rows is None:
            self._rows = VisibleRows(self._new_rows(), head, self._span.replicated)
        return self._rows

    def _visible_findings(self, expected: JournalHead | None) -> Iterator[AuditFinding]:
        """Without findings about events that the topic deletes: no reader sees those."""
        deleted = 0 if expected is None else expected.delete_to or 0
        missing = (FindingKind.missing_event, FindingKind.different_event, FindingKind.surplus_event)
        return (each for each in self._found.listed if each.kind not in missing or (each.seq_nr or 0) > deleted)

    def _findings(self) -> Iterator[AuditFinding]:
        yield from self._visible_findings(self._life.head)
        if self._found.left_out:
            yield AuditFinding(FindingKind.more, self._key.topic, self._key.id, in_store=f"{self._found.left_out} more")

    def _add_notes(self) -> None:
        if self._waiting:
            self._report(FindingKind.parked, min(self._waiting), in_store=f"{len(self._waiting)} records in quarantine")
        rows = self._rows
        if rows is None and self._head is None:
            rows = VisibleRows(self._new_rows(), None, self._span.replicated)
        if rows is not None and (hidden := rows.hidden()):
            self._report(FindingKind.hidden_rows, None, in_store=f"{hidden} rows that no reader sees")

    def _report(
        self,
        kind: FindingKind,
        offset: int | None,
        seq_nr: int | None = None,
        in_topic: str | None = None,
        in_store: str | None = None,
    ) -> None:
        key = self._key
        self._found.add(
            AuditFinding(kind, key.topic, key.id, self._place.partition, offset, seq_nr, in_topic, in_store)
        )


def judge_unmentioned(key: Key, state: StoredState, spans: Mapping[int, Span]) -> JournalVerdict:
    """The verdict on a journal of the store without any record in the topic."""
    found = [
        AuditFinding(
            FindingKind.not_in_topic, key.topic, key.id, each.partition, each.offset, in_store="a record in quarantine"
        )
        for each in sorted(state.waiting)
        if _is_within(each, spans)
    ]
    if state.head is None:
        return JournalVerdict(tuple(found))
    place = state.head.partition_offset
    if _is_within(place, spans):
        there = describe_head(state.head)
        surplus = AuditFinding(
            FindingKind.surplus_journal, key.topic, key.id, place.partition, place.offset, None, "nothing", there
        )
        return JournalVerdict((*found, surplus))
    span = spans.get(place.partition)
    return JournalVerdict(tuple(found), older=int(span is None or place.offset < span.first))


def _is_within(place: PartitionOffset, spans: Mapping[int, Span]) -> bool:
    span = spans.get(place.partition)
    return span is not None and span.first <= place.offset <= span.replicated


@dataclass(slots=True)
class FoldedLife:
    """A journal since its last purge as the topic has it so far, and where it last changed."""

    head: JournalHead | None = None
    is_whole: bool = True
    """Whether all of it is known; else it began before the first record that the topic still has."""
    began_at: int = -1
    changed_at: int = -1
    last_at: int = -1
    expiries: set[Expiry | None] = field(default_factory=set)

    def follow(self, record: LogRecord, head: JournalHead | None, *, is_append: bool) -> None:
        before, self.head, self.last_at = self.head, head, record.offset
        if head is None:
            return
        if before is None:
            self.began_at = record.offset
        if before is None or replace(before, partition_offset=head.partition_offset) != head:
            self.changed_at = record.offset
        if is_append and before is not None and before.seq_nr == head.seq_nr and head.expiry is not None:
            # All of them are forks. A replicator that has them in one slice with the append before them takes the day
            # of the expiry from their time: either is right.
            self.expiries |= {head.expiry, expiry_at(timestamp_of(record), head.expiry.after)}
        elif is_append or not self.expiries:
            self.expiries = {head.expiry}

    def agrees(self, head: JournalHead) -> bool:
        """Whether the head of the store is the one that the topic leads to.

        Its offset need not include actions that change nothing.
        """
        expected = self.head
        if expected is None:
            return False
        same = (head.seq_nr, head.delete_to or 0) == (expected.seq_nr, expected.delete_to or 0)
        is_placed = not self.is_whole or self.changed_at <= head.partition_offset.offset <= self.last_at
        return same and is_placed and (not self.expiries or head.expiry in self.expiries)


@dataclass(frozen=True, slots=True)
class _Stopped:
    """The first record that cannot be applied has come."""

    life: Life | None


MAX_MISPLACED: Final = 100


class VisibleRows:
    """The rows that a journal's head makes visible, in the order of their numbers.

    Visible rows in the wrong segment are set aside, hidden rows are counted.
    """

    def __init__(self, rows: Iterator[StoredRow], head: JournalHead | None, replicated: int) -> None:
        """Hidden rows after the offset `replicated` belong to a slice that is being written."""
        self.misplaced: list[StoredRow] = []
        self._rows = rows
        self._head = head
        self._replicated = replicated
        self._hidden = 0
        self._next: StoredRow | None = None

    def peek(self) -> StoredRow | None:
        """The next visible row without taking it; None at the end."""
        while self._next is None:
            row = next(self._rows, None)
            if row is None:
                return None
            if not self._is_visible(row):
                self._hidden += row.columns.offset <= self._replicated
            elif self._is_placed(row):
                self._next = row
            elif len(self.misplaced) < MAX_MISPLACED:
                self.misplaced.append(row)
        return self._next

    def take(self) -> StoredRow:
        """Takes the next visible row; call it after `peek` has returned it."""
        row = self.peek()
        if row is None:
            raise LookupError("There is no row left.")
        self._next = None
        return row

    def hidden(self) -> int:
        """How many rows no reader sees; reads to the end."""
        while self.peek() is not None:
            self._next = None
        return self._hidden

    def _is_visible(self, row: StoredRow) -> bool:
        head = self._head
        if head is None or not (head.delete_to or 0) < row.seq_nr <= head.seq_nr:
            return False
        return head.record_id is None or row.record_id == head.record_id

    def _is_placed(self, row: StoredRow) -> bool:
        return self._head is not None and row.segment == journal_segment(row.seq_nr, self._head.segment_size)
