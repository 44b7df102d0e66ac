"""An audit on Spark: the topics are read as a batch, brought together by journal, and compared in tasks.

    read       Kafka, read_committed, each partition from its first record to its replicated offset
    add        a row for each journal that the store has, so that one which nobody mentions is found too
    together   by topic and key, sorted by partition and offset; Spark sorts on disk what memory does not hold
    compare    mapInArrow (`audit_task`): a stream of entries against a stream of rows
    keep       results on disk, until all tasks are done; then they go to the driver one by one

Nothing is collected at the driver but the keys of journals that must be looked at again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from inorder.journal.audit.auditing import Judged, Totals
from inorder.journal.codec.records import ACTION_HEADER
from inorder.model.journal import Key
from inorder.ports.partition_reader import Place
from inorder.spark.audit_task import ENTRY_SCHEMA, KEY_SCHEMA, RESULT_SCHEMA, AuditTask, result_of
from inorder.spark.faults import spark_errors

RECORDS_PER_TASK: Final = 100_000
"""A task sorts about so many; on any number of cores they take turns."""
_COLUMNS: Final = ("topic", "key", "partition", "offset", "value", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class SparkAudit:
    """Looks at the journals of some partitions; `kafka` are properties of the Java client."""

    spark: SparkSession
    task: AuditTask
    kafka: Mapping[str, str]

    def look(self, suspects: Set[Key] | None, only: str | None = None) -> Iterator[Judged | Totals]:
        """Compares journals: all of them, those given, or those of one id."""
        with spark_errors():
            found = self._entries(suspects, only)
            ordered = found.repartition(self._tasks(), "topic", "key")
            ordered = ordered.sortWithinPartitions("topic", "key", "partition", "offset")
            results = ordered.mapInArrow(self.task.results(), RESULT_SCHEMA).persist(StorageLevel.DISK_ONLY)
            try:
                results.count()
                for row in results.toLocalIterator():
                    yield result_of(row.result)
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
            # A key that is no text is escaped in its id, so it is not found by it. Such keys are few: all are taken.
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
            # What retention takes meanwhile shows as a difference, and the next look begins where the topic does then.
            "failOnDataLoss": "false",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
            "kafka.fetch.max.wait.ms": "10",
        }
        records = self.spark.read.format("kafka").options(**options).load().select(*_COLUMNS)
        # All others are none of ours, and need not travel.
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
def cancelled_by(spark: SparkSession, stop: threading.Event) -> Iterator[None]:
    """Ends what this thread has Spark do when `stop` is set within the block."""
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
