"""The doctor's verdicts: what each finding means for the exit code, and what it says."""

from __future__ import annotations

import shutil
import sqlite3
from collections import namedtuple
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inorder.database.database import open_database
from inorder.embedded.server import free_port
from inorder.kafka.admin import Cluster, ClusterInfo
from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.operate import doctor as kafka_checks
from inorder.operate import doctor as machine_checks
from inorder.operate.doctor import (
    GIGABYTE,
    Check,
    examine_database,
    examine_machine,
    examine_redis,
    examine_targets,
    exit_code,
    expected_columns,
    fail,
    needed_columns,
    needed_rights,
    of_error,
    ok,
    order_checks,
    unreachable,
    warn,
)
from inorder.outbox.layouts import LAYOUTS, install_statements
from inorder.pipeline.mapping import TableMapping
from inorder.relay.stores.ports import Setup
from inorder.relay.stores.registry import SqlRegistry
from inorder.settings import Settings
from tests.operating import install_schema

OK, WARN = ok("a", "fine"), warn("b", "hm", "look")
EACH_LAYOUT = pytest.mark.parametrize(
    ("layout", "strategy"),
    [
        ("native", "drain"),
        ("native", "mark-purge"),
        ("goharvest", "mark-purge"),
        ("debezium", "drain"),
        ("trendyol", "drain"),
        ("trendyol", "polling"),
    ],
)
WRONG, GONE = fail("c", "wrong", "mend"), unreachable("d", "gone", "start")


@pytest.mark.parametrize(
    ("checks", "code"),
    [([], 0), ([OK], 0), ([OK, WARN], 0), ([OK, WRONG], 3), ([GONE], 4), ([WRONG, GONE, WARN], 4)],
)
def test_the_exit_code_is_that_of_the_worst_finding(checks: list[Check], code: int) -> None:
    assert exit_code(checks) == code


def test_errors_become_findings() -> None:
    assert of_error("x", UnreachableError("gone", hint="start")).unreachable
    assert not of_error("x", ConfigurationError("wrong", hint="mend")).unreachable


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_columns_the_doctor_expects_are_those_that_the_layout_makes(tmp_path: Path, layout: str) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        for statement in install_statements(layout, "sqlite", "outbox"):
            connection.execute(statement)
        made = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('outbox')")}
    expected = {dialect: expected_columns(layout, dialect) for dialect in ("postgresql", "mysql", "sqlite")}
    assert expected == dict.fromkeys(expected, made)


def test_a_leader_id_is_asked_for_only_where_rows_are_marked() -> None:
    drain, marks = (Settings.load(relay={"strategy": name}).relay for name in ("drain", "mark-purge"))
    assert needed_columns(marks, "mysql") - needed_columns(drain, "mysql") == {"leader_id"}
    assert needed_rights(marks, "mysql") == (*needed_rights(drain, "mysql"), "UPDATE")


def test_the_strategy_polling_leaves_rows_as_they_are() -> None:
    relay = Settings.load(relay={"layout": "trendyol", "strategy": "polling"}).relay
    assert needed_rights(relay, "postgresql") == needed_rights(relay, "mysql") == ("INSERT", "SELECT")


def test_a_fit_machine_is_well() -> None:
    assert {check.name: check.status for check in examine_machine()} == {
        "python": "ok",
        "java": "ok",
        "disk": "ok",
    }


def test_a_missing_java_is_unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = next(check for check in examine_machine() if check.name == "java")
    assert (java.status, java.unreachable) == ("fail", True)
    assert "JAVA_HOME" in java.hint


@pytest.mark.parametrize(("free", "status"), [(0, "fail"), (GIGABYTE, "warn"), (9 * GIGABYTE, "ok")])
def test_disk_is_judged_where_the_cache_will_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, status: str
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setenv("INORDER_CACHE", str(tmp_path / "not" / "yet"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, free))
    disk = next(check for check in examine_machine() if check.name == "disk")
    assert disk.status == status


def test_an_old_python_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "OLDEST_PYTHON", (99, 0))
    assert examine_machine()[0].status == "fail"


def test_without_a_database_url_the_doctor_says_so() -> None:
    (check,) = examine_database(Settings.load())
    assert (check.status, check.unreachable) == ("fail", False)
    assert check.detail == "database.url is not set."


@pytest.mark.parametrize("place", ["u:hunter2@127.0.0.1:1/d", "u@127.0.0.1:1/d?password=hunter2"])
def test_a_database_that_refuses_is_unreachable_and_its_password_stays_hidden(place: str) -> None:
    (check,) = examine_database(Settings.load(database={"url": f"postgresql+psycopg://{place}"}))
    assert check.unreachable
    assert place.replace("hunter2", "***") in check.detail
    assert "hunter2" not in str(check)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An SQLite file with nothing in it."""
    path = tmp_path / "x.db"
    path.touch()
    return path


def install(file: Path, layout: str = "native") -> None:
    """Makes the tables of a layout, as a user would."""
    install_schema(Settings.load(database={"url": f"sqlite:///{file}"}), layout)


def run(file: Path, *statements: str) -> None:
    """Runs statements in the file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def examined(file: Path, **relay: object) -> dict[str, Check]:
    """The findings on an SQLite file, by name."""
    settings = Settings.load(database={"url": f"sqlite:///{file}"}, relay=relay)
    return {check.name: check for check in examine_database(settings)}


def failed(found: dict[str, Check]) -> list[str]:
    """The names of what is wrong."""
    return [name for name, check in found.items() if check.status == "fail"]


def require_well(found: dict[str, Check], layout: str) -> None:
    """Asserts that a fresh table has no problem, and that nothing is registered yet."""
    assert failed(found) == []
    table = "outbox_events" if layout == "trendyol" else "outbox"
    assert found["outbox table"].detail == f"{table} has the {layout} columns"
    assert "none yet" in found["registration"].detail


def test_a_file_that_is_not_there_is_unreachable_and_not_made(tmp_path: Path) -> None:
    found = examined(tmp_path / "none.db")
    assert found["database"].unreachable
    assert list(tmp_path.iterdir()) == []


def test_a_database_in_memory_is_refused() -> None:
    [check] = examine_database(Settings.load(database={"url": "sqlite://"}))
    assert (check.status, "names no file" in check.detail) == ("fail", True)


@EACH_LAYOUT
def test_a_fresh_file_of_each_layout_is_well(file: Path, layout: str, strategy: str) -> None:
    install(file, layout)
    found = examined(file, layout=layout, strategy=strategy)
    require_well(found, layout)
    assert found["pipeline table"].status == "warn"


def test_a_missing_table_is_told_with_the_command_that_makes_it(file: Path) -> None:
    found = examined(file, layout="goharvest")
    assert found["outbox table"].hint == "Run `inorder schema install --layout goharvest`."


def test_a_table_of_another_layout_is_not_taken_for_ours(file: Path) -> None:
    install(file, "goharvest")
    found = examined(file)
    assert failed(found) == ["outbox table"]
    assert "relay.layout" in found["outbox table"].hint


def test_marks_need_their_column_and_nothing_else_does(file: Path) -> None:
    install(file)
    run(file, "ALTER TABLE outbox DROP COLUMN leader_id")
    assert failed(examined(file)) == []
    found = examined(file, strategy="mark-purge")
    assert found["outbox table"].detail == "outbox lacks leader_id of the layout native"


def test_ids_that_are_given_again_are_found(file: Path) -> None:
    columns = ", ".join(f'"{name}" TEXT' for name in sorted(expected_columns("native", "sqlite") - {"id"}))
    run(file, f"CREATE TABLE outbox (id INTEGER PRIMARY KEY, {columns})")
    assert failed(examined(file)) == ["outbox ids"]
    run(file, "DROP TABLE outbox", f"CREATE TABLE outbox (id INTEGER, {columns})")
    assert failed(examined(file)) == ["outbox index", "outbox ids"]


POLLING: dict[str, object] = {"layout": "trendyol", "strategy": "polling"}


def test_the_tables_beside_the_events_are_looked_at_where_they_are_used(file: Path) -> None:
    install(file, "trendyol")
    assert examined(file, **POLLING)["polling tables"].detail == "all exist, and the offset is 0"
    run(file, "INSERT INTO outbox_offsets VALUES (7)")
    found = examined(file, **POLLING)["polling tables"]
    assert found.detail == "Table 'outbox_offsets' has more than one row; it must have one."
    run(file, "DROP TABLE missing_outbox_events")
    found = examined(file, **POLLING)["polling tables"]
    assert "'missing_outbox_events' does not match layout 'trendyol'" in found.detail
    assert "inorder schema install --layout trendyol" in found.hint
    assert failed(examined(file, layout="trendyol")) == [], "the strategy drain needs none of them"


def test_a_replica_is_looked_at_where_there_is_one(file: Path) -> None:
    install(file, "trendyol")

    def replica(path: Path) -> Check:
        database = {"url": f"sqlite:///{file}", "read_only_url": f"sqlite:///{path}"}
        checks = examine_database(Settings.load(database=database, relay=POLLING))
        return next(check for check in checks if check.name == "read-only database")

    assert replica(file).status == "ok"
    other = file.with_name("other.db")
    install(other)
    assert "'outbox_events' is not an outbox table" in replica(other).detail


def register(file: Path, setup: Setup) -> SqlRegistry:
    """Registers a set-up for the outbox, as its first relay would."""
    registry = SqlRegistry(open_database(f"sqlite:///{file}", "test"), "outbox")
    registry.register(setup)
    return registry


def test_what_is_registered_is_compared_and_both_values_are_named(file: Path) -> None:
    install(file)
    with closing(register(file, Setup("orders", "drain", 4))):
        assert examined(file, shards=4)["registration"].status == "ok"
        found = examined(file, shards=2)["registration"]
    assert found.status == "fail"
    assert "relay.shards = 2, but 4 is registered" in found.detail
    assert "inorder relay reshard" in found.hint


def test_a_change_that_was_broken_off_is_found(file: Path) -> None:
    install(file)
    with closing(register(file, Setup("orders", "drain", 1))) as registry:
        registry.begin_change(Setup("orders", "drain", 3))
        found = examined(file)["registration"]
    assert "is being changed to group 'orders', strategy 'drain', shards 3" in found.detail


def test_looking_changes_nothing(file: Path) -> None:
    run(file, "CREATE TABLE other (id INTEGER)")
    before = file.read_bytes()
    examined(file)
    assert (file.read_bytes(), [path.name for path in file.parent.iterdir()]) == (before, [file.name])


class FakeCluster(Cluster):
    """A cluster with the topics and settings of a test."""

    def __init__(self, topics: dict[str, tuple[int, dict[str, str]]], broker: dict[str, str]) -> None:
        self.topics, self.broker = topics, broker

    def info(self) -> ClusterInfo:
        return ClusterInfo("c", ("b:1",), (1,))

    def partitions(self, topic: str) -> int | None:
        return self.topics[topic][0] if topic in self.topics else None

    def topic_settings(self, topic: str) -> dict[str, str]:
        return self.topics[topic][1]

    def replicas(self, topic: str) -> int:
        return int(self.topics[topic][1].get("replicas", 1))

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        return self.broker if broker_id == 1 else {}


BROKER_DEFAULTS = {
    "transaction.max.timeout.ms": "900000",
    "transaction.partition.verification.enable": "true",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
}


def findings(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, **relay: object) -> dict[str, str]:
    """The status of each Kafka check."""
    monkeypatch.setattr(kafka_checks, "Cluster", lambda _: cluster)
    return {check.name: check.status for check in kafka_checks.examine_kafka(Settings.load(relay=relay))}


def test_a_fresh_cluster_has_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(FakeCluster({}, BROKER_DEFAULTS), monkeypatch) == {
        "kafka": "ok",
        "kafka transactions": "ok",
        "late requests": "ok",
        "leadership": "ok",
        "marker topic": "ok",
        "pipeline topic": "warn",
    }


def test_settings_that_would_break_the_relay_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {
        "inorder.orders.marker": (1, {"cleanup.policy": "delete"}),
        "upsert": (4, {"max.message.bytes": "20000"}),
    }
    broker = {
        "transaction.max.timeout.ms": "5000",
        "transaction.partition.verification.enable": "false",
        "group.min.session.timeout.ms": "10000",
        "group.max.session.timeout.ms": "1800000",
    }
    found = findings(FakeCluster(topics, broker), monkeypatch)
    assert found == {
        "kafka": "ok",
        "kafka transactions": "fail",
        "late requests": "warn",
        "leadership": "fail",
        "marker topic": "fail",
        "pipeline topic": "ok",
        "message size": "warn",
    }


def test_a_topic_that_takes_the_largest_message_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {
        "inorder.orders.marker": (1, {"cleanup.policy": "compact"}),
        "upsert": (4, {"max.message.bytes": "1048588"}),
    }
    found = findings(FakeCluster(topics, {}), monkeypatch)
    assert (found["marker topic"], found["message size"]) == ("ok", "ok")
    assert (found["kafka transactions"], found["late requests"], found["leadership"]) == ("warn", "warn", "warn")


MARKER = {"cleanup.policy": "compact", "min.insync.replicas": "2", "segment.bytes": "16777216", "replicas": "3"}


@pytest.mark.parametrize(
    ("changed", "status", "words"),
    [
        ({}, "ok", "3 replica(s), min.insync.replicas = 2"),
        ({"replicas": "1"}, "fail", "more replicas"),
        ({"replicas": "2"}, "warn", "default.replication.factor is 3"),
        ({"min.insync.replicas": "1"}, "warn", "min.insync.replicas=2"),
        ({"segment.bytes": "1073741824"}, "warn", "segment.bytes=16777216"),
        ({"cleanup.policy": "delete"}, "fail", "cleanup.policy=compact"),
        ({"max.message.bytes": "2000"}, "warn", "Raise max.message.bytes of inorder.orders.marker to 801000"),
    ],
)
def test_the_marker_topic_is_as_safe_as_the_cluster_allows(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], status: str, words: str
) -> None:
    topics = {"inorder.orders.marker": (1, {**MARKER, **changed})}
    cluster = FakeCluster(topics, {**BROKER_DEFAULTS, "default.replication.factor": "3"})
    monkeypatch.setattr(kafka_checks, "Cluster", lambda _: cluster)
    (found,) = [check for check in kafka_checks.examine_kafka(Settings.load()) if check.name == "marker topic"]
    assert found.status == status
    assert words in f"{found.detail} {found.hint}"


def test_sessions_are_looked_at_only_where_members_have_some(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(FakeCluster({}, BROKER_DEFAULTS), monkeypatch, leadership="database")
    assert "leadership" not in found


def test_redis_is_looked_at_only_where_the_lease_lives_there() -> None:
    url = f"redis://:geheim@127.0.0.1:{free_port()}/0"
    assert examine_redis(Settings.load(redis={"url": url})) == []
    [check] = examine_redis(Settings.load(redis={"url": url}, relay={"leadership": "redis"}))
    assert (check.name, check.status, check.unreachable) == ("leadership", "fail", True)
    assert "geheim" not in check.detail + check.hint


@pytest.mark.parametrize(
    ("stale", "keyless", "found"),
    [
        (0, 0, [("ok", "every record was newer than its row")]),
        (19, 0, [("warn", "19 records were stale")]),
        (2, 40, [("warn", "40 records without a Kafka key"), ("warn", "2 records were stale")]),
    ],
)
def test_records_that_nothing_orders_are_a_warning(stale: int, keyless: int, found: list[tuple[str, str]]) -> None:
    checks = list(order_checks(TableMapping("p", "orders", "orders"), stale, keyless))
    assert [check.status for check in checks] == [status for status, _ in found]
    assert all(words in check.detail for check, (_, words) in zip(checks, found, strict=True))


def test_a_target_that_lacks_columns_is_named_with_the_statements_that_add_them(tmp_path: Path) -> None:
    """`schema install` says that all tables exist, and the pipeline refused to start."""
    file = tmp_path / "shop.db"

    def examined(**fields: str) -> list[Check]:
        upsert = {"fields": fields}
        settings = Settings.load(database={"url": f"sqlite:///{file}"}, pipeline={"upsert": upsert})
        install_schema(settings, "table")
        return list(examine_targets(settings))

    assert examined(enabled="boolean", data="text") == []
    [check] = examined(enabled="boolean", data="text", price="numeric")
    assert (check.status, check.detail) == ("fail", "messages lacks price")
    statement = check.hint.removeprefix("Run ")
    assert statement.startswith("ALTER TABLE")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(statement)
    assert examined(enabled="boolean", data="text", price="numeric") == [], "the advice works"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, {"kafka: not encrypted; it is on this machine": "ok"}),
        ({"kafka": {"bootstrap.servers": "127.0.0.1:1,broker:1"}}, {"kafka: not encrypted": "warn"}),
        (
            {"kafka": {"bootstrap.servers": "broker:1", "security.protocol": "SASL_SSL"}},
            {"kafka: encrypted, and the certificate of the server is verified": "ok"},
        ),
        (
            {"database": {"url": "postgresql+psycopg://me@db/shop"}},
            {"database: not encrypted, or only if the server wants it (sslmode=prefer)": "warn"},
        ),
        (
            {"database": {"url": "postgresql+psycopg://me@db/shop?sslmode=require"}},
            {"database: encrypted, but not verified (sslmode=require)": "warn"},
        ),
        (
            {"database": {"url": "postgresql+psycopg://me@db/shop?sslmode=verify-full"}},
            {"database: encrypted, and the certificate of the server is verified": "ok"},
        ),
        (
            {"database": {"url": "mysql+pymysql://me@db/shop"}},
            {"database: not encrypted, or not verified (there is no ssl_ca)": "warn"},
        ),
        (
            {"database": {"url": "mysql+pymysql://me@db/shop?ssl_ca=/ca.pem"}},
            {"database: encrypted, and the certificate of the server is verified": "ok"},
        ),
        (
            {"relay": {"leadership": "redis"}, "redis": {"url": "redis://lease:6379/0"}},
            {"redis: not encrypted": "warn"},
        ),
        (
            {"relay": {"leadership": "redis"}, "redis": {"url": "rediss://lease:6379/0"}},
            {"redis: encrypted, and the certificate of the server is verified": "ok"},
        ),
    ],
)
def test_what_is_not_encrypted_is_said_in_words(settings: dict[str, Any], said: dict[str, str]) -> None:
    found = {check.detail: check.status for check in kafka_checks.examine_transport(Settings.load(**settings))}
    assert said.items() <= found.items()


_POSTGRES, _MYSQL = "postgresql+psycopg://", "mysql+pymysql://"
_PLAIN = {
    "kafka": "kafka: not encrypted",
    "postgresql": "database: not encrypted, or only if the server wants it (sslmode=prefer)",
    "mysql": "database: not encrypted, or not verified (there is no ssl_ca)",
}


@pytest.mark.parametrize(
    ("server", "address", "is_local"),
    [
        ("kafka", "127.0.0.1:9092, localhost:9093", True),
        ("kafka", "127.8.0.1", True),
        ("kafka", "localhost", True),
        ("kafka", "[::1]:9092,[::1]", True),
        ("kafka", "PLAINTEXT://localhost:9092", True),
        ("kafka", "broker.example", False),
        ("kafka", "localhost:9092,broker.example", False),
        ("kafka", "[2001:db8::7]:9092", False),
        ("kafka", "2001:db8::1", False),
        ("kafka", "localhost.example:9092", False),
        ("postgresql", f"{_POSTGRES}/shop", True),
        ("postgresql", f"{_POSTGRES}me@localhost:5432,[::1]:5433/shop", True),
        ("postgresql", f"{_POSTGRES}/shop?host=/var/run/postgresql", True),
        ("postgresql", f"{_POSTGRES}me@%2Fvar%2Frun/shop", True),
        ("postgresql", f"{_POSTGRES}me@localhost:5432,db.example/shop", False),
        ("postgresql", f"{_POSTGRES}me@[2001:db8::7]/shop", False),
        ("postgresql", f"{_POSTGRES}/shop?host=db.example", False),
        ("postgresql", f"{_POSTGRES}/shop?host=localhost,db.example", False),
        ("postgresql", f"{_POSTGRES}/shop?host=localhost:5432&host=db.example:5432", False),
        ("postgresql", f"{_POSTGRES}localhost/shop?host=db.example", False),
        ("postgresql", f"{_POSTGRES}localhost/shop?hostaddr=192.0.2.7", False),
        ("mysql", f"{_MYSQL}me@127.0.0.1:3306/shop", True),
        ("mysql", f"{_MYSQL}me@localhost,db.example/shop", False),
        ("mysql", f"{_MYSQL}/shop?host=db.example", False),
    ],
)
def test_a_server_counts_as_local_only_where_all_its_hosts_are(server: str, address: str, is_local: bool) -> None:
    given: dict[str, Any] = (
        {"kafka": {"bootstrap.servers": address}} if server == "kafka" else {"database": {"url": address}}
    )
    found = {check.detail: check.status for check in kafka_checks.examine_transport(Settings.load(**given))}
    wanted = (f"{_PLAIN[server]}; it is on this machine", "ok") if is_local else (_PLAIN[server], "warn")
    assert wanted in found.items()


@pytest.mark.parametrize(
    ("settings", "said", "remedy"),
    [
        (
            {
                "database": {"url": f"{_POSTGRES}localhost/shop", "read_only_url": f"{_POSTGRES}replica/shop"},
                "relay": {"strategy": "polling", "layout": "trendyol"},
            },
            "read-only database: not encrypted, or only if the server wants it (sslmode=prefer)",
            "database.read_only_url",
        ),
        (
            {"journal": {"store": f"{_POSTGRES}journals/shop?sslmode=require"}},
            "journal store: encrypted, but not verified (sslmode=require)",
            "journal.store",
        ),
        ({"journal": {"store": "cassandra://127.0.0.1,ring/shop"}}, "journal store: not encrypted", "tls = true"),
        (
            {"journal": {"store": "cassandra://127.0.0.1/shop"}},
            "journal store: not encrypted; it is on this machine",
            "",
        ),
        (
            {"journal": {"store": "cassandra://me:x@ring:9042/shop", "cassandra": {"tls": True, "tls_ca": "/ca.pem"}}},
            "journal store: encrypted, and the certificate of the server is verified",
            "",
        ),
        (
            {"journal": {"store": "cassandra://ring/shop?tls=true&tls_ca=/ca.pem&tls_check_hostname=false"}},
            "journal store: encrypted, but the names of the nodes are not verified",
            "tls_check_hostname",
        ),
    ],
)
def test_the_replica_and_the_store_of_journals_are_judged_too(settings: dict[str, Any], said: str, remedy: str) -> None:
    found = {check.detail: check.hint for check in kafka_checks.examine_transport(Settings.load(**settings))}
    assert said in found
    assert remedy in found[said]
