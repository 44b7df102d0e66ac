"""`inorder up` keeps real servers up, and a signal takes all of them down."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.acceptance.cli.conftest import COMMAND
from tests.selection import few


def listens(port: int) -> bool:
    """Whether a server answers on a port of this machine."""
    with socket.socket() as client:
        client.settimeout(2)
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("number", few([signal.SIGTERM, signal.SIGINT], signal.SIGTERM), ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_stops_all_servers_and_ends_with_0(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    spark = ["--spark-workers", "1"] if number is signal.SIGINT else []
    with subprocess.Popen(
        [*COMMAND, "up", "--json", "--folder", str(tmp_path / "stack"), *spark],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            addresses = json.loads(running.stdout.readline())
            assert set(addresses) == {"postgres", "kafka"} | ({"spark"} if spark else set())
            ports = [make_url(addresses["postgres"]).port or 0]
            ports += [int(addresses[name].rpartition(":")[2]) for name in addresses if name != "postgres"]
            assert all(listens(port) for port in ports)
            running.send_signal(number)
            rest, messages = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == 0, messages
    assert rest == ""
    assert "Stopping the servers" in messages
    assert not any(listens(port) for port in ports)
