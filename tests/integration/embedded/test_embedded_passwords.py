"""Servers of a stack refuse whoever has no password; their owner finds it in files that nobody else can read."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pymysql
import pytest
import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from inorder.database.credentials import parse_url
from inorder.embedded import Kafka, Postgres, Stack
from inorder.journal.stores.cassandra_session import CassandraSession
from inorder.model.errors import AuthenticationError
from tests.selection import few


def use_postgres(stack: Stack) -> None:
    with psycopg.connect(stack.addresses()["postgres"].replace("+psycopg", "")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def intrude_postgres(port: int, login: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://postgres{login and f':{login}'}@127.0.0.1:{port}/postgres")


def use_mariadb(stack: Stack) -> None:
    url = parse_url(stack.addresses()["mariadb"])
    with pymysql.connect(host=url.host, port=url.port or 0, user=url.username, password=url.password or "") as found:
        assert found.cursor().execute("SELECT 1") == 1


def intrude_mariadb(port: int, login: str) -> None:
    for user in ("root", "", "mariadb.sys"):
        with pytest.raises(pymysql.err.OperationalError, match=r"Access denied|locked"):
            pymysql.connect(host="127.0.0.1", port=port, user=user, password=login)


def use_redis(stack: Stack) -> None:
    with closing(redis.Redis.from_url(stack.addresses()["redis"])) as client:
        assert client.ping()


def intrude_redis(port: int, login: str) -> None:
    with closing(redis.Redis(port=port, password=login or None)) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def use_kafka(stack: Stack) -> None:
    assert AdminClient(dict(stack.settings()["kafka"])).list_topics(timeout=30).brokers


def intrude_kafka(port: int, login: str) -> None:
    properties: dict[str, str | int | float | bool] = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
    if login:
        sasl = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
        properties |= {**sasl, "sasl.username": "inorder", "sasl.password": login}
    with pytest.raises(KafkaException):
        AdminClient(properties).list_topics(timeout=1)


def use_cassandra(stack: Stack) -> None:
    with closing(CassandraSession(stack.settings()["journal"]["store"])) as session:
        assert session.session.execute("SELECT key FROM system.local").one()


def intrude_cassandra(port: int, login: str) -> None:
    for password in (login, "cassandra"):
        name = f"cassandra:{password}@" if password else ""
        with (
            closing(CassandraSession(f"cassandra://{name}127.0.0.1:{port}")) as session,
            pytest.raises(AuthenticationError),
        ):
            session.execute_ddl("SELECT key FROM system.local")


USE: dict[str, Callable[[Stack], None]] = {
    "postgres": use_postgres,
    "kafka": use_kafka,
    "redis": use_redis,
    "mariadb": use_mariadb,
    "cassandra": use_cassandra,
}
INTRUDE: dict[str, Callable[[int, str], None]] = {
    "postgres": intrude_postgres,
    "kafka": intrude_kafka,
    "redis": intrude_redis,
    "mariadb": intrude_mariadb,
    "cassandra": intrude_cassandra,
}
SETS = ["postgres kafka redis", "mariadb cassandra"]


def secrets_of(stack: Stack) -> list[str]:
    return [server.password for server in stack.servers.values() if server.password]


@pytest.mark.parametrize("parts", few(SETS, SETS[0]))
def test_a_stack_refuses_whoever_lacks_its_passwords(parts: str, tmp_path: Path) -> None:
    names = parts.split()
    with Stack(names, tmp_path / "stack", durable=False) as stack:
        secrets = secrets_of(stack)
        assert len(set(secrets)) == len(names)
        for name, server in stack.servers.items():
            USE[name](stack)
            INTRUDE[name](server.port, "")
            INTRUDE[name](server.port, "wrong")
            assert server.folder.stat().st_mode & 0o077 == 0
            assert name != "kafka" or ask_controller(server.folder) == b""
            for pid in server.pids:
                shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
                assert not any(secret.encode() in shown for secret in secrets)
    with Stack(names, tmp_path / "stack", durable=False) as again:
        assert secrets_of(again) == secrets
        for name in names:
            USE[name](again)
    for server in again.servers.values():
        server.discard()


def ask_controller(folder: Path) -> bytes:
    """What Kafka's controller answers who asks, without a login, for the nodes of its cluster."""
    found = re.search(r"CONTROLLER://127\.0\.0\.1:(\d+)", (folder / "server.properties").read_text())
    assert found
    # Request 60 in version 1, number 7, no client id; then: no rights, of controllers.
    request = bytes.fromhex("003c 0001 00000007 ffff 00  00 02 00")
    with socket.create_connection(("127.0.0.1", int(found[1])), timeout=30) as connection:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        return connection.recv(64)


def test_an_open_controller_would_answer(kafka: Kafka) -> None:
    assert ask_controller(kafka.folder)[4:8] == (7).to_bytes(4, "big")


def test_data_that_were_made_without_a_password_stay_as_they_are(tmp_path: Path) -> None:
    with Postgres(tmp_path / "postgres", durable=False) as server:
        assert server.password is None
    with Stack(("postgres",), tmp_path, durable=False) as stack:
        assert stack.open_servers() == ["PostgreSQL"]
        use_postgres(stack)
    server.discard()
