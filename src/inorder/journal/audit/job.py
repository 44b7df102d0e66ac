"""The job `audit`: compares topics of journals with their store, on Spark, and ends by itself.

It makes passes until all verdicts are settled. A pass takes entries sorted by journal: first, if the store has the
journal, an entry that says so, then its records by partition and offset. So a journal without any record is found in
the same pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from inorder.engines.running import SparkChoice
from inorder.journal.audit.compare import JournalAudit, JournalVerdict, Span, judge_unmentioned
from inorder.journal.audit.findings import AuditFinding, FindingKind, JournalRows, StoredState
from inorder.journal.stores.opening import StoredRows
from inorder.journal.stores.ports import LogRecord
from inorder.kafka.admin import Cluster
from inorder.kafka.java_client import java_properties
from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.journal import Key
from inorder.model.partitioning import Extent, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Audit:
    """Reports every difference and note to `on_finding`, and returns totals; `topics` and `id` narrow it down."""

    rows: StoredRows
    properties: Mapping[str, Any] = field(repr=False)
    """Of the Kafka client. Not shown, as they may hold a password."""
    segment_size: int
    topics: tuple[str, ...]
    on_finding: Callable[[AuditFinding], None]
    id: str | None = None
    java: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of the Java client, over what is translated of `properties`."""

    def run(self, choice: SparkChoice, stop: threading.Event) -> dict[str, Any]:
        """On Spark; raises `TransientError` when `stop` is set before the end."""
        from inorder.engines.session import open_session

        with open_session("inorder audit", choice, needs_kafka=True) as spark:
            return self.run_on(spark, stop)

    def run_on(self, spark: SparkSession, stop: threading.Event) -> dict[str, Any]:
        """The same on an open session."""
        from inorder.journal.audit.on_spark import cancel_on

        totals = AuditTotals()
        looks = _Looks(spark, self)
        try:
            with cancel_on(spark, stop):
                for finding in looks.partitions():
                    totals.count(finding)
                    self.on_finding(finding)
                for finding in settle(looks.take, totals):
                    self.on_finding(finding)
        except TransientError:
            if not stop.is_set():
                raise
        if stop.is_set():
            raise TransientError("The audit was stopped before its end.", hint="Run it again.")
        return asdict(totals)


@dataclass(slots=True)
class _Looks:
    """Takes one look after the other, each at the topics and the store as they are then."""

    spark: SparkSession
    audit: Audit
    _replicated: dict[Place, int] = field(default_factory=dict)

    def partitions(self) -> Iterator[AuditFinding]:
        """Partitions whose offset in the store does not fit the topic."""
        extents = self._extents()
        for (topic, partition), offset in self._offsets(extents).items():
            extent = extents[topic, partition]
            if offset >= extent.end:
                ends = f"ends before {extent.end}"
                yield AuditFinding(
                    FindingKind.wrong_offset, topic, None, partition, offset, None, ends, "all is replicated to it"
                )
            elif 0 <= offset < extent.first - 1:
                begins = f"begins at {extent.first}"
                yield AuditFinding(FindingKind.lost_records, topic, None, partition, offset + 1, None, begins, "is due")

    def take(self, suspects: Set[Key] | None) -> Iterator[JudgedJournal | AuditTotals]:
        """One look at some journals, or at all."""
        from inorder.journal.audit.on_spark import AuditTask, SparkAudit

        spans = self._spans()
        task = AuditTask(self.audit.rows, spans, self.audit.segment_size)
        audit = SparkAudit(self.spark, task, java_properties(self.audit.properties, self.audit.java))
        trimmed: Set[Place] | None = None
        for each in audit.run_pass(suspects, self.audit.id):
            if trimmed is None:  # everything was read before the first result came
                trimmed = self._trimmed(spans)
            yield _unsettled(each) if isinstance(each, JudgedJournal) and _touches(each, trimmed) else each

    def _spans(self) -> dict[Place, Span]:
        extents = self._extents()
        spans: dict[Place, Span] = {}
        for place, offset in self._offsets(extents).items():
            extent = extents[place]
            spans[place] = Span(extent.first, min(offset, extent.end - 1), self._replicated.get(place))
            self._replicated[place] = spans[place].replicated
        return spans

    def _offsets(self, places: Mapping[Place, Extent]) -> dict[Place, int]:
        with closing(self.audit.rows()) as rows:
            found = {place: rows.offset(*place) for place in places}
        return {place: -1 if offset is None else offset for place, offset in found.items()}

    def _extents(self) -> dict[Place, Extent]:
        cluster = Cluster(self.audit.properties)
        found: dict[Place, Extent] = {}
        for topic in self.audit.topics:
            extents = cluster.extents(topic)
            if extents is None:
                raise ConfigurationError(f"There is no topic {topic}.", hint="`inorder journal lag` lists them.")
            found |= {(topic, partition): extent for partition, extent in extents.items()}
        return found

    def _trimmed(self, spans: Mapping[Place, Span]) -> Set[Place]:
        now = self._extents()
        return {place for place, span in spans.items() if place not in now or now[place].first > span.first}


def _touches(each: JudgedJournal, places: Set[Place]) -> bool:
    return any((each.key.topic, finding.partition) in places for finding in each.verdict.findings)


def _unsettled(each: JudgedJournal) -> JudgedJournal:
    return each._replace(verdict=replace(each.verdict, is_settled=False))


MAX_PASSES: Final = 5
"""A journal that still differs after this many passes is reported as one that keeps changing."""
KEYS_PER_QUERY: Final = 1_000
"""Journals in one query to the store."""


class AuditEntry(NamedTuple):
    """A record of a journal; None says that the store has the journal."""

    key: Key
    partition: int
    record: LogRecord | None


class JudgedJournal(NamedTuple):
    key: Key
    verdict: JournalVerdict


Spans: TypeAlias = Mapping[Place, Span]


def judge(
    batches: Iterable[Sequence[AuditEntry]], rows: JournalRows, spans: Spans, size: int
) -> Iterator[JudgedJournal]:
    """The verdict on each journal of the entries; heads are read from the store in large queries."""
    states: dict[Key, StoredState] = {}
    current: _Journal | None = None
    for batch in batches:
        _load_states(states, rows, dict.fromkeys(entry.key for entry in batch))
        for entry in batch:
            if current is None or entry.key != current.key:
                if current is not None:
                    yield current.judge()
                current = _Journal(entry.key, states.pop(entry.key), rows, spans, size)
            current.take(entry)
        if current is not None:
            states = {current.key: current.state}
    if current is not None:
        yield current.judge()


def _load_states(states: dict[Key, StoredState], rows: JournalRows, keys: Iterable[Key]) -> None:
    unknown = [key for key in keys if key not in states]
    for _, some in groupby(unknown, lambda key: key.topic):
        of_topic = list(some)
        for start in range(0, len(of_topic), KEYS_PER_QUERY):
            chunk = of_topic[start : start + KEYS_PER_QUERY]
            found = rows.states(chunk)
            states.update((key, found.get(key, StoredState())) for key in chunk)


class _Journal:
    """The entries of one journal; of several partitions the one that its head names is compared."""

    def __init__(self, key: Key, state: StoredState, rows: JournalRows, spans: Spans, size: int) -> None:
        self.key = key
        self.state = state
        self._rows = rows
        self._spans = spans
        self._size = size
        self._audit: JournalAudit | None = None
        self._partitions: set[int] = set()

    def take(self, entry: AuditEntry) -> None:
        record, head = entry.record, self.state.head
        span = self._spans.get((self.key.topic, entry.partition))
        if record is None or span is None or record.offset > span.replicated:
            return
        is_current = head is None or head.partition_offset.partition == entry.partition
        if entry.partition not in self._partitions:
            self._partitions.add(entry.partition)
            if is_current:
                opening = partial(self._rows.rows, self.key, head)
                self._audit = JournalAudit(self.key, entry.partition, span, self.state, opening, self._size)
        if is_current and self._audit is not None:
            self._audit.take(record)

    def judge(self) -> JudgedJournal:
        verdict = self._verdict()
        if verdict.is_suspect and self._rows.states([self.key]).get(self.key, StoredState()) != self.state:
            verdict = replace(verdict, is_settled=False)
        if len(self._partitions) > 1:
            partitions = ", ".join(map(str, sorted(self._partitions)))
            note = AuditFinding(
                FindingKind.moved, self.key.topic, self.key.id, in_topic=f"records in partitions {partitions}"
            )
            verdict = replace(verdict, findings=(*verdict.findings, note))
        return JudgedJournal(self.key, verdict)

    def _verdict(self) -> JournalVerdict:
        if self._audit is not None:
            return self._audit.finish()
        # A key that is not text is escaped in its id: the topic may have the journal all the same.
        if "\\x" in self.key.id:
            return JournalVerdict()
        spans = {partition: span for (topic, partition), span in self._spans.items() if topic == self.key.topic}
        return judge_unmentioned(self.key, self.state, spans)


@dataclass(slots=True)
class AuditTotals:
    journals: int = 0
    events: int = 0
    older: int = 0
    differences: int = 0
    notes: int = 0

    def add(self, verdict: JournalVerdict) -> None:
        self.journals += 1
        self.events += verdict.events
        self.older += verdict.older
        for each in verdict.findings:
            self.count(each)

    def count(self, finding: AuditFinding) -> None:
        self.differences += finding.kind.is_difference
        self.notes += not finding.kind.is_difference


RunPass: TypeAlias = Callable[[Set[Key] | None], Iterable[JudgedJournal | AuditTotals]]
"""Compares some journals, or all of them if None is given; journals that agree may come summed up."""


def settle(run_pass: RunPass, totals: AuditTotals) -> Iterator[AuditFinding]:
    """Runs passes until every journal is settled, and yields what differs in the second pass or later.

    A missing journal may have been purged after the offset that its pass read up to. So it must be missing in two
    passes in a row: the later one read up to an offset that was taken when the journal was already missing.
    """
    suspects: set[Key] | None = None
    missing: set[Key] = set()
    for _ in range(MAX_PASSES):
        is_first, found, now_missing = suspects is None, set[Key](), set[Key]()
        for each in run_pass(suspects):
            if isinstance(each, AuditTotals):
                _add_totals(totals, each)
                continue
            if suspects is not None and each.key not in suspects:
                continue
            if each.verdict.misses_journal:
                now_missing.add(each.key)
            is_seen_twice = each.key in missing or each.key not in now_missing
            if each.verdict.is_suspect and (is_first or not each.verdict.is_settled or not is_seen_twice):
                found.add(each.key)
            else:
                totals.add(each.verdict)
                yield from each.verdict.findings
        suspects, missing = found, now_missing
        if not suspects:
            return
    for key in sorted(suspects or ()):
        totals.journals += 1
        totals.notes += 1
        yield AuditFinding(
            FindingKind.unsettled, key.topic, key.id, in_store=f"it changed during each of {MAX_PASSES} passes"
        )


def _add_totals(totals: AuditTotals, some: AuditTotals) -> None:
    totals.journals += some.journals
    totals.events += some.events
    totals.older += some.older
