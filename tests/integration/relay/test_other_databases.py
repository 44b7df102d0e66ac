"""On MariaDB and SQLite, too, what is committed arrives once and in order, whoever is late, rolls back or is killed."""

from __future__ import annotations

import random
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inorder.database.database import open_database
from inorder.database.mysql import connect as mysql_connect
from inorder.database.sql import named
from inorder.kafka.readers import read_back
from inorder.model.message import Message
from inorder.model.partitioning import Shard
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.relay.drain import DrainStrategy
from inorder.relay.leadership.lease import NoLease
from inorder.relay.loop import RelayLoop
from inorder.relay.mark_purge import MarkPurgeStrategy
from inorder.relay.options import LoopOptions, Pace
from inorder.relay.stores.exceeded import SqlExceededStore
from inorder.relay.stores.kafka_log import KafkaShardLog
from inorder.relay.stores.mysql_outbox import MySQLOutboxStore
from inorder.relay.stores.sqlite_outbox import SQLiteOutboxStore
from inorder.testing.checker import check_delivery
from tests.conftest import Eventually

WRITERS = 3
TRANSACTIONS = 40
KEYS = [f"key-{number}" for number in range(6)]

Event = tuple[str, int]


class Site(ABC):
    """A database with an outbox, and a table in which each key counts its events."""

    url: str
    dialect: str
    begin: str

    def install(self) -> None:
        with closing(open_database(self.url, "test")) as database:
            database.install(install_statements("native", self.dialect, "outbox"))
            database.install(["CREATE TABLE history (name VARCHAR(20) PRIMARY KEY, events INTEGER NOT NULL)"])
            with database.transaction() as transaction:
                for key in KEYS:
                    transaction.execute("INSERT INTO history VALUES (%(key)s, 0)", {"key": key})

    @abstractmethod
    def connect(self) -> Any: ...

    @abstractmethod
    def store(self, shard: Shard) -> MySQLOutboxStore | SQLiteOutboxStore: ...

    @abstractmethod
    def execute(self, connection: Any, statement: str, bound: dict[str, object]) -> Sequence[Sequence[Any]]: ...

    @abstractmethod
    def disturb(self) -> int:
        """Breaks what can be broken; how much that was."""

    def count(self) -> int:
        with closing(self.connect()) as connection:
            return int(self.execute(connection, "SELECT COUNT(*) FROM outbox", {})[0][0])


class OnMariaDB(Site):
    dialect = "mysql"
    begin = "BEGIN"

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> Any:
        return mysql_connect(self.url, "test")

    def store(self, shard: Shard) -> MySQLOutboxStore:
        return MySQLOutboxStore(self.url, "outbox", shard=shard)

    def execute(self, connection: Any, statement: str, bound: dict[str, object]) -> Sequence[Sequence[Any]]:
        with connection.cursor() as cursor:
            cursor.execute(statement, bound)
            return list(cursor.fetchall())

    def disturb(self) -> int:
        """Kills every connection of the relay, whatever it does."""
        with closing(self.connect()) as connection:
            found = self.execute(
                connection,
                "SELECT id FROM performance_schema.session_connect_attrs"
                " JOIN information_schema.processlist ON id = processlist_id"
                " WHERE attr_name = 'program_name' AND attr_value LIKE 'inorder relay%%' AND db = DATABASE()",
                {},
            )
            for (id,) in found:
                # One that ended by itself meanwhile is gone all the same.
                self.execute(connection, f"BEGIN NOT ATOMIC DECLARE CONTINUE HANDLER FOR 1094 DO 0; KILL {id}; END", {})
            return len(found)


class OnSQLite(Site):
    dialect = "sqlite"
    begin = "BEGIN IMMEDIATE"

    def __init__(self, file: Path) -> None:
        self.url = f"sqlite:///{file}"
        self._file = file

    def connect(self) -> Any:
        return sqlite3.connect(self._file, timeout=60, isolation_level=None, check_same_thread=False)

    def store(self, shard: Shard) -> SQLiteOutboxStore:
        return SQLiteOutboxStore(self.url, "outbox", shard=shard)

    def execute(self, connection: Any, statement: str, bound: dict[str, object]) -> Sequence[Sequence[Any]]:
        return list(connection.execute(named(statement), bound).fetchall())

    def disturb(self) -> int:
        """Keeps the file busy for a while."""
        with closing(self.connect()) as connection:
            connection.execute(self.begin)
            threading.Event().wait(0.1)
            connection.rollback()
        return 1


@dataclass
class Relays:
    """One relay loop a shard, each on its thread."""

    site: Site
    properties: dict[str, object]
    group: str
    stopping: threading.Event = field(default_factory=threading.Event)
    loops: list[RelayLoop] = field(default_factory=list)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    _running: list[Future[None]] = field(default_factory=list)
    _closing: list[Any] = field(default_factory=list)

    def start(self, strategy: str, shards: int) -> None:
        for index in range(shards):
            store = self.site.store(Shard(index, shards))
            database = open_database(self.site.url, "inorder relay (exceeded)")
            log = KafkaShardLog(self.properties, group=self.group, shard=index, shards=shards)
            exceeded = SqlExceededStore(database, "outbox")
            kind = DrainStrategy if strategy == "drain" else MarkPurgeStrategy
            loop = RelayLoop(
                kind(store, batch_size=20),
                exceeded,
                log,
                NoLease(),
                LoopOptions(stop=self.stopping, shard_index=index, pace=Pace(back_off=0.02)),
            )
            self.loops.append(loop)
            self._closing += [store, database, log]
            self._running.append(self._pool.submit(loop.run))

    def have_published(self, events: int) -> bool:
        return sum(loop.progress.published for loop in self.loops) >= events

    def stop(self) -> None:
        """Ends all of them; raises what any of them ended with."""
        self.stopping.set()
        try:
            for running in self._running:
                running.result(60)
        finally:
            self._pool.shutdown()
            for thing in self._closing:
                thing.close()


@pytest.fixture(params=["mariadb", "sqlite"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    found: Site
    if request.param == "mariadb":
        found = OnMariaDB(request.getfixturevalue("mariadb_url"))
    else:
        found = OnSQLite(tmp_path / "outbox.db")
    found.install()
    return found


@pytest.fixture
def relays(site: Site, kafka_bootstrap: str, unique: str) -> Iterator[Relays]:
    found = Relays(site, {"bootstrap.servers": kafka_bootstrap}, unique)
    yield found
    found.stop()


def write(site: Site, topic: str, number: int) -> list[Event]:
    """One writer's life; returns what it committed. Some transactions last, so that newer ids are committed first."""
    chance, pause, committed = random.Random(number), threading.Event(), []
    with closing(site.connect()) as connection:
        for _ in range(TRANSACTIONS):
            site.execute(connection, site.begin, {})
            events = [
                publish(site, connection, topic, key) for key in sorted(chance.sample(KEYS, chance.randint(1, 2)))
            ]
            pause.wait(chance.choice([0, 0, 0.002, 0.05]))
            if chance.random() < 0.25:
                connection.rollback()
            else:
                connection.commit()
                committed += events
    return committed


def publish(site: Site, connection: Any, topic: str, key: str) -> Event:
    # The update locks the key until the end of the transaction, so that its events have an order to keep.
    site.execute(connection, "UPDATE history SET events = events + 1 WHERE name = %(key)s", {"key": key})
    [[place]] = site.execute(connection, "SELECT events FROM history WHERE name = %(key)s", {"key": key})
    Outbox().publish(connection, Message(topic, key=key, value=str(place)))
    return key, place


def delivered(relays: Relays, topic: str) -> list[Event]:
    found = read_back(relays.properties, topic)
    return [((record.key or b"").decode(), int(record.value or b"-1")) for record in found]


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "shards"), [("drain", 1), ("drain", 2), ("mark-purge", 1)])
def test_what_writers_commit_arrives_once_and_in_order(
    site: Site, relays: Relays, unique: str, eventually: Eventually, strategy: str, shards: int
) -> None:
    relays.start(strategy, shards)
    eventually(lambda: all(loop.progress.is_owner for loop in relays.loops))
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(write, site, unique, number) for number in range(WRITERS)]
        broken = 0
        for part in (1, 2, 3):
            eventually(partial(relays.have_published, part * 20))
            broken += site.disturb()
        committed = [event for writer in writing for event in writer.result(60)]
    assert broken >= 3
    eventually(lambda: site.count() == 0)
    verdict = check_delivery(committed, delivered(relays, unique))
    assert verdict.holds, verdict
    assert all(loop.progress.exceeded == 0 for loop in relays.loops)


@pytest.mark.parametrize("site", ["mariadb"], indirect=True)
def test_a_transaction_that_commits_after_newer_ones_were_published_is_delivered(
    site: Site, relays: Relays, unique: str, eventually: Eventually
) -> None:
    relays.start("drain", 1)
    with closing(site.connect()) as late, closing(site.connect()) as early:
        Outbox().publish(late, Message(unique, key="late", value="0"))
        for number in range(20):
            Outbox().publish(early, Message(unique, key="early", value=str(number)))
            early.commit()
        eventually(lambda: relays.have_published(20))
        late.commit()
        eventually(lambda: relays.have_published(21))
    assert sorted(delivered(relays, unique)) == [*(("early", number) for number in range(20)), ("late", 0)]
