"""What a task of an audit does: entries sorted by journal come as Arrow batches, verdicts go as rows of JSON.

Journals that agree are summed up in the task's last row, so what reaches the driver is as large as what is wrong. An
error is a row too, so that the driver sees ours and not Spark's wrapping of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from inorder.journal.audit.auditing import Entry, Judged, Spans, Totals, judged
from inorder.journal.audit.compare import Verdict
from inorder.journal.audit.findings import Finding
from inorder.journal.audit.stored_rows import JournalRows
from inorder.journal.replication.replicate import id_of
from inorder.model import errors
from inorder.model.errors import InorderError
from inorder.model.journal import Key
from inorder.ports.journal_log import LogRecord
from inorder.spark.slice_task import Task, record_headers

ENTRY_SCHEMA: Final = (
    "topic string, key binary, partition int, offset bigint, value binary, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
RESULT_SCHEMA: Final = "result string"
_KEYS: Final = pa.schema([("topic", pa.string()), ("key", pa.binary())])
KEY_SCHEMA: Final = "topic string, key binary"
_IDS_PER_BATCH: Final = 10_000
_NOBODY: Final = -1


@dataclass(frozen=True, slots=True)
class AuditTask:
    """What tasks need; it travels pickled."""

    rows: Callable[[], JournalRows]
    spans: Spans
    segment_size: int

    def results(self) -> Task:
        """The function for `mapInArrow` over sorted entries."""
        return self._results

    def ids(self) -> Task:
        """The function for `mapInArrow` over names of topics: the journals that the store has of each."""
        return self._ids

    def _results(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        totals = Totals()
        try:
            with closing(self.rows()) as rows:
                for each in judged(map(entries, batches), rows, self.spans, self.segment_size):
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


def entries(records: pa.RecordBatch) -> list[Entry]:
    """The entries of an Arrow batch."""
    names = ("topic", "key", "partition", "offset", "value", "timestamp")
    columns = [records.column(name) for name in names]
    columns[-1] = columns[-1].cast(pa.int64())
    found: list[Entry] = []
    key, last = None, None
    rows = zip(*(column.to_pylist() for column in columns), record_headers(records), strict=True)
    for topic, raw, partition, offset, value, micros, headers in rows:
        if key is None or (topic, raw) != last:  # a key is checked when it is made, and that takes its time
            key, last = Key(id_of(raw), topic), (topic, raw)
        time = None if micros is None else micros // 1000
        record = None if partition == _NOBODY else LogRecord(offset, time, raw, value, headers)
        found.append(Entry(key, partition, record))
    return found


def result_of(text: str) -> Judged | Totals:
    """What a row says; raises the error that it tells of."""
    fields: dict[str, Any] = json.loads(text)
    if "error" in fields:
        kind: type[InorderError] = getattr(errors, fields["error"])
        raise kind(fields["message"], hint=fields["hint"])
    if "key" not in fields:
        return Totals(**fields)
    findings = tuple(map(Finding.of, fields["findings"]))
    return Judged(Key(*fields["key"]), Verdict(findings, fields["is_settled"], fields["events"], fields["older"]))


def _judged_row(each: Judged) -> dict[str, Any]:
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
