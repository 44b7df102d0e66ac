"""A killed server keeps what it acknowledged, and comes back on the same port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition

from inorder.embedded import Kafka, MariaDB, Postgres, Redis


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[Postgres]:
    with Postgres(tmp_path / "postgres") as server:
        yield server
    server.discard()


def count(server: Postgres) -> int:
    with psycopg.connect(server.url.replace("+psycopg", "")) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    return row[0] if row else -1


def insert(server: Postgres) -> None:
    with psycopg.connect(server.url.replace("+psycopg", "")) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")


@pytest.mark.full
@pytest.mark.parametrize("way", ["kill", "stop"])
def test_postgres_keeps_committed_rows_and_its_url(own_postgres: Postgres, way: str) -> None:
    url = own_postgres.url
    insert(own_postgres)
    getattr(own_postgres, way)()
    own_postgres.start()
    assert own_postgres.url == url
    assert count(own_postgres) == 1


@pytest.mark.full
def test_postgres_stops_although_clients_are_connected(own_postgres: Postgres) -> None:
    insert(own_postgres)
    connection = psycopg.connect(own_postgres.url.replace("+psycopg", ""))
    connection.execute("SELECT 1")
    own_postgres.restart()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    connection.close()
    assert count(own_postgres) == 1


@pytest.mark.full
def test_another_postgres_takes_the_folder_of_a_stopped_one(own_postgres: Postgres) -> None:
    insert(own_postgres)
    own_postgres.stop()
    with Postgres(own_postgres.folder, durable=False) as other:
        assert count(other) == 1


@pytest.mark.full
def test_kafka_keeps_acknowledged_records_and_its_address_over_kill_and_stop(tmp_path: Path, unique: str) -> None:
    with Kafka(tmp_path) as server:
        bootstrap = server.bootstrap
        produce(bootstrap, unique, b"before")
        server.kill()
        server.start()
        produce(bootstrap, unique, b"between")
        server.restart()
        assert server.bootstrap == bootstrap
        assert values(bootstrap, unique, 2) == [b"before", b"between"]
    server.discard()


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    producer.produce(topic, partition=0, value=value)
    assert producer.flush(60) == 0


def values(bootstrap: str, topic: str, wanted: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(wanted, 30)]
    consumer.close()
    return found


@pytest.mark.full
def test_mariadb_keeps_committed_rows_when_killed(tmp_path: Path) -> None:
    with MariaDB(tmp_path) as server:
        server.create_database("kept")
        with pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="kept") as connection:
            connection.cursor().execute("CREATE TABLE kept (id INT)")
            connection.cursor().execute("INSERT INTO kept VALUES (1)")
            connection.commit()
        server.kill()
        server.start()
        with pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="kept") as connection:
            assert connection.cursor().execute("SELECT id FROM kept") == 1
    server.discard()


@pytest.mark.full
def test_redis_keeps_its_keys_over_a_restart(tmp_path: Path) -> None:
    with Redis(tmp_path) as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("kept", "1")
        server.restart()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("kept") == b"1"
