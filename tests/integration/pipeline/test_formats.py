"""The formats for users' own Spark applications, on real Spark, Kafka and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from confluent_kafka import Producer, TopicPartition
from psycopg import Connection
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.readwriter import DataStreamWriter

import inorder
from inorder.kafka.readers import committed_consumer
from inorder.model.errors import ConfigurationError, GuaranteeError
from tests.fakes.table_store import message
from tests.integration.pipeline.engines import SPARK_WAIT
from tests.operating import install_schema
from tests.unit.docs.markdown import blocks, page

PARTITIONS = 2
PHYSICAL = "SELECT id, ctid::text, xmin::text, updated_at, data FROM messages ORDER BY id"
SMALL = [(number % PARTITIONS, message(number % 6, data=f"{number}")) for number in range(24)]


def _key_in(value: bytes) -> str | None:
    """The Kafka key of a message of the tests; other values have none."""
    try:
        return str(orjson.loads(value)["id"])
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None


class Shop:
    """A topic, a database and a settings file that names both."""

    def __init__(self, spark: SparkSession, bootstrap: str, url: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = topic
        self.folder = folder
        self.config = str(folder / "shop.toml")
        sections = [
            f'[kafka]\n"bootstrap.servers" = "{bootstrap}"',
            f'[database]\nurl = "{url}"',
            f'[pipeline.upsert]\ntopic = "{topic}"',
        ]
        Path(self.config).write_text("\n".join(sections), "utf-8")
        self.settings = inorder.Settings.load(self.config)

    def produce(self, records: list[tuple[int, bytes]]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for partition, value in records:
            producer.produce(self.topic, value, _key_in(value), partition)
        assert producer.flush(30) == 0

    def records(self) -> DataFrame:
        return self._source(self.spark.read)

    def stream(self) -> DataFrame:
        return self._source(self.spark.readStream)

    def _source(self, reader: Any) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "startingOffsets": "earliest"}
        found: DataFrame = reader.format("kafka").options(**options).load()
        return found

    def append(self, frame: DataFrame, sink: str, **options: str) -> None:
        frame.write.format(sink).option("config", self.config).options(**options).mode("append").save()

    def run(self, writer: DataStreamWriter, checkpoint: str) -> None:
        """Runs a query to the end of the topic."""
        query = (
            writer.option("config", self.config)
            .option("checkpointLocation", str(self.folder / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(int(SPARK_WAIT))

    def forget_last_commit(self, checkpoint: str) -> None:
        """Leaves the checkpoint as a driver does that is killed when all tasks of a batch are done."""
        for file in (self.folder / checkpoint / "commits").iterdir():
            file.unlink()

    def read(self, topic: str) -> list[tuple[str, str]]:
        """Keys and values that readers of committed records see, in order per partition."""
        consumer = committed_consumer({"bootstrap.servers": self.bootstrap}, topic)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found, ended = [], 0
        while ended < PARTITIONS:
            record = consumer.poll(30)
            assert record is not None, "the broker does not answer"
            if record.error() is None:
                found.append(((record.key() or b"").decode(), (record.value() or b"").decode()))
            else:
                ended += 1
        consumer.close()
        return found


@pytest.fixture
def shop(
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    tmp_path: Path,
    create_topic: Callable[..., None],
) -> Shop:
    inorder.spark.register(spark)
    create_topic(unique, PARTITIONS)
    return Shop(spark, kafka_bootstrap, postgres_url, unique, tmp_path)


@pytest.mark.full
def test_filtered_records_reach_the_table_and_a_stream_that_brings_them_again_changes_nothing(
    shop: Shop, direct: Connection[Any]
) -> None:
    install_schema(shop.settings, "table")
    shop.produce(SMALL)
    wanted = shop.records().filter("offset <> 3").withColumn("value", col("value").cast("string"))
    shop.append(inorder.spark.in_order(wanted, 2), "inorder.table")
    before = direct.execute(PHYSICAL).fetchall()
    assert {row[0]: row[-1] for row in before} == {id: str(18 + id) for id in range(6)}

    shop.produce([(0, message(0, data="later"))])
    shop.run(inorder.spark.in_order(shop.stream(), 2).writeStream.format("inorder.table"), "orders")
    rows = direct.execute(PHYSICAL).fetchall()
    assert (rows[0][-1], rows[1:]) == ("later", before[1:]), "a replay must change no row"


def test_a_batch_of_your_own_that_spark_runs_again_changes_no_row(shop: Shop, direct: Connection[Any]) -> None:
    install_schema(shop.settings, "table")
    shop.produce(SMALL)
    totals: list[dict[str, int]] = []

    def apply(batch: DataFrame, number: int) -> None:
        wanted = batch.filter("offset <> 3")
        totals.append(inorder.spark.upsert_batch(wanted, number, settings=shop.settings, tasks=2))

    shop.run(shop.stream().writeStream.foreachBatch(apply), "batches")
    before = direct.execute(PHYSICAL).fetchall()
    assert {row[0]: row[-1] for row in before} == {id: str(18 + id) for id in range(6)}
    shop.forget_last_commit("batches")
    shop.run(shop.stream().writeStream.foreachBatch(apply), "batches")
    assert direct.execute(PHYSICAL).fetchall() == before, "a replay must change no row"
    read = len(SMALL) - PARTITIONS
    assert [(each["read"], each["applied"], each["replayed"]) for each in totals] == [(read, read, 0), (read, 0, read)]

    shop.produce(SMALL)
    spread = shop.records().repartition(3, "offset").sortWithinPartitions("partition", "offset")
    with pytest.raises(GuaranteeError, match="was split over several Spark partitions"):
        inorder.spark.upsert_batch(spread, 0, settings=shop.settings, whole_partitions=True)
    with pytest.raises(ConfigurationError, match="needs a column 'offset'"):
        inorder.spark.upsert_batch(shop.records().drop("offset"), 0, settings=shop.settings)


def localise(source: str, shop: Shop) -> str:
    """An example with the servers, topics and folders of a test."""
    names = {
        '"127.0.0.1:9092"': f'"{shop.bootstrap}"',
        '"upsert"': f'"{shop.topic}"',
        '"inorder.toml"': f'"{shop.config}"',
        '"checkpoints/': f'"{shop.folder}/checkpoints/',
        '"enriched"': f'"{shop.topic}-enriched"',
        '"enrich-orders"': f'"{shop.topic}"',
        '"journal.accounts"': f'"journal-{shop.topic}"',
        "(wanted, 8)": "(wanted, 2)",
        "(enriched, 4)": "(enriched, 2)",
        "settings=inorder.Settings.load": "tasks=2, settings=inorder.Settings.load",
    }
    for name, ours in names.items():
        source = source.replace(name, ours)
    return source


@pytest.fixture
def spark_defaults(spark: SparkSession) -> Iterator[None]:
    """The session has Spark's own defaults meanwhile, as that of a shell has."""
    names = ("spark.sql.adaptive.enabled", "spark.sql.session.timeZone", "spark.sql.execution.arrow.maxRecordsPerBatch")
    ours = {name: spark.conf.get(name) for name in names}
    plain = dict(zip(names, ("true", "Europe/Berlin", "10000"), strict=True))
    for name, value in plain.items():
        spark.conf.set(name, value)
    yield
    for name, before in ours.items():
        spark.conf.set(name, before or "")


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark_defaults")
def test_the_examples_of_the_page_run_in_a_session_without_our_settings(
    shop: Shop, direct: Connection[Any], create_topic: Callable[..., None]
) -> None:
    for layout in ("native", "table", "journal"):
        install_schema(shop.settings, layout)
    create_topic(f"{shop.topic}-enriched", PARTITIONS)
    create_topic(f"journal-{shop.topic}", PARTITIONS)
    shop.produce(SMALL)
    names: dict[str, Any] = {"spark": shop.spark}
    _, _, ours = page("docs/pipeline.md").partition("## Your own Spark applications")
    examples = blocks(ours, "python")
    assert len(examples) == 5
    for example in examples:
        assert len([line for line in example.splitlines() if line.strip()]) <= 12
        exec(compile(localise(example, shop), "docs/pipeline.md", "exec"), names)  # noqa: S102 - our own page
        for query in shop.spark.streams.active:
            query.processAllAvailable()
            query.stop()
    assert dict(direct.execute("SELECT id, data FROM messages")) == {id: str(18 + id) for id in range(6)}
    assert len(shop.read(f"{shop.topic}-enriched")) == len(SMALL)
    with inorder.Journals(shop.settings) as journals:
        read = list(journals.journal(inorder.Key("account-1", f"journal-{shop.topic}")).read())
    assert [record.event.payload for record in read] == ["opened", "paid 10"]


def test_a_kafka_partition_that_is_spread_over_tasks_is_refused(shop: Shop, direct: Connection[Any]) -> None:
    install_schema(shop.settings, "table")
    shop.produce(SMALL)
    with pytest.raises(PySparkException, match="not known whether each Kafka partition is whole"):
        shop.append(shop.records(), "inorder.table")
    assert direct.execute("SELECT count(*) FROM messages").fetchone() == (0,)
    spread = shop.records().repartition(3, "offset").sortWithinPartitions("partition", "offset")
    with pytest.raises(PySparkException, match="was split over several Spark partitions"):
        shop.append(spread, "inorder.table", whole_partitions="true")


def test_a_stream_into_kafka_is_sent_once_however_often_its_batch_is_run(
    shop: Shop, create_topic: Callable[..., None]
) -> None:
    target = f"{shop.topic}-copy"
    create_topic(target, PARTITIONS)
    shop.produce(SMALL)

    def sink() -> DataStreamWriter:
        source = col("partition")
        copied = shop.stream().select(source.cast("string").alias("key"), "value", source.alias("lane"))
        return copied.writeStream.format("inorder.kafka").option("topic", target).option("name", shop.topic)

    shop.run(sink(), "copy")
    shop.forget_last_commit("copy")
    shop.produce([(1, b"next")])
    shop.run(sink(), "copy")
    found = shop.read(target)
    assert len(found) == len(SMALL) + 1
    for partition in range(PARTITIONS):
        expected = [value.decode() for place, value in [*SMALL, (1, b"next")] if place == partition]
        assert [value for key, value in found if key == str(partition)] == expected, "in order per key"


@pytest.mark.full
def test_a_batch_into_kafka_with_a_name_is_sent_once(shop: Shop) -> None:
    rows = [(shop.topic, f"k{number}", f"{number}") for number in range(6)]
    frame = inorder.spark.by_key(shop.spark.createDataFrame(rows).toDF("topic", "key", "value"), 2)
    assert frame.selectExpr("lane <> spark_partition_id() AS differs").filter("differs").isEmpty()
    for _ in range(2):
        shop.append(frame, "inorder.kafka", name=shop.topic)
    assert sorted(shop.read(shop.topic)) == [(f"k{number}", f"{number}") for number in range(6)]


@pytest.mark.full
def test_events_reach_their_journals_once(shop: Shop) -> None:
    install_schema(shop.settings, "journal")
    rows = [(f"account-{id}", number, f"{number}") for number in (2, 1, 3) for id in range(3)]
    events = shop.spark.createDataFrame(rows).toDF("id", "seq_nr", "payload")
    for _ in range(2):
        shop.append(inorder.spark.in_order(events, 2), "inorder.journal", topic=shop.topic)
    with inorder.Journals(shop.settings) as journals:
        for id in range(3):
            read = list(journals.journal(inorder.Key(f"account-{id}", shop.topic)).read())
            assert [(record.seq_nr, record.event.payload) for record in read] == [(1, "1"), (2, "2"), (3, "3")]


@pytest.mark.full
def test_an_outbox_can_be_looked_at_and_not_be_streamed(shop: Shop, postgres_url: str) -> None:
    install_schema(shop.settings, "native")
    engine = sa.create_engine(postgres_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        messages = [inorder.Message("orders", key=f"{number}", value={"id": number}) for number in range(5)]
        inorder.Outbox("outbox").publish_list(connection, messages)
    source = {"config": shop.config, "ids_per_partition": "2"}
    found = shop.spark.read.format("inorder.outbox").options(**source).load().orderBy("id").collect()
    assert [(row.topic, bytes(row.key), bytes(row.value)) for row in found] == [
        ("orders", f"{number}".encode(), f'{{"id":{number}}}'.encode()) for number in range(5)
    ]
    streamed = shop.spark.readStream.format("inorder.outbox").options(**source).load().writeStream.format("noop")
    with pytest.raises(PySparkException, match="inorder relay run") as refused:
        streamed.start().awaitTermination(int(SPARK_WAIT))
    assert "During handling of" not in str(refused.value), "ours is the only error"
