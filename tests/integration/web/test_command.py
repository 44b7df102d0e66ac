"""`inorder web` as a process: it serves until a signal, refuses open addresses, and outlives its servers."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from inorder.embedded import Kafka
from tests.conftest import Eventually

COMMAND = [sys.executable, "-m", "inorder.cli", "web"]


def config_of(folder: Path, kafka: str, database: str) -> Path:
    file = folder / "inorder.toml"
    file.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka}"\n[database]\nurl = "{database}"\n'
        '[relay]\nleadership = "none"\n[web]\nlisten = "127.0.0.1:0"\nrefresh_seconds = 1\n',
        "utf-8",
    )
    return file


@contextmanager
def served(config: Path) -> Iterator[int]:
    """The port of a running site, which a signal ends at the end."""
    process = subprocess.Popen([*COMMAND, "--config", str(config)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/ ", line)
        assert found is not None, line
        yield int(found[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def ask(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_it_serves_pages_until_a_signal(
    tmp_path: Path, postgres_url: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    with served(config_of(tmp_path, kafka_bootstrap, postgres_url)) as port:
        eventually(lambda: ask(port, "/readyz") == (200, "database: ok\nkafka: ok\n"))
        assert ask(port, "/")[0] == 200
        assert "inorder_web_part_up" in ask(port, "/metrics")[1]


def test_an_address_that_others_can_reach_needs_authentication() -> None:
    done = subprocess.run([*COMMAND, "--listen", "0.0.0.0:0"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "no authentication" in done.stderr) == (3, True)


@pytest.mark.full
def test_kafka_stops_and_the_site_stays_and_says_so(
    tmp_path: Path, servers_folder: Path, unique: str, postgres_url: str, eventually: Eventually
) -> None:
    kafka = Kafka(servers_folder / unique)
    kafka.start()
    try:
        with served(config_of(tmp_path, kafka.bootstrap, postgres_url)) as port:
            eventually(lambda: ask(port, "/readyz")[0] == 200)
            kafka.stop()
            eventually(lambda: ask(port, "/readyz")[0] == 503)
            text = ask(port, "/readyz")[1]
            assert text.startswith("database: ok\n")
            assert kafka.bootstrap in text
            assert ask(port, "/livez") == (200, "ok")
            status, page = ask(port, "/")
            assert status == 200
            assert kafka.bootstrap in page
    finally:
        kafka.stop()
