"""A topic and a store in memory, and an audit of both without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field

from inorder.journal.audit.compare import Span
from inorder.journal.audit.findings import AuditFinding
from inorder.journal.audit.job import AuditEntry, AuditTotals, JudgedJournal, judge, settle
from inorder.journal.replication.actions import id_of
from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.stores.ports import LogRecord
from inorder.model.journal import Key
from tests.fakes.replica import MemoryJournalRows, MemoryReplica
from tests.unit.journal.replicated_topic import TOPIC, Topic


@dataclass
class Audited:
    """What was written to the topic is replicated by `flush`; `first` is where retention has left it."""

    topic: Topic = field(default_factory=Topic)
    store: MemoryReplica = field(default_factory=MemoryReplica)
    first: int = 0
    segment_size: int = 3
    batch: int = 4
    totals: AuditTotals = field(default_factory=AuditTotals)
    meanwhile: Callable[[], None] = lambda: None
    """Called in each look, after its offsets are known."""
    _replicated: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = MemoryJournalRows(self.store)

    def flush(self, *sizes: int) -> None:
        """Replicates what is new, in slices of these sizes."""
        offset = self.store.offset(TOPIC, 0)
        first = 0 if offset is None else offset + 1
        for batch in self.topic.chunks(first, sizes or (len(self.topic.records),)):
            ReplicateWorker(self.store, self.segment_size).apply(batch, expected=first)

    def audit(self) -> list[AuditFinding]:
        """Differences and notes."""
        self._replicated, self.totals = [], AuditTotals()
        return list(settle(self._look, self.totals))

    def kinds(self) -> list[str]:
        """The kinds of what is found."""
        return [str(each.kind) for each in self.audit()]

    def differences(self) -> list[AuditFinding]:
        """Notes left out."""
        return [each for each in self.audit() if each.kind.is_difference]

    def _look(self, suspects: Set[Key] | None) -> Iterator[JudgedJournal]:
        offset = self.store.offset(TOPIC, 0)
        before = self._replicated[-1] if self._replicated else None
        span = Span(self.first, -1 if offset is None else offset, before)
        self._replicated.append(span.replicated)
        entries = [each for each in self._entries(span.replicated) if suspects is None or each.key in suspects]
        self.meanwhile()
        entries.sort(key=lambda each: (each.key, -1 if each.record is None else each.record.offset))
        batches = [entries[start : start + self.batch] for start in range(0, len(entries), self.batch)]
        return judge(batches, self.rows, {(TOPIC, 0): span}, self.segment_size)

    def _entries(self, last: int) -> Iterator[AuditEntry]:
        for id in self.rows.ids(TOPIC):
            yield AuditEntry(Key(id, TOPIC), -1, None)
        for offset, each in enumerate(self.topic.records[: last + 1]):
            if offset >= self.first and each.key:
                record = LogRecord(offset, each.timestamp_ms, each.key, each.value, each.headers)
                yield AuditEntry(Key(id_of(each.key), TOPIC), 0, record)
