"""The doctor's verdicts: what each finding means for the exit code, and what it says."""

from __future__ import annotations

import re
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from inorder.doctor import Check, exit_code
from inorder.doctor import kafka as kafka_checks
from inorder.doctor import machine as machine_checks
from inorder.doctor.check import fail, of_error, ok, unreachable, warn
from inorder.doctor.database import OUTBOX_COLUMNS, examine_database
from inorder.doctor.machine import GIGABYTE, examine_machine
from inorder.doctor.redis import examine_redis
from inorder.embedded.ports import free_port
from inorder.kafka.admin import Cluster, ClusterInfo
from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.outbox.layouts import install_statements
from inorder.settings import Settings

OK, WARN = ok("a", "fine"), warn("b", "hm", "look")
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


def test_the_columns_the_doctor_expects_are_those_of_the_layout() -> None:
    (ddl,) = install_statements("native", "postgresql", "outbox")
    body = ddl[ddl.index("(") + 1 : ddl.index(") WITH")]
    assert set(re.findall(r'^\s+"?(\w+)"? ', body, re.MULTILINE)) == OUTBOX_COLUMNS


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


def test_another_database_is_only_looked_at(tmp_path: Path) -> None:
    settings = Settings.load(database={"url": f"sqlite:///{tmp_path}/x.db"})
    (check,) = examine_database(settings)
    assert (check.status, "need PostgreSQL" in check.hint) == ("warn", True)


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

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        return self.broker if broker_id == 1 else {}


BROKER_DEFAULTS = {
    "transaction.max.timeout.ms": "900000",
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
        "leadership": "ok",
        "marker topic": "ok",
        "pipeline topic": "warn",
    }


def test_settings_that_would_break_the_relay_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {
        "inorder.orders.marker": (1, {"cleanup.policy": "delete"}),
        "upsert": (4, {"max.message.bytes": "20000"}),
    }
    broker = {**BROKER_DEFAULTS, "transaction.max.timeout.ms": "5000", "group.min.session.timeout.ms": "10000"}
    found = findings(FakeCluster(topics, broker), monkeypatch)
    assert found == {
        "kafka": "ok",
        "kafka transactions": "fail",
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
    assert (found["kafka transactions"], found["leadership"]) == ("warn", "warn")


def test_sessions_are_looked_at_only_where_members_have_some(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(FakeCluster({}, BROKER_DEFAULTS), monkeypatch, leadership="database")
    assert "leadership" not in found


def test_redis_is_looked_at_only_where_the_lease_lives_there() -> None:
    url = f"redis://:geheim@127.0.0.1:{free_port()}/0"
    assert examine_redis(Settings.load(redis={"url": url})) == []
    [check] = examine_redis(Settings.load(redis={"url": url}, relay={"leadership": "redis"}))
    assert (check.name, check.status, check.unreachable) == ("leadership", "fail", True)
    assert "geheim" not in check.detail + check.hint
