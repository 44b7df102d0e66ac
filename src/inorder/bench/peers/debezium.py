"""The peer Debezium: its PostgreSQL connector with the Outbox Event Router, in one Kafka Connect worker.

It reads the write-ahead log through a replication slot, so a backlog is what the slot holds. Tuned as far as we know
how: a short poll, large batches and a large queue, and a producer that batches and compresses.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import count
from pathlib import Path

from inorder.bench.contender import Peer, TableReader
from inorder.bench.load import Load
from inorder.bench.options import RelayOptions
from inorder.bench.place import BenchPlace
from inorder.bench.tables import LAYOUTS
from inorder.bench.watching import watch
from inorder.database.sql import quoted
from inorder.embedded.jars import JarSet, fetch_set, find_java
from inorder.embedded.server import HOST, free_port
from inorder.embedded.stack import Program
from inorder.kafka.java_client import java_properties

TABLE = "bench_debezium"
SLOT = "bench_debezium_slot"
PUBLICATION = "bench_debezium_publication"
SLOT_CAP_SECONDS = 30.0
TUNED = {
    "poll.interval.ms": "2",
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "producer.override.batch.size": "262144",
    "producer.override.compression.type": "lz4",
}
_CLEAR = (
    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'",
    "DROP PUBLICATION IF EXISTS {publication}",
    "DROP TABLE IF EXISTS {table}",
)
_INSTALL = (
    """
    CREATE TABLE {table} (
      id uuid PRIMARY KEY,
      aggregatetype varchar(255) NOT NULL,
      aggregateid varchar(255) NOT NULL,
      type varchar(255) NOT NULL,
      payload text
    )
    """,
    "CREATE PUBLICATION {publication} FOR TABLE {table}",
    "SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
)
_ACTIVE = f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND active"  # noqa: S608 - a constant


class Debezium(TableReader):
    """A fresh worker for each trial; its slot goes with it, or our side would pay for what it decodes."""

    name = "debezium"
    empties = False

    def __init__(self, place: BenchPlace, options: RelayOptions) -> None:
        super().__init__(place, options, LAYOUTS["debezium"], TABLE)

    def empty(self) -> None:
        """A slot holds what is written from now on."""
        self.tidy()
        self._execute(*_INSTALL)

    def tidy(self) -> None:
        """The server notices only after a moment that the reader of a slot has gone."""
        watch(self._active, lambda active: active == 0, lambda: None, SLOT_CAP_SECONDS)
        self._execute(*_CLEAR)

    def program(self, load: Load) -> Program:
        """A standalone worker with one connector."""
        return connect_worker(self.place, "debezium", fetch_set(jars()), self._connector(load))

    def _connector(self, load: Load) -> dict[str, str]:
        host, port = self.place.database_address
        router = {
            "transforms": "outbox",
            "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        }
        if load.headers:  # one more beside the id, which it always sends
            router["transforms.outbox.table.fields.additional.placement"] = "type:header:type"
        return {
            "name": "bench",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": host,
            "database.port": str(port),
            "database.user": "postgres",
            "database.password": self.place.database_password,
            "database.dbname": "postgres",
            "topic.prefix": "bench",
            "plugin.name": "pgoutput",
            "slot.name": SLOT,
            "publication.name": PUBLICATION,
            "publication.autocreate.mode": "disabled",
            "snapshot.mode": "no_data",
            "table.include.list": f"public.{TABLE}",
            "tombstones.on.delete": "false",
            **router,
            **TUNED,
        }

    def _active(self) -> int:
        row = self.place.watching.execute(_ACTIVE).fetchone()
        return int(row[0]) if row else 0

    def _execute(self, *statements: str) -> None:
        for statement in statements:
            self.place.watching.execute(statement.format(table=quoted(TABLE), slot=SLOT, publication=PUBLICATION))


def jars() -> JarSet:
    """What it consists of."""
    entries = tomllib.loads(files("inorder.bench.peers").joinpath("jars.toml").read_text("utf-8"))
    return JarSet.parse("debezium", entries["debezium"])


PEER = Peer(
    Debezium,
    set_up=lambda: fetch_set(jars()),
    notes=(
        "Debezium has a fresh JVM in each trial: its start is reported separately, its compilation is inside the rate.",
        "Debezium delivers at least once, without transactions, and leaves its rows in the table.",
    ),
    postgres={"wal_level": "logical"},
)


# A standalone worker of Kafka Connect with one connector, for the peers that are one.

_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
_starts = count(1)


def connect_worker(place: BenchPlace, name: str, jars: Sequence[Path], connector: Mapping[str, str]) -> Program:
    """A fresh worker; not started yet."""
    folder = place.folder / f"{name}-{next(_starts)}"
    (folder / "plugins").mkdir(parents=True)
    paths = [
        _written(folder / "worker.properties", _worker(place, folder)),
        _written(folder / "connector.properties", connector),
    ]
    logging = folder / "log4j2.properties"
    logging.write_text(files("inorder.bench.peers").joinpath("connect-log4j2.properties").read_text("utf-8"), "utf-8")
    classes = os.pathsep.join(str(path) for path in jars)
    flags = ["-Xmx1g", f"-Dlog4j2.configurationFile={logging}", "-cp", classes]
    return Program(name, [str(find_java()), *flags, _MAIN, *map(str, paths)], place.folder)


def _worker(place: BenchPlace, folder: Path) -> dict[str, str]:
    text = "org.apache.kafka.connect.storage.StringConverter"
    kafka = java_properties(place.kafka)
    clients = {f"{client}{name}": value for client in ("", "producer.", "consumer.") for name, value in kafka.items()}
    return {
        **clients,
        "listeners": f"http://{HOST}:{free_port()}",
        "offset.storage.file.filename": str(folder / "offsets"),
        "key.converter": text,
        "value.converter": text,
        "plugin.discovery": "only_scan",
        "plugin.path": str(folder / "plugins"),
        "connector.client.config.override.policy": "All",
    }


def _written(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), "utf-8")
    return path
