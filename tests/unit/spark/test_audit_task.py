"""Entries in Arrow batches, results as rows of JSON, and errors that keep their kind on the way to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest

from inorder.journal.audit.compare import JournalVerdict, Span
from inorder.journal.audit.findings import AuditFinding, FindingKind, JournalRows
from inorder.journal.audit.job import AuditTotals, JudgedJournal
from inorder.journal.audit.on_spark import AuditTask, parse_result, read_entries
from inorder.model.errors import UnreachableError
from tests.unit.journal.audited import Audited
from tests.unit.journal.replicated_topic import TOPIC, Topic, key

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@pytest.fixture
def world() -> Audited:
    world = Audited()
    world.topic.append("a", 1, 2)
    world.topic.append("b", 1)
    world.flush()
    return world


def arrow(topic: Topic, ids: tuple[str, ...] = ("a", "b")) -> Iterator[pa.RecordBatch]:
    """A batch for each journal: the store's word, then its records."""
    for id in ids:
        rows: list[dict[str, Any]] = [{"topic": TOPIC, "key": id.encode(), "partition": -1, "offset": -1}]
        for offset, each in enumerate(topic.records):
            if each.key == id.encode():
                headers = [{"key": name, "value": value} for name, value in each.headers]
                micros = (each.timestamp_ms or 0) * 1000
                place = {"topic": TOPIC, "key": each.key, "partition": 0, "offset": offset}
                rows.append(place | {"value": each.value, "timestamp": micros, "headers": headers})
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def results(world: Audited) -> list[JudgedJournal | AuditTotals]:
    task = AuditTask(lambda: world.rows, {(TOPIC, 0): Span(0, 1)}, 3).results()
    return [parse_result(row["result"]) for batch in task(arrow(world.topic)) for row in batch.to_pylist()]


def test_an_entry_is_the_record_as_it_came(world: Audited) -> None:
    marker, found = read_entries(next(arrow(world.topic)))
    assert (marker.key, marker.record) == (key("a"), None)
    record = world.topic.records[0]
    assert found.record is not None
    assert (found.partition, found.record.offset) == (0, 0)
    assert tuple(found.record)[1:] == (record.timestamp_ms, record.key, record.value, record.headers)


def test_journals_that_agree_are_summed_up(world: Audited) -> None:
    assert results(world) == [AuditTotals(journals=2, events=3)]


def test_a_difference_reaches_the_driver(world: Audited) -> None:
    world.rows.changes[key("a")] = lambda rows: rows[1:]
    judged, totals = results(world)
    assert isinstance(judged, JudgedJournal)
    (found,) = judged.verdict.findings
    assert (judged.key, found.kind, found.seq_nr, found.offset) == (key("a"), FindingKind.missing_event, 1, 0)
    assert (judged.verdict.events, totals) == (2, AuditTotals(journals=1, events=1))


def test_an_unsettled_verdict_survives_its_journey(world: Audited) -> None:
    head = world.store.head(key("a"))
    assert head is not None
    world.rows.heads[key("a")] = replace(head, partition_offset=replace(head.partition_offset, offset=9), seq_nr=1)
    judged, _ = results(world)
    assert isinstance(judged, JudgedJournal)
    assert not judged.verdict.is_settled


def test_an_error_keeps_its_kind(world: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(keys: object) -> None:
        raise UnreachableError("Nobody is there.", hint="Start it.")

    monkeypatch.setattr(world.rows, "states", fail)
    with pytest.raises(UnreachableError, match=r"Nobody is there. Start it."):
        results(world)


def test_the_ids_of_a_store_come_in_batches(world: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inorder.journal.audit.on_spark._IDS_PER_BATCH", 1)

    def rows() -> JournalRows:
        return world.rows

    topics = pa.RecordBatch.from_pydict({"topic": [TOPIC]})
    batches = list(AuditTask(rows, {}, 3).ids()([topics]))
    assert sorted(batch.to_pydict()["key"] for batch in batches if batch.num_rows) == [[b"a"], [b"b"]]
    assert {name for batch in batches for name in batch.to_pydict()["topic"]} == {TOPIC}


def test_a_result_is_plain_json() -> None:
    finding = AuditFinding(FindingKind.fork, TOPIC, "a")
    text = json.dumps(
        {"key": ["a", TOPIC], "findings": [finding.as_dict()], "is_settled": True, "events": 1, "older": 2}
    )
    assert parse_result(text) == JudgedJournal(key("a"), JournalVerdict((finding,), True, 1, 2))
