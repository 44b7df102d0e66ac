"""`inorder up` keeps real servers up, and pages where they are wanted; a signal takes all of them down."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from http.client import HTTPConnection
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from inorder.settings import Settings
from tests.acceptance.cli.conftest import COMMAND
from tests.conftest import Eventually
from tests.selection import few


def listens(port: int) -> bool:
    """Whether a server answers on a port of this machine."""
    with socket.socket() as client:
        client.settimeout(2)
        return client.connect_ex(("127.0.0.1", port)) == 0


def passwords(settings: Path) -> list[str]:
    """Those of PostgreSQL and Kafka."""
    found = Settings.load(settings)
    return [make_url(found.database.require_url()).password or "", str(found.kafka.properties["sasl.password"])]


def ask(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.full
@pytest.mark.parametrize("number", few([signal.SIGTERM, signal.SIGINT], signal.SIGTERM), ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_stops_all_servers_and_ends_with_0(
    tmp_path: Path, environment: dict[str, str], eventually: Eventually, number: signal.Signals
) -> None:
    beside = {signal.SIGINT: ["--spark-workers", "1"], signal.SIGTERM: ["--web"]}[number]
    written = tmp_path / "written.toml"
    expected = {"spark"} if number is signal.SIGINT else {"web"}
    with subprocess.Popen(
        [*COMMAND, "up", "--json", "--folder", str(tmp_path / "stack"), "--write-config", str(written), *beside],
        cwd=tmp_path,
        env={**environment, "INORDER_WEB__LISTEN": "127.0.0.1:0", "INORDER_WEB__REFRESH_SECONDS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            addresses = json.loads(running.stdout.readline())
            settings = Path(addresses.pop("settings"))
            assert settings.stat().st_mode & 0o077 == 0
            assert settings.read_bytes() == written.read_bytes()
            assert written.stat().st_mode & 0o077 == 0
            assert "sasl.password" in Settings.load(written).kafka.properties
            assert set(addresses) == {"postgres", "kafka"} | expected
            assert make_url(addresses["postgres"]).password == "***"
            ports = [make_url(addresses["postgres"]).port or 0]
            ports += [int(addresses[name].rstrip("/").rpartition(":")[2]) for name in addresses if name != "postgres"]
            assert all(listens(port) for port in ports)
            found = subprocess.run(
                [*COMMAND, "doctor", "--config", str(written)],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert "authentication failed" not in found.stdout + found.stderr
            assert not any(secret in found.stdout + found.stderr for secret in passwords(settings))
            if "web" in addresses:
                eventually(lambda: ask(ports[-1], "/readyz") == (200, "database: ok\nkafka: ok\n"))
            running.send_signal(number)
            rest, messages = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == 0, messages
    assert rest == ""
    assert "Stopping the servers" in messages
    assert not any(listens(port) for port in ports)
