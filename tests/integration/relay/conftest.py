"""A relay on the session's servers, and eyes on both of its ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

import inorder
from inorder.database.database import open_database
from inorder.database.postgres import connect
from inorder.kafka.shard_log import ShardLog
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.relay.drain import DrainStrategy
from inorder.relay.leadership.lease import Lease, NoLease
from inorder.relay.loop import RelayLoop
from inorder.relay.options import LoopOptions, Pace
from inorder.relay.stores.exceeded import SqlExceededStore
from inorder.relay.stores.kafka_log import KafkaShardLog
from inorder.relay.stores.ports import ExceededStore, OutboxStore
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore


def alter_topic(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    """Changes settings of a topic, as an operator would."""
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


@dataclass
class Bench:
    """One outbox table, one topic, and relays between them."""

    url: str
    bootstrap: str
    group: str
    relays: list[Running] = field(default_factory=list)

    @property
    def properties(self) -> dict[str, object]:
        return {"bootstrap.servers": self.bootstrap}

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return connect(self.url, "test")

    def settings(
        self, *, bootstrap: str | None = None, redis_url: str | None = None, **relay: object
    ) -> inorder.Settings:
        """What an instance on this bench is given; keywords are settings of the relay."""
        return inorder.Settings.load(
            kafka={"bootstrap.servers": bootstrap or self.bootstrap},
            database={"url": self.url},
            redis={"url": redis_url},
            relay={"group": self.group, **relay},
        )

    def publish(self, *messages: Message) -> None:
        with self.connect() as connection:
            Outbox().publish_list(connection, messages)

    def count(self) -> int:
        with self.connect() as connection:
            row = connection.execute("SELECT count(*) FROM outbox").fetchone()
        assert row is not None
        return int(str(row[0]))

    def alter_topic(self, topic: str, config: dict[str, str]) -> None:
        """Changes settings of a topic, as an operator would."""
        alter_topic(self.bootstrap, topic, config)

    def store(self) -> PostgresOutboxStore:
        return PostgresOutboxStore(self.url, "outbox")

    def shard(self) -> KafkaShardLog:
        return KafkaShardLog(self.properties, group=self.group)

    def relay(
        self,
        *,
        store: OutboxStore | None = None,
        shard: ShardLog | None = None,
        lease: Lease | None = None,
        batch_size: int = 1000,
    ) -> Running:
        exceeded = SqlExceededStore(open_database(self.url, "test"), "outbox")
        running = Running(store or self.store(), exceeded, shard or self.shard(), lease or NoLease(), batch_size)
        self.relays.append(running)
        return running


class Running:
    """A relay loop on a thread, stopped at the end of the test."""

    def __init__(
        self, store: OutboxStore, exceeded: ExceededStore, shard: ShardLog, lease: Lease, batch_size: int
    ) -> None:
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self.store = store
        self.shard = shard
        self.exceeded = exceeded
        self.loop = RelayLoop(
            DrainStrategy(store, batch_size=batch_size),
            exceeded,
            shard,
            lease,
            LoopOptions(stop=self.stopping, pace=Pace(back_off=0.05)),
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:
            logging.getLogger("tests").exception("the relay ended")
            self.error = error

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(60)
        assert not self.thread.is_alive(), "the relay did not stop within 60 s"
        self.store.close()
        self.exceeded.close()
        self.shard.close()


@pytest.fixture
def bench(postgres_url: str, kafka_bootstrap: str, unique: str) -> Iterator[Bench]:
    """A bench with an empty native outbox table."""
    found = Bench(postgres_url, kafka_bootstrap, unique)
    with found.connect() as connection:
        for statement in install_statements("native", "postgresql", "outbox"):
            connection.execute(statement)
    yield found
    for relay in found.relays:
        relay.stop()
