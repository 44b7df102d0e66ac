"""Rows of a DataFrame as records, and which batch a task is of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import cast

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyspark import TaskContext

from inorder.model.errors import ConfigurationError, FencedError, PermanentError, ValidationError
from inorder.model.message import OutboxRow
from inorder.pipeline import formats
from inorder.pipeline.formats import BATCH_ID, QUERY_ID, LanedRows, batch_of, chunks, rows, send
from inorder.pipeline.stores.batch_log import BatchId, Part, Sent

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Task:
    """The parts of a task that are used."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802 - Spark's
        return self._properties.get(key)


def batch_from(**properties: str) -> BatchId:
    return batch_of(cast("TaskContext", Task(**properties)))


def test_a_value_alone_is_a_record_of_the_topic_that_the_option_names() -> None:
    [found] = rows(pa.RecordBatch.from_pydict({"value": ["a"]}), "orders", 5)
    assert (found.id, found.topic, found.key, found.value) == (5, "orders", None, b"a")
    assert (found.headers, found.partition, found.timestamp_ms) == ((), None, None)


def test_everything_about_a_row_is_kept() -> None:
    columns = {
        "topic": pa.array(["a", "b"]),
        "key": pa.array(["k", None]),
        "value": pa.array([b"v", None], pa.binary()),
        "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None], HEADERS),
        "partition": pa.array([3, None], pa.int32()),
        "timestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    }
    first, second = rows(pa.RecordBatch.from_pydict(columns), None)
    assert first[:7] == (0, "a", b"k", b"v", (("h", b"1"), ("h", None)), 3, 1_767_225_600_000)
    assert second[:7] == (1, "b", None, None, (), None, None)


@pytest.mark.parametrize("option", [None, "inorder.orders.marker"])
def test_a_row_for_a_topic_of_inorder_s_own_is_refused(option: str | None) -> None:
    columns = {"topic": pa.array(["a", "inorder.orders.marker"]), "value": pa.array(["x", "y"])}
    with pytest.raises(ValidationError, match=r"topic: 'inorder\.orders\.marker' is reserved"):
        rows(pa.RecordBatch.from_pydict(columns), option)


def test_a_row_without_a_topic_is_refused_by_its_place() -> None:
    columns = {"topic": pa.array(["a", None]), "value": pa.array(["x", "y"])}
    with pytest.raises(ValidationError, match="topic: row 11 of the Spark partition has no topic"):
        rows(pa.RecordBatch.from_pydict(columns), None, 10)


def test_rows_are_numbered_through_all_batches_and_chunks_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "ROWS_AT_ONCE", 2)
    batches = [pa.RecordBatch.from_pydict({"value": values}) for values in (["a", "b", "c"], [], ["d"])]
    found = list(chunks([batch for batch in batches if batch.num_rows], "orders", 5))
    assert [(lane, [row.id for row in chunk]) for lane, chunk in found] == [(5, [0, 1]), (5, [2]), (5, [3])]
    assert [row.value for _, chunk in found for row in chunk] == [b"a", b"b", b"c", b"d"]


def test_the_column_says_the_lane_and_order_is_kept_within_it() -> None:
    records = pa.RecordBatch.from_pydict({"value": ["a", "b", "c"], "lane": [4, 2, 4]})
    found = [(lane, [row.value for row in chunk]) for lane, chunk in chunks([records], "orders")]
    assert found == [(4, [b"a", b"c"]), (2, [b"b"])]


def test_a_row_without_a_lane_is_refused() -> None:
    records = pa.RecordBatch.from_pydict({"value": ["a", "b"], "lane": [4, None]})
    with pytest.raises(ValidationError, match="lane: a row has no lane"):
        list(chunks([records], "orders"))


class Parts:
    """A log that records its calls; parts of `refused` lanes cannot be committed."""

    def __init__(self, *refused: int) -> None:
        self.calls: list[str] = []
        self.refused = refused

    def open(self, lane: int, batch: BatchId | None, topics: Collection[str]) -> Part:
        self.calls.append(f"open {lane} {batch} {sorted(topics)}")
        return KeptPart(self, lane)


class KeptPart:
    """One of them."""

    def __init__(self, log: Parts, lane: int) -> None:
        self._log, self._lane, self._count = log, lane, 0

    def add(self, rows: Sequence[OutboxRow]) -> None:
        self._count += len(rows)

    def commit(self) -> Sent:
        if self._lane in self._log.refused:
            raise FencedError("fenced")
        self._log.calls.append(f"commit {self._lane}")
        return Sent(self._count)

    def abort(self) -> None:
        self._log.calls.append(f"abort {self._lane}")


def laned(*lanes: int) -> LanedRows:
    return chunks([pa.RecordBatch.from_pydict({"value": ["x"] * len(lanes), "lane": list(lanes)})], "orders")


def test_each_lane_is_a_part_of_its_own() -> None:
    log = Parts()
    assert send(log, None, laned(1, 2, 1)) == {1: Sent(2), 2: Sent(1)}
    assert log.calls == ["open 1 None ['orders']", "open 2 None ['orders']", "commit 1", "commit 2"]
    assert send(log, None, []) == {}


def test_what_is_open_is_let_go_when_a_lane_fails() -> None:
    log = Parts(2)
    with pytest.raises(FencedError):
        send(log, None, laned(1, 2, 3))
    assert log.calls[3:] == ["commit 1", "abort 1", "abort 2", "abort 3"]


def test_a_lane_for_each_row_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="more than 64 lanes"):
        send(Parts(), None, laned(*range(65)))


def test_a_task_knows_its_batch() -> None:
    assert batch_from(**{QUERY_ID: "q", BATCH_ID: "7"}) == BatchId("q", 7)


@pytest.mark.parametrize("properties", [{}, {QUERY_ID: "q"}, {BATCH_ID: "7"}])
def test_a_spark_that_does_not_tell_the_batch_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(PermanentError, match="does not name the batch"):
        batch_from(**properties)
