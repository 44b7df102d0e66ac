"""An audit on Spark: the topics are read as a batch, brought together by journal, and compared in tasks.

    read       Kafka, read_committed, each partition from its first record to its replicated offset
    add        a row for each journal of the store, so that one without records is found too
    group      by topic and key, sorted by partition and offset; Spark sorts on disk what memory does not hold
    compare    mapInArrow (`AuditTask`): a stream of entries against a stream of rows
    keep       results on disk, until all tasks are done; then they go to the driver one by one

The driver collects nothing but the keys of journals that must be compared again. Journals that agree are summed up in a
task's last row, so what reaches the driver is as large as what is wrong. An error is a row too, so that the driver sees
ours and not Spark's wrapping of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from inorder.engines.session import spark_errors
from inorder.engines.slice_task import Task, record_headers
from inorder.journal.audit.compare import JournalVerdict
from inorder.journal.audit.findings import AuditFinding, JournalRows
from inorder.journal.audit.job import AuditEntry, AuditTotals, JudgedJournal, Spans, judge
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.replication.actions import id_of
from inorder.journal.stores.ports import LogRecord
from inorder.model import errors
from inorder.model.errors import InorderError
from inorder.model.journal import Key
from inorder.model.partitioning import Place

ENTRY_SCHEMA: Final = (
    "topic string, key binary, partition int, offset bigint, value binary, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
RESULT_SCHEMA: Final = "result string"
_KEYS: Final = pa.schema([("topic", pa.string()), ("key", pa.binary())])
KEY_SCHEMA: Final = "topic string, key binary"
_IDS_PER_BATCH: Final = 10_000
_NO_PARTITION: Final = -1


@dataclass(frozen=True, slots=True)
class AuditTask:
    """What tasks need; it is pickled."""

    rows: Callable[[], JournalRows]
    spans: Spans
    segment_size: int

    def results(self) -> Task:
        """The function for `mapInArrow` over sorted entries."""
        return self._results

    def ids(self) -> Task:
        """The function for `mapInArrow` over names of topics: the journals of each in the store."""
        return self._ids

    def _results(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        totals = AuditTotals()
        try:
            with closing(self.rows()) as rows:
                for each in judge(map(read_entries, batches), rows, self.spans, self.segment_size):
                    if each.verdict.findings or not each.verdict.is_settled:
                        yield _batch(_judged_row(each))
                    else:
                        totals.add(each.verdict)
        except InorderError as error:
            yield _batch({"error": type(error).__name__, "message": error.message, "hint": error.hint})
            return
        yield _batch(asdict(totals))

    def _ids(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(self.rows()) as rows:
            for batch in batches:
                for topic in batch.column("topic").to_pylist():
                    yield from _key_batches(topic, rows.ids(topic))


def read_entries(records: pa.RecordBatch) -> list[AuditEntry]:
    names = ("topic", "key", "partition", "offset", "value", "timestamp")
    columns = [records.column(name) for name in names]
    columns[-1] = columns[-1].cast(pa.int64())
    found: list[AuditEntry] = []
    key, last = None, None
    rows = zip(*(column.to_pylist() for column in columns), record_headers(records), strict=True)
    for topic, raw, partition, offset, value, micros, headers in rows:
        if key is None or (topic, raw) != last:  # building a key checks it, which is slow
            key, last = Key(id_of(raw), topic), (topic, raw)
        time = None if micros is None else micros // 1000
        record = None if partition == _NO_PARTITION else LogRecord(offset, time, raw, value, headers)
        found.append(AuditEntry(key, partition, record))
    return found


def parse_result(text: str) -> JudgedJournal | AuditTotals:
    """The result in a row; raises the error that it carries."""
    fields: dict[str, Any] = json.loads(text)
    if "error" in fields:
        kind: type[InorderError] = getattr(errors, fields["error"])
        raise kind(fields["message"], hint=fields["hint"])
    if "key" not in fields:
        return AuditTotals(**fields)
    findings = tuple(map(AuditFinding.of, fields["findings"]))
    return JudgedJournal(
        Key(*fields["key"]), JournalVerdict(findings, fields["is_settled"], fields["events"], fields["older"])
    )


def _judged_row(each: JudgedJournal) -> dict[str, Any]:
    verdict = each.verdict
    return {
        "key": [each.key.id, each.key.topic],
        "findings": [finding.as_dict() for finding in verdict.findings],
        "is_settled": verdict.is_settled,
        "events": verdict.events,
        "older": verdict.older,
    }


def _key_batches(topic: str, ids: Iterator[str]) -> Iterator[pa.RecordBatch]:
    some: list[str] = []
    for id in ids:
        some.append(id)
        if len(some) == _IDS_PER_BATCH:
            yield _keys(topic, some)
            some = []
    yield _keys(topic, some)


def _keys(topic: str, ids: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"topic": [topic] * len(ids), "key": [id.encode() for id in ids]}, schema=_KEYS)


def _batch(fields: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"result": [json.dumps(fields)]})


RECORDS_PER_TASK: Final = 100_000
"""About how many records one task sorts."""
_COLUMNS: Final = ("topic", "key", "partition", "offset", "value", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class SparkAudit:
    """Compares the journals of some partitions; `kafka` are properties of the Java client."""

    spark: SparkSession
    task: AuditTask
    kafka: Mapping[str, str] = field(repr=False)

    def run_pass(self, suspects: Set[Key] | None, only: str | None = None) -> Iterator[JudgedJournal | AuditTotals]:
        """Compares journals: all of them, those given, or those of one id."""
        with spark_errors():
            found = self._entries(suspects, only)
            ordered = found.repartition(self._tasks(), "topic", "key")
            ordered = ordered.sortWithinPartitions("topic", "key", "partition", "offset")
            results = ordered.mapInArrow(self.task.results(), RESULT_SCHEMA).persist(StorageLevel.DISK_ONLY)
            try:
                results.count()
                for row in results.toLocalIterator():
                    yield parse_result(row.result)
            finally:
                results.unpersist()

    def _entries(self, suspects: Set[Key] | None, only: str | None) -> DataFrame:
        found = self._journals().unionByName(self._records())
        if only is not None:
            found = found.filter(sf.col("key") == sf.lit(only.encode()))
        return (found if suspects is None else self._chosen(found, suspects)).select(*_COLUMNS)

    def _chosen(self, found: DataFrame, suspects: Set[Key]) -> DataFrame:
        rows = [(key.topic, bytearray(key.id.encode())) for key in suspects]
        names = sf.broadcast(self.spark.createDataFrame(rows, KEY_SCHEMA))
        chosen = found.join(names, ["topic", "key"], "left_semi")
        if any("\\x" in key.id for key in suspects):
            # A key that is not text is escaped in its id, so it is not found by it. Such keys are few: all are taken.
            is_escaped = ~sf.is_valid_utf8("key") | sf.contains(sf.col("key"), sf.lit(b"\0"))
            chosen = chosen.unionByName(found.filter(is_escaped))
        return chosen

    def _records(self) -> DataFrame:
        spans = {place: span for place, span in self.task.spans.items() if span.replicated >= span.first}
        if not spans:
            return self.spark.createDataFrame([], ENTRY_SCHEMA)
        starts = {place: span.first for place, span in spans.items()}
        options = {f"kafka.{key}": value for key, value in self.kafka.items()} | {
            "assign": json.dumps({topic: list(offsets) for topic, offsets in _by_topic(starts).items()}),
            "startingOffsets": json.dumps(_by_topic(starts)),
            "endingOffsets": json.dumps(_by_topic({place: span.replicated + 1 for place, span in spans.items()})),
            # What retention removes meanwhile shows as a difference; the next pass starts at the topic's new beginning.
            "failOnDataLoss": "false",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
            "kafka.fetch.max.wait.ms": "10",
        }
        records = self.spark.read.format("kafka").options(**options).load().select(*_COLUMNS)
        # Other records are not of journals, and need not be shuffled.
        return records.filter(
            (sf.length("key") > 0) & sf.exists("headers", lambda header: header["key"] == ACTION_HEADER)
        )

    def _journals(self) -> DataFrame:
        topics = sorted({topic for topic, _ in self.task.spans})
        named = self.spark.createDataFrame([(topic,) for topic in topics], "topic string").repartition(1)
        nothing = sf.lit(None)
        return named.mapInArrow(self.task.ids(), KEY_SCHEMA).select(
            "topic",
            "key",
            sf.lit(-1).alias("partition"),
            sf.lit(-1).cast("bigint").alias("offset"),
            nothing.cast("binary").alias("value"),
            nothing.cast("timestamp").alias("timestamp"),
            nothing.cast("array<struct<key: string, value: binary>>").alias("headers"),
        )

    def _tasks(self) -> int:
        records = sum(max(0, span.replicated + 1 - span.first) for span in self.task.spans.values())
        return max(self.spark.sparkContext.defaultParallelism, -(-records // RECORDS_PER_TASK))


@contextmanager
def cancel_on(spark: SparkSession, stop: threading.Event) -> Iterator[None]:
    """Cancels the Spark jobs of this thread when `stop` is set within the block."""
    over, context, tag = threading.Event(), spark.sparkContext, f"audit-{uuid4().hex}"

    def watch() -> None:
        while not over.wait(0.2):
            if stop.is_set():
                context.cancelJobsWithTag(tag)

    thread = threading.Thread(target=watch, name="audit-stop", daemon=True)
    thread.start()
    context.addJobTag(tag)
    try:
        yield
    finally:
        over.set()
        thread.join()
        context.removeJobTag(tag)


def _by_topic(offsets: Mapping[Place, int]) -> dict[str, dict[int, int]]:
    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[partition] = offset
    return topics
