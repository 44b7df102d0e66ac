"""Every embedded server answers a real request of its protocol."""

from __future__ import annotations

import psycopg
import pymysql
import redis
from cassandra.cluster import Cluster
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from inorder.embedded import spark_jars
from inorder.embedded.jars import jar_set


def test_postgres_gives_each_test_an_empty_database(postgres_url: str, unique: str) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        settings = connection.execute("SELECT current_database(), current_setting('server_version_num')")
        database, version = settings.fetchone() or ("", "")
    assert tables == (0,)
    assert database == unique
    assert int(version) // 10_000 == 18


def test_the_postgres_url_is_one_for_sqlalchemy(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=NullPool)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT lower('Ä')")).scalar() == "ä"
    assert make_url(postgres_url).drivername == "postgresql+psycopg"


def test_postgres_listens_on_the_loopback_address_only(postgres_url: str) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)


def test_kafka_takes_a_record_and_shows_its_topic(kafka_bootstrap: str, unique: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "acks": "all"})
    producer.produce(unique, key=b"k", value=b"v")
    assert producer.flush(60) == 0
    topics = AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics(timeout=10).topics
    assert len(topics[unique].partitions) == 4


def test_kafka_carries_a_transaction_to_a_group(kafka_bootstrap: str, unique: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": unique})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(unique, value=b"committed")
    producer.commit_transaction(30)
    settings = {"bootstrap.servers": kafka_bootstrap, "group.id": unique, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([unique])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"committed"


def test_mariadb_gives_each_test_an_empty_database(mariadb_url: str, unique: str) -> None:
    address = make_url(mariadb_url)
    assert address.drivername == "mysql+pymysql"
    assert address.port is not None
    with pymysql.connect(host=address.host, port=address.port, user=address.username, database=unique) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (name VARCHAR(10)) ENGINE=InnoDB")
        cursor.execute("INSERT INTO t VALUES ('žluť 🐎')")
        cursor.execute("SELECT name, database(), version() FROM t")
        name, database, version = cursor.fetchone() or ("", "", "")
    assert (name, database) == ("žluť 🐎", unique)
    assert version.startswith("11.4.")


def test_redis_keeps_a_key_with_its_time_to_live(redis_url: str, unique: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.set(unique, "owner", nx=True, px=60_000)
        assert not client.set(unique, "other", nx=True, px=60_000)
        assert client.get(unique) == b"owner"
        assert str(client.info("server")["redis_version"]).startswith("6.2.")


def test_cassandra_answers_a_compare_and_set(cassandra_address: tuple[str, int], unique: str) -> None:
    host, port = cassandra_address
    cluster = Cluster([host], port=port)
    try:
        session = cluster.connect()
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        session.execute(f"CREATE KEYSPACE {unique} WITH replication = {replication}")
        session.execute(f"CREATE TABLE {unique}.pointer (id int PRIMARY KEY, place bigint)")
        insert = f"INSERT INTO {unique}.pointer (id, place) VALUES (1, 1) IF NOT EXISTS"
        applied = [session.execute(insert).was_applied for _ in range(2)]
        version = session.execute("SELECT release_version FROM system.local").one()[0]
        session.execute(f"DROP KEYSPACE {unique}")
    finally:
        cluster.shutdown()
    assert applied == [True, False]
    assert version == "5.0.9"


def test_spark_jars_are_there_for_a_session() -> None:
    assert [path.rpartition("/")[2] for path in spark_jars()] == [jar.file_name for jar in jar_set("spark").jars]
