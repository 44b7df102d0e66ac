"""Both engines read from a broker that requires TLS, a client's certificate and a password."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import SparkSession

from inorder.embedded.kafka import SecuredKafka
from inorder.engines.micro_batch import MicroBatch
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.resident import Resident
from inorder.engines.running import Engine
from inorder.kafka.java_client import java_properties
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from tests.fakes.table_store import message
from tests.integration.pipeline.engines import upsert_work
from tests.secured_broker import Certificates, issue
from tests.selection import few

INLINE = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.key.location": "ssl.key.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return issue(tmp_path_factory.mktemp("certificates"), client_certificates=True)


@pytest.fixture(scope="module")
def broker(servers_folder: Path, certificates: Certificates) -> Iterator[SecuredKafka]:
    with SecuredKafka(servers_folder / "strict-kafka", certificates.broker) as server:
        yield server


def as_texts(properties: dict[str, str]) -> dict[str, str]:
    """The same with keys and certificates in the settings themselves."""
    return {
        INLINE.get(name, name): Path(value).read_text() if name in INLINE else value
        for name, value in properties.items()
    }


def engine_of(kind: str, spark: SparkSession, stores: SqlTableStores, topic: str, properties: Any) -> Engine:
    work = upsert_work(stores, TableMapping("people", topic, "people", fields=(("name", "text"),)))
    if kind == "resident":
        return Resident(spark, work, KafkaSource(properties))
    return MicroBatch(spark, work, KafkaSource(properties), java_properties(properties))


@pytest.mark.full
@pytest.mark.parametrize("kind", few(["micro-batch files", "micro-batch texts", "resident files"], "micro-batch texts"))
def test_an_engine_reads_with_certificate_and_password(
    kind: str,
    spark: SparkSession,
    broker: SecuredKafka,
    certificates: Certificates,
    postgres_url: str,
    unique: str,
    direct: Connection[Any],
) -> None:
    engine, form = kind.split()
    properties = {**broker.client_properties, **certificates.client_properties}
    properties = as_texts(properties) if form == "texts" else properties
    mapping = TableMapping("people", unique, "people", fields=(("name", "text"),))
    producer = Producer(properties)
    for key in range(10):
        producer.produce(unique, message(key, name="Ada"), str(key))
    assert producer.flush(60) == 0
    stores = SqlTableStores(postgres_url, mapping)
    engine_of(engine, spark, stores, unique, properties).run(threading.Event(), once=True)
    assert direct.execute("SELECT name, count(*)::int FROM people GROUP BY 1").fetchall() == [("Ada", 10)]
