"""Peers are pinned, use the best settings that were found, and are reported with the meaning of their figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from inorder.bench.load import Load
from inorder.bench.options import RelayOptions
from inorder.bench.peers import debezium, debezium_jdbc, goharvest
from inorder.bench.peers.choice import PEERS
from inorder.bench.peers.debezium import Debezium
from inorder.bench.peers.goharvest import Goharvest
from inorder.bench.place import BenchPlace
from inorder.embedded.stack import Program

MANY_KEYS, ONE_KEY = Load(rows=10, keys=1_000), Load(rows=10, keys=1)


class Place:
    """Addresses of servers that do not run."""

    database_address = ("127.0.0.1", 5432)
    database_password = "geheim"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka = {"bootstrap.servers": "127.0.0.1:9092"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BenchPlace:
    monkeypatch.setattr(goharvest, "ensure_topic", lambda *_: None)
    monkeypatch.setattr(goharvest, "goharvest_program", lambda: Path("goharvest"))
    monkeypatch.setattr(debezium, "fetch_set", lambda _: [Path("one.jar"), Path("two.jar")])
    return cast("BenchPlace", cast("Any", Place(tmp_path)))


def arguments(program: Program) -> list[str]:
    return list(program.argv)


def settings_of(program: Program) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(Path(arguments(program)[1]).read_text())
    return settings


def properties(path: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in path.read_text().splitlines())
    return {name: value for name, _, value in pairs}


def test_every_jar_of_debezium_is_pinned_by_its_digest() -> None:
    jars = debezium.jars().jars
    assert all(len(jar.sha256) == 64 and int(jar.sha256, 16) for jar in jars)
    assert {"connect-runtime", "debezium-connector-postgres"} <= {jar.module for jar in jars}


def test_goharvest_lingers_only_where_there_are_many_keys(place: BenchPlace) -> None:
    peer = Goharvest(place, RelayOptions())
    many, one = settings_of(peer.program(MANY_KEYS)), settings_of(peer.program(ONE_KEY))
    assert (many["producerKafkaConfig"], one["producerKafkaConfig"]) == ({"linger.ms": 1}, {"linger.ms": 0})
    assert many["limits"] == goharvest.LIMITS
    assert "synchronous_commit=off" in many["dataSource"]


def test_no_start_of_goharvest_waits_for_the_one_before(place: BenchPlace) -> None:
    peer = Goharvest(place, RelayOptions())
    groups = {settings_of(peer.program(ONE_KEY))["leaderGroupID"] for _ in range(3)}
    assert len(groups) == 3


def test_debezium_runs_one_worker_with_the_outbox_router(place: BenchPlace) -> None:
    command = arguments(Debezium(place, RelayOptions()).program(MANY_KEYS))
    worker, connector = (properties(Path(path)) for path in command[-2:])
    assert command[-3] == "org.apache.kafka.connect.cli.ConnectStandalone"
    assert worker["bootstrap.servers"] == "127.0.0.1:9092"
    assert connector["transforms.outbox.type"] == "io.debezium.transforms.outbox.EventRouter"
    assert connector.items() >= debezium.TUNED.items()
    assert connector["table.include.list"] == "public.bench_debezium"


def test_debezium_adds_a_header_only_where_one_is_asked_for(place: BenchPlace) -> None:
    peer = Debezium(place, RelayOptions())
    placement = "transforms.outbox.table.fields.additional.placement"
    without, with_one = (
        properties(Path(arguments(peer.program(load))[-1])) for load in (MANY_KEYS, Load(10, 1_000, headers=1))
    )
    assert placement not in without
    assert with_one[placement] == "type:header:type"


def test_every_start_of_debezium_begins_without_offsets_of_the_last(place: BenchPlace) -> None:
    peer = Debezium(place, RelayOptions())
    files = {properties(Path(arguments(peer.program(ONE_KEY))[-2]))["offset.storage.file.filename"] for _ in range(3)}
    assert len(files) == 3


def test_what_a_peer_needs_of_the_database_is_said_before_it_starts() -> None:
    assert PEERS["debezium"].postgres == {"wal_level": "logical"}
    assert PEERS["goharvest"].postgres == {}


def test_a_window_and_a_missing_database_are_told_with_the_figures() -> None:
    assert "first 10 s" in PEERS["goharvest"].notes[0]
    assert "ceiling" in PEERS["librdkafka"].notes[0]


def test_every_jar_of_the_jdbc_sink_is_pinned_and_no_driver_of_another_database_is_among_them() -> None:
    jars = debezium_jdbc.jars().jars
    assert all(len(jar.sha256) == 64 and int(jar.sha256, 16) for jar in jars)
    modules = {jar.module for jar in jars}
    assert {"connect-runtime", "connect-json", "debezium-connector-jdbc", "postgresql"} <= modules
    assert not {"ojdbc11", "mssql-jdbc", "mysql-connector-j", "mariadb-java-client"} & modules


@pytest.mark.parametrize("tuned", [True, False])
def test_the_jdbc_sink_upserts_committed_records_by_the_id_in_their_value(
    place: BenchPlace, monkeypatch: pytest.MonkeyPatch, tuned: bool
) -> None:
    monkeypatch.setattr(debezium_jdbc, "fetch_set", lambda _: [Path("one.jar"), Path("two.jar")])
    program = debezium_jdbc.sink_worker(place, "some-topic", tuned=tuned)
    worker, connector = (properties(Path(path)) for path in arguments(program)[-2:])
    assert worker["bootstrap.servers"] == "127.0.0.1:9092"
    assert (connector["topics"], connector["insert.mode"], connector["primary.key.fields"]) == (
        "some-topic",
        "upsert",
        "id",
    )
    assert connector["consumer.override.isolation.level"] == "read_committed"
    assert (connector["tasks.max"], "use.reduction.buffer" in connector) == (("2", True) if tuned else ("1", False))
    assert connector["connection.password"] == place.database_password
    assert connector["connection.url"].endswith("?reWriteBatchedInserts=true") is tuned
