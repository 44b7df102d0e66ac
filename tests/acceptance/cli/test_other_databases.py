"""From nothing to a record on a topic with commands alone, on MariaDB and on SQLite."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inorder.database.mysql import connect as mysql_connect
from inorder.kafka.readers import read_back
from inorder.model.message import Message
from inorder.outbox import Outbox
from tests.acceptance.cli.conftest import COMMAND, Inorder
from tests.conftest import Eventually
from tests.selection import few


@pytest.fixture(params=few(["mariadb", "sqlite"], "sqlite"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'outbox.db'}"
    found: str = request.getfixturevalue("mariadb_url")
    return found


def connect(url: str) -> Any:
    return sqlite3.connect(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else mysql_connect(url, "test")


def count(url: str) -> int:
    with closing(connect(url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT COUNT(*) FROM outbox")
        return int(cursor.fetchone()[0])


def are_owned_by(pid: int, output: str) -> bool:
    """Whether a process owns every shard, and nothing waits."""
    status = json.loads(output)
    assert status["waiting"] == 0
    return all(f"/{pid}/" in (owner or "") for owner in status["owners"])


@pytest.mark.full
def test_schema_install_and_relay_run_carry_rows(
    inorder_command: Inorder,
    environment: dict[str, str],
    tmp_path: Path,
    url: str,
    kafka_bootstrap: str,
    unique: str,
    eventually: Eventually,
) -> None:
    (tmp_path / "inorder.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka_bootstrap}"\n[database]\nurl = "{url}"\n'
        f'[relay]\ngroup = "{unique}"\nleadership = "database"\nshards = 2\n',
        "utf-8",
    )
    installed = inorder_command("schema", "install")
    assert installed.returncode == 0, installed.stderr
    with closing(connect(url)) as connection:
        messages = [Message(unique, key=str(number % 3), value=str(number)) for number in range(60)]
        Outbox().publish_list(connection, messages)
        connection.commit()

    with subprocess.Popen(
        [*COMMAND, "relay", "run"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as relay:
        try:
            eventually(lambda: count(url) == 0)
            eventually(lambda: are_owned_by(relay.pid, inorder_command("relay", "status", "--json").stdout))
            relay.send_signal(signal.SIGTERM)
            said = relay.communicate(timeout=120)[1]
        finally:
            relay.kill()
    assert relay.returncode == 0, said
    assert "60 records were published by this instance; 0 rows wait in the outbox." in said
    found = list(read_back({"bootstrap.servers": kafka_bootstrap}, unique))
    for key in range(3):
        values = [int(record.value or b"") for record in found if record.key == str(key).encode()]
        assert values == list(range(key, 60, 3))
