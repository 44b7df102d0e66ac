"""SASL/SCRAM and TLS: the right password and authority publish, a wrong one is one clear error and exit code 4."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from inorder.embedded.kafka import BrokerSecurity, SecuredKafka
from inorder.kafka.readers import read_back
from inorder.model.message import Message
from inorder.outbox.layouts import install_statements
from tests.conftest import Eventually
from tests.integration.relay.commands import Commands
from tests.integration.relay.conftest import Bench
from tests.secured_broker import issue


@pytest.fixture(scope="module")
def entrance(tmp_path_factory: pytest.TempPathFactory) -> BrokerSecurity:
    return issue(tmp_path_factory.mktemp("entrance")).broker


@pytest.fixture(scope="module")
def broker(servers_folder: Path, entrance: BrokerSecurity) -> Iterator[SecuredKafka]:
    with SecuredKafka(servers_folder / "secured-kafka", entrance) as server:
        yield server


@pytest.fixture
def bench(postgres_url: str, broker: SecuredKafka, unique: str) -> Bench:
    """An empty outbox table before this broker."""
    found = Bench(postgres_url, broker.bootstrap, unique)
    with found.connect() as connection:
        for statement in install_statements("native", "postgresql", "outbox"):
            connection.execute(statement)
    return found


def commands(bench: Bench, folder: Path, properties: dict[str, str]) -> Commands:
    return Commands(bench, folder, sections={"kafka": properties}, leadership="database")


def wrong_password(broker: SecuredKafka, _folder: Path) -> dict[str, str]:
    return {**broker.client_properties, "sasl.password": "geheim-falsch"}


def wrong_user(broker: SecuredKafka, _folder: Path) -> dict[str, str]:
    return {**broker.client_properties, "sasl.username": "nobody"}


def wrong_authority(broker: SecuredKafka, folder: Path) -> dict[str, str]:
    other = folder / "other-ca.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    return {**broker.client_properties, "ssl.ca.location": str(other)}


REFUSED = [
    pytest.param(wrong_password, 'kafka."sasl.password"', id="wrong password"),
    pytest.param(wrong_user, 'kafka."sasl.username"', id="unknown user", marks=pytest.mark.full),
    pytest.param(wrong_authority, 'kafka."ssl.ca.location"', id="wrong authority", marks=pytest.mark.full),
]


@pytest.mark.full
def test_the_right_password_and_authority_publish(
    bench: Bench, broker: SecuredKafka, unique: str, eventually: Eventually, tmp_path: Path
) -> None:
    bench.publish(Message(unique, key="1", value=b"a"), Message(unique, key="1", value=b"b"))
    with commands(bench, tmp_path, broker.client_properties).running("relay", "run") as process:
        eventually(lambda: bench.count() == 0 or process.poll() is not None, timeout=60)
        assert process.poll() is None
    values = [record.value for record in read_back(broker.client_properties, unique)]
    assert values == [b"a", b"b"]


@pytest.mark.full
def test_the_doctor_finds_nothing_wrong_with_the_right_ones(bench: Bench, broker: SecuredKafka, tmp_path: Path) -> None:
    done = commands(bench, tmp_path, broker.client_properties).run("doctor", "--json")
    kafka = next(check for check in json.loads(done.stdout) if check["name"] == "kafka")
    assert kafka["status"] == "ok"


@pytest.mark.parametrize(("properties", "key"), REFUSED)
def test_the_relay_ends_with_one_clear_error_and_exit_code_4(
    bench: Bench, broker: SecuredKafka, tmp_path: Path, properties: Any, key: str
) -> None:
    done = commands(bench, tmp_path, properties(broker, tmp_path)).run("relay", "run")
    assert done.returncode == 4, done.stderr
    errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    assert len([line for line in errors if line.startswith("error TRANSIENT-004")]) == len(errors) == 1, done.stderr
    assert f"Kafka at {broker.bootstrap}: authentication failed" in errors[0]
    assert key in done.stderr
    assert "geheim" not in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(("properties", "key"), REFUSED)
def test_the_doctor_names_it_once_with_exit_code_4(
    bench: Bench, broker: SecuredKafka, tmp_path: Path, properties: Any, key: str
) -> None:
    done: subprocess.CompletedProcess[str] = commands(bench, tmp_path, properties(broker, tmp_path)).run(
        "doctor", "--json"
    )
    assert done.returncode == 4, done.stderr
    failed = [check for check in json.loads(done.stdout) if check["status"] == "fail" and "kafka" in check["name"]]
    assert len(failed) == 1
    assert f"Kafka at {broker.bootstrap}: authentication failed" in failed[0]["detail"]
    assert key in failed[0]["hint"]
    assert "geheim" not in done.stdout
