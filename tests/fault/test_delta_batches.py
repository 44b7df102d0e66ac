"""Delta tables as targets of the job `upsert`, on real Kafka and Spark, with the pointers' copy in PostgreSQL."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import SparkSession

from inorder.engines.slice_work import Pointer, Slice
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import FencedError, GuaranteeError
from inorder.pipeline.decoding import decode_from
from inorder.pipeline.delta import path_of
from inorder.pipeline.job import TableTarget
from inorder.pipeline.lake import LakeSink, LakeWork
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.delta_table import DeltaTableStore, delta_rows
from inorder.pipeline.stores.ports import NULL
from inorder.pipeline.stores.table import SqlTableStores
from tests.integration.pipeline.engines import Heard, new_engine

PARTITIONS = 2


class Lake:
    """A topic and its Delta table."""

    def __init__(self, spark: SparkSession, bootstrap: str, url: str, topic: str, path: Path) -> None:
        self.spark = spark
        self.topic = topic
        self.mapping = TableMapping("test", topic, "messages", nulls="write", target=f"delta:{path}")
        self.heard = Heard()
        self._bootstrap = bootstrap
        self._stores = SqlTableStores(url, self.mapping)
        with closing(self._stores()) as store:
            store.install()

    def send(self, records: Iterable[tuple[int, bytes | None]]) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        for key, value in records:
            producer.produce(self.topic, value, str(key), key % PARTITIONS)
        assert producer.flush(30) == 0

    def run(self) -> None:
        """To the end of the topic."""
        work = LakeWork((TableTarget(self.mapping, self._stores),))
        engine = new_engine("micro-batch", self.spark, work, self._bootstrap)
        engine.run(threading.Event(), once=True, listener=self.heard)

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """What readers see."""
        found = delta_rows(self.spark, path_of(self.mapping)).collect()
        return {row.id: (row.enabled, row.data) for row in found}


@pytest.fixture
def lake(
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    tmp_path: Path,
) -> Lake:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, PARTITIONS)
    return Lake(spark, kafka_bootstrap, postgres_url, unique, tmp_path / "messages")


def message(key: int, **fields: Any) -> tuple[int, bytes]:
    return key, orjson.dumps({"id": key, **fields})


@pytest.mark.fault
def test_records_reach_a_delta_table_once_and_a_start_continues_at_its_pointers(
    lake: Lake, direct: Connection[Any]
) -> None:
    lake.send([message(1, enabled=True, data="a"), message(2, data="b"), message(1, data="c"), (3, b"no json")])
    lake.run()
    assert lake.rows() == {1: (True, "c"), 2: (None, "b")}
    lake.send([message(1, enabled=False), (2, None)])
    lake.run()
    assert lake.rows() == {1: (False, "c")}
    assert (lake.heard.sum("read"), lake.heard.sum("applied"), lake.heard.sum("rejected")) == (6, 5, 1)
    assert direct.execute("SELECT code FROM inorder_dead_letter").fetchall() == [("not-json",)]
    assert direct.execute("SELECT sum(next_offset)::int FROM inorder_pointer").fetchone() == (6,)


# The sink alone: batches of any chunking, crashes, rivals and restored tables.

Record = tuple[int, int, int, bytes | None]
"""Partition, offset, key and value."""


def records_of(seed: int, count: int = 60) -> list[Record]:
    """A random history: partial updates, nulls, deletes and garbage."""
    chance = random.Random(seed)
    offsets, found = [0, 0], []
    for _ in range(count):
        key = chance.randrange(12)
        fields: dict[str, Any] = {"id": key}
        if chance.random() < 0.7:
            fields["enabled"] = chance.choice([True, False, None])
        if chance.random() < 0.7:
            fields["data"] = chance.choice(["a", "b", "", None])
        value = chance.choices([orjson.dumps(fields), None, b"{"], [8, 2, 1])[0]
        partition = key % PARTITIONS
        found.append((partition, offsets[partition], key, value))
        offsets[partition] += chance.randint(1, 3)
    return found


def model(records: Iterable[Record], mapping: TableMapping) -> dict[int, tuple[Any, ...]]:
    """The rows that the same records leave in a SQL table, by its fold."""
    rows: dict[int, tuple[Any, ...]] = {}
    for partition in range(PARTITIONS):
        own = [record for record in records if record[0] == partition]
        keys = [str(key).encode() for _, _, key, _ in own]
        values = [value for _, _, _, value in own]
        batch = Slice("t", partition, [offset for _, offset, _, _ in own], keys, values, [0] * len(own))
        for row in decode_from(0, mapping, batch).rows if own else ():
            if row.values is not None:
                assert isinstance(row.key, int)
                rows[row.key] = tuple(None if value is NULL else value for value in row.values)
    return rows


def by_partition(records: Iterable[Record]) -> list[tuple[int, list[tuple[int, int, bytes | None]]]]:
    """By partition, the records in offset order."""
    found: dict[int, list[tuple[int, int, bytes | None]]] = {number: [] for number in range(PARTITIONS)}
    for partition, offset, key, value in sorted(records, key=lambda record: record[:2]):
        found[partition].append((key, offset, value))
    return list(found.items())


class SinkTable:
    """A Delta table whose batches come from a list of records instead of a topic."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.mapping = TableMapping("test", "t", "messages", nulls="write", target=f"delta:{folder}/table")
        stores = SqlTableStores(f"sqlite:///{folder}/ledger.db", self.mapping)
        with closing(stores()) as store:
            store.install()
        self.work = LakeWork((TableTarget(self.mapping, stores),))

    def start(self) -> tuple[LakeSink, Mapping[int, Pointer]]:
        """A driver, and where it begins."""
        sink = LakeSink(self.work, self.spark)
        return sink, sink.begin("t", "id", dict.fromkeys(range(PARTITIONS), 0))

    def apply(self, sink: LakeSink, records: Iterable[Record]) -> int:
        """One batch; returns the number of records that it applied or rejected."""
        rows = [
            [
                ("t", partition, offset, str(key).encode(), value, datetime(2026, 1, 1, tzinfo=UTC))
                for key, offset, value in own
            ]
            for partition, own in by_partition(records)
        ]
        columns = "topic string, partition int, offset bigint, key binary, value binary, timestamp timestamp"
        session = self.spark.newSession()
        # One Spark partition for each of Kafka, as its source has it.
        parts = session.sparkContext.parallelize(rows, len(rows)).flatMap(list)
        batch = session.createDataFrame(parts, columns).mapInArrow(sink.task(), sink.schema)
        return sum(each.read - each.replayed for each in sink.commit(batch))

    def catch_up(self, records: list[Record], chunks: int) -> None:
        """A driver that reads from the pointers on, in so many batches."""
        sink, begun = self.start()
        left = [record for record in records if record[1] >= begun[record[0]].next_offset]
        size = -(-len(left) // chunks)
        for first in range(0, len(left), size or 1):
            self.apply(sink, left[first : first + size])
        sink.close()

    def rows(self) -> dict[int, tuple[Any, ...]]:
        found = delta_rows(self.spark, path_of(self.mapping)).collect()
        return {row.id: (row.enabled, row.data) for row in found}


class Died(Exception):  # noqa: N818 - stands for the end of a process
    """The driver dies here."""


@pytest.mark.fault
def test_a_driver_that_dies_around_the_commit_and_replays_in_any_chunking_leave_the_rows_of_a_sql_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, history = SinkTable(spark, tmp_path), records_of(1)
    merge = DeltaTableStore.merge

    def die(before: bool) -> Callable[..., None]:
        def dying(self: DeltaTableStore, *args: Any, **named: Any) -> None:
            if not before:
                merge(self, *args, **named)
            raise Died

        return dying

    for before, expected in ((True, 0), (False, 20)):
        sink, _ = table.start()
        monkeypatch.setattr(DeltaTableStore, "merge", die(before))
        with pytest.raises(Died):
            table.apply(sink, history[:20])
        monkeypatch.setattr(DeltaTableStore, "merge", merge)
        sink.close()
        assert len(table.rows()) == len(model(history[:expected], table.mapping))
    table.catch_up(history, 2)
    assert table.rows() == model(history, table.mapping)
    assert table.start()[1] == table.start()[1]

    # From nothing, although the rows are there: the guard lets no older record through.
    sink, begun = table.start()
    sink._tables["t"].pointers["t"] = {number: replace(one, next_offset=0) for number, one in begun.items()}
    for first in range(0, len(history), 35):
        table.apply(sink, history[first : first + 35])
    sink.close()
    assert table.rows() == model(history, table.mapping)


@pytest.mark.fault
def test_of_two_drivers_one_commits_a_batch_and_the_other_begins_again(spark: SparkSession, tmp_path: Path) -> None:
    table, history = SinkTable(spark, tmp_path), records_of(2)
    one, other = table.start()[0], table.start()[0]
    assert table.apply(one, history[:30]) == 30
    with pytest.raises(FencedError):
        table.apply(other, history[:40])
    assert table.rows() == model(history[:30], table.mapping)
    one.close()
    other.close()
    table.catch_up(history, 1)
    assert table.rows() == model(history, table.mapping)


@pytest.mark.fault
def test_a_restored_table_is_replayed_and_one_that_lost_its_pointers_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, history = SinkTable(spark, tmp_path), records_of(3)
    table.catch_up(history, 2)
    store = DeltaTableStore(spark, table.mapping)
    assert store.optimize()["files_removed"] > 1
    spark.sql(f"RESTORE TABLE delta.`{path_of(table.mapping)}` TO VERSION AS OF 1").collect()
    assert table.rows() == model(history[:30], table.mapping)
    table.catch_up(history, 1)
    assert table.rows() == model(history, table.mapping)
    spark.table(f"delta.`{path_of(table.mapping)}`").write.format("delta").mode("overwrite").save(
        path_of(table.mapping)
    )
    with pytest.raises(GuaranteeError, match="was replaced by WRITE") as caught:
        table.start()
    assert "inorder pipeline reset t --from-first" in caught.value.hint
