"""The job `audit`: compares topics of journals with their store, on Spark, and ends by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from inorder.engines.running import SparkChoice
from inorder.journal.audit.compare import Span
from inorder.journal.audit.findings import AuditFinding, FindingKind
from inorder.journal.audit.passes import AuditTotals, JudgedJournal, settle
from inorder.journal.stores.opening import StoredRows
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
