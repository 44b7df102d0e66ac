"""Keys that are parked in several shards, on real servers: a retried row comes once, before all that waited for it."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import closing

import pytest

import inorder
from inorder.database.database import open_database
from inorder.database.mysql import connect as mysql_connect
from inorder.database.postgres import connect as postgres_connect
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.model.message import Message
from inorder.model.partitioning import shard_of
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from tests.conftest import Eventually
from tests.integration.relay.conftest import alter_topic
from tests.operating import exceeded_rows, settle_exceeded
from tests.selection import few

SHARDS = 4
KEYS = [f"key-{number}" for number in range(6)]
LIMIT = 20_000
LARGE = random.Random(2).randbytes(2 * LIMIT)  # nothing that compression could save

CASES = [f"{database} {strategy}" for database in ("postgres", "mariadb") for strategy in ("drain", "mark-purge")]


@pytest.fixture(params=few(CASES, "postgres mark-purge", "mariadb mark-purge"))
def settings(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str) -> inorder.Settings:
    name, strategy = request.param.split()
    url: str = request.getfixturevalue(f"{name}_url")
    with closing(open_database(url, "test")) as database:
        database.install(install_statements("native", database.dialect, "outbox"))
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 4, {"max.message.bytes": str(LIMIT)})
    relay = {"leadership": "none", "group": unique, "shards": SHARDS, "strategy": strategy, "max_attempts": 2}
    return inorder.Settings.load(kafka={"bootstrap.servers": kafka_bootstrap}, database={"url": url}, relay=relay)


def publish(settings: inorder.Settings, topic: str, *values: str | bytes) -> None:
    """Each value once for each key, in one transaction."""
    url = settings.database.require_url()
    connection = (mysql_connect if "mysql" in url else postgres_connect)(url, "test")
    with closing(connection):
        Outbox().publish_list(connection, [Message(topic, key=key, value=each) for each in values for key in KEYS])
        connection.commit()


def waiting(settings: inorder.Settings) -> int:
    with closing(open_database(settings.database.require_url(), "test")) as database:
        return int(database.execute("SELECT COUNT(*) FROM outbox").rows[0][0])


def by_key(settings: inorder.Settings, topic: str) -> dict[str, list[bytes]]:
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for record in read_back(settings.kafka.properties, topic):
        found[(record.key or b"").decode()].append((record.value or b"")[:10])
    return dict(found)


@pytest.mark.full
def test_retried_rows_of_several_shards_come_once_and_in_order(
    settings: inorder.Settings, unique: str, eventually: Eventually
) -> None:
    assert len({shard_of(unique, key.encode(), 0, SHARDS) for key in KEYS}) > 1
    publish(settings, unique, LARGE, "2", "3")
    with inorder.Relay(settings):
        # Four shards abort a transaction for each attempt, which takes the broker long on a busy machine.
        eventually(lambda: len(exceeded_rows(settings)) == len(KEYS), 120)
    with inorder.Relay(settings) as relay:  # a new owner of each shard finds all keys parked
        eventually(lambda: len(relay.leader_ids) == SHARDS)
        publish(settings, unique, "4")
        alter_topic(str(settings.kafka.properties["bootstrap.servers"]), unique, {"max.message.bytes": "1000000"})
        settle_exceeded(settings, "retry", "the topic's limit was raised")
        eventually(lambda: waiting(settings) == 0, 120)
    assert by_key(settings, unique) == {key: [LARGE[:10], b"2", b"3", b"4"] for key in KEYS}
