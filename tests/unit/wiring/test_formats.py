"""The formats as they are made from options and settings, without Spark running."""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

import inorder
from inorder.engines.formats import METADATA_KEY, KnownOptions
from inorder.journal.formats import AppendCommit, hash_ids
from inorder.model.errors import ConfigurationError, GuaranteeError
from inorder.model.partitioning import Partitioner
from inorder.pipeline.formats import SentLanes
from inorder.pipeline.job import UpsertWork
from inorder.pipeline.stores.batch_log import KafkaBatchLog, Sent
from inorder.settings import Settings
from inorder.spark.formats import FORMATS, JournalSink, KafkaSink, OutboxSource, TableSink
from tests.fakes.table_store import message
from tests.operating import install_schema

TABLES = """
[database]
url = "sqlite:///shop.db"
[[pipeline.tables]]
topic = "orders"
table = "orders"
[[pipeline.tables]]
topic = "returns"
table = "returned"
[topics.counts]
partitioner = "id-modulo"
"""
VALUE = StructType([StructField("value", BinaryType())])
EVENTS = StructType(
    [StructField("id", StringType()), StructField("seq_nr", LongType()), StructField("payload", StringType())]
)
LANED = StructType([*VALUE.fields, StructField("lane", IntegerType())])

pytestmark = pytest.mark.usefixtures("empty_place")


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "shop.toml"
    file.write_text(TABLES, "utf-8")
    return str(file)


def kafka_columns(metadata: dict[str, str] | None = None) -> StructType:
    return StructType(
        [
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType(), metadata=metadata or {}),
            StructField("value", BinaryType()),
        ]
    )


def test_the_formats_have_the_names_of_the_contract() -> None:
    assert [each.name() for each in FORMATS] == ["inorder.table", "inorder.kafka", "inorder.journal", "inorder.outbox"]


def test_the_name_is_there_and_importing_it_is_cheap() -> None:
    code = "import inorder, sys; inorder.spark; print('pyspark' in sys.modules, 'pydantic' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout == "False False\n"
    assert callable(inorder.spark.register)
    assert callable(inorder.spark.in_order)
    with pytest.raises(AttributeError, match="has no attribute 'registre'"):
        inorder.spark.registre  # noqa: B018 - on purpose


def options(sink: TableSink | KafkaSink) -> KnownOptions:
    return sink.known_options


def test_a_table_is_picked_by_its_name(config: str) -> None:
    sink = TableSink({})
    assert sink.work(options(sink).read({"config": config})).topics == ("orders", "returns")
    assert sink.work(options(sink).read({"config": config, "table": "returned"})).topics == ("returns",)
    with pytest.raises(ConfigurationError, match="no table 'return'; did you mean 'returned'"):
        sink.work(options(sink).read({"config": config, "table": "return"}))


def test_an_option_wins_over_the_file(config: str) -> None:
    sink = KafkaSink({})
    log = sink.log(options(sink).read({"config": config, "bootstrap.servers": "elsewhere:9"}), "copy")
    assert log == KafkaBatchLog((("bootstrap.servers", "elsewhere:9"),), "copy", (("counts", Partitioner.ID_MODULO),))


def test_everything_that_tasks_need_travels_to_them(config: str) -> None:
    given = {"config": config, "topic": "journal", "name": "copy", "whole_partitions": "true"}
    table = {name: given[name] for name in ("config", "whole_partitions")}
    kafka = {name: given[name] for name in ("config", "topic", "name")}
    journal = {name: given[name] for name in ("config", "topic")} | {"whole_journals": "true"}
    writers = [
        TableSink(table).writer(kafka_columns(), overwrite=False),
        TableSink(table).streamWriter(kafka_columns(), overwrite=False),
        KafkaSink(kafka).writer(LANED, overwrite=False),
        KafkaSink(kafka).streamWriter(LANED, overwrite=False),
        JournalSink(journal).writer(EVENTS, overwrite=False),
        JournalSink(journal).streamWriter(EVENTS, overwrite=False),
    ]
    for writer in writers:
        assert type(pickle.loads(pickle.dumps(writer))) is type(writer)  # noqa: S301 - our own


def test_a_table_wants_to_know_that_partitions_are_whole(config: str) -> None:
    sink = TableSink({"config": config})
    with pytest.raises(ConfigurationError, match="not known whether each Kafka partition is whole"):
        sink.writer(kafka_columns(), overwrite=False)
    sink.writer(kafka_columns({METADATA_KEY: "sorted"}), overwrite=False)


@pytest.mark.parametrize(("has_key", "keyless"), [(True, "reject"), (False, "apply")])
def test_without_the_column_key_no_record_is_refused_for_lack_of_one(config: str, has_key: bool, keyless: str) -> None:
    sink = TableSink({"config": config, "whole_partitions": "true"})
    columns = kafka_columns().add("key", BinaryType()) if has_key else kafka_columns()
    work, _ = sink._parts(columns, overwrite=False)
    assert isinstance(work, UpsertWork)
    assert {target.mapping.keyless for target in work.targets} == {keyless}


def test_sinks_only_add(config: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'inorder\.table' appends and never overwrites"):
        TableSink({"config": config}).writer(kafka_columns(), overwrite=True)


def test_a_stream_into_kafka_needs_a_name(config: str) -> None:
    with pytest.raises(ConfigurationError, match="needs the option 'name'"):
        KafkaSink({"config": config, "topic": "a"}).streamWriter(LANED, overwrite=False)
    KafkaSink({"config": config, "topic": "a"}).writer(VALUE, overwrite=False)


def test_a_name_is_of_use_only_with_lanes(config: str) -> None:
    sink = KafkaSink({"config": config, "topic": "a", "name": "copy"})
    for writer in (sink.writer, sink.streamWriter):
        with pytest.raises(ConfigurationError, match="The data has no column 'lane'") as refused:
            writer(VALUE, overwrite=False)
        assert "inorder.spark.by_key(df, 8)" in refused.value.hint


def test_a_record_has_its_topic_from_one_place(config: str) -> None:
    both = StructType([StructField("topic", StringType()), *VALUE.fields])
    with pytest.raises(ConfigurationError, match="needs the option 'topic'"):
        KafkaSink({"config": config}).writer(VALUE, overwrite=False)
    with pytest.raises(ConfigurationError, match="Rows have a column 'topic', and the option says 'a'"):
        KafkaSink({"config": config, "topic": "a"}).writer(both, overwrite=False)


def test_unknown_options_are_refused_by_every_format(config: str) -> None:
    for refuse in (
        lambda: TableSink({"confg": config}).writer(kafka_columns(), overwrite=False),
        lambda: KafkaSink({"confg": config}).writer(VALUE, overwrite=False),
        lambda: JournalSink({"confg": config}).writer(VALUE, overwrite=False),
        lambda: OutboxSource({"confg": config}).reader(VALUE),
    ):
        with pytest.raises(ConfigurationError, match="has no option 'confg'; did you mean 'config'"):
            refuse()


def test_rows_of_tasks_reach_the_table_once_and_a_partition_in_two_tasks_is_seen(config: str, tmp_path: Path) -> None:
    install_schema(Settings.load(config), "table")
    writer = TableSink({"config": config, "whole_partitions": "true"}).writer(kafka_columns(), overwrite=False)
    tasks = [task(("orders", 0, 1), ("orders", 0, 2)), task(("returns", 0, 7)), task()]
    for _ in range(2):
        writer.commit([writer.write(iter(batches)) for batches in tasks])
        with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
            assert shop.execute("SELECT id, data, version_offset FROM orders ORDER BY id").fetchall() == [
                (1, "orders 1", 1),
                (2, "orders 2", 2),
            ]
            assert shop.execute("SELECT id FROM returned").fetchall() == [(7,)]
    apart = [writer.write(iter(batches)) for batches in (task(("orders", 1, 8)), task(("orders", 1, 3)))]
    with pytest.raises(GuaranteeError, match=r"orders\[1\] was split over several Spark partitions"):
        writer.commit([*apart, None])


def task(*rows: tuple[str, int, int]) -> list[pa.RecordBatch]:
    """The Arrow batches of one task: a message at each offset, whose id is the offset."""
    if not rows:
        return []
    topics, partitions, offsets = zip(*rows, strict=True)
    values = [message(offset, data=f"{topic} {offset}") for topic, _, offset in rows]
    columns = {"topic": topics, "partition": partitions, "offset": offsets, "value": values}
    return [pa.RecordBatch.from_pydict({name: list(column) for name, column in columns.items()})]


def test_what_two_tasks_have_is_seen_at_the_end_of_every_write(config: str) -> None:
    given = {"config": config, "topic": "journal"}
    journal = JournalSink(given | {"whole_journals": "true"})
    kafka = KafkaSink(given | {"name": "copy"})
    appended = AppendCommit(2, 0, hash_ids(["a", "b"])), AppendCommit(1, 0, hash_ids(["b"]))
    carried = SentLanes({1: Sent(5), 2: Sent(1)}), SentLanes({2: Sent(1)})
    told: list[tuple[Callable[..., None], tuple[WriterCommitMessage, ...], str]] = [
        (journal.writer(EVENTS, overwrite=False).commit, appended, "journal"),
        (partial(journal.streamWriter(EVENTS, overwrite=False).commit, batchId=3), appended, "journal"),
        (kafka.writer(LANED, overwrite=False).commit, carried, "lane 2"),
        (partial(kafka.streamWriter(LANED, overwrite=False).commit, batchId=3), carried, "lane 2"),
    ]
    for commit, messages, thing in told:
        commit([messages[0], None])
        with pytest.raises(GuaranteeError, match=f"The {thing}.* was split over several Spark partitions"):
            commit(list(messages))
