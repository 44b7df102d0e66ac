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

from inorder.app import App
from inorder.embedded import Kafka, Postgres
from inorder.embedded.server import free_port
from inorder.settings import Settings
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
    except ConnectionRefusedError:
        return 0, "it does not listen"
    finally:
        connection.close()


@pytest.mark.full
def test_it_serves_pages_until_a_signal(
    tmp_path: Path, postgres_url: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    with served(config_of(tmp_path, kafka_bootstrap, postgres_url)) as port:
        eventually(lambda: ask(port, "/readyz") == (200, "database: ok\nkafka: ok\n"))
        assert ask(port, "/")[0] == 200
        assert "inorder_web_part_up" in ask(port, "/metrics")[1]


@pytest.mark.full
def test_top_prints_the_flow_once(tmp_path: Path, postgres_url: str, kafka_bootstrap: str) -> None:
    config = str(config_of(tmp_path, kafka_bootstrap, postgres_url))
    with App(Settings.load(config)) as app:
        app.install_schema("native")
    line = [*COMMAND[:-1], "top", "--once", "--config", config]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^hop +health +waiting +oldest +what$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^Kafka +ok ", done.stdout, re.MULTILINE), done.stdout


def test_an_address_that_others_can_reach_needs_authentication() -> None:
    done = subprocess.run([*COMMAND, "--listen", "0.0.0.0:0"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "no authentication" in done.stderr) == (3, True)


@pytest.mark.full
def test_kafka_stops_and_site_relay_and_job_stay_and_say_so(
    tmp_path: Path, servers_folder: Path, unique: str, postgres_url: str, eventually: Eventually
) -> None:
    with (
        Kafka(servers_folder / unique) as kafka,
        all_running(config_of(tmp_path, kafka.bootstrap, postgres_url), eventually) as ports,
    ):
        kafka.stop()
        for name, port in ports.items():
            database, of_kafka, *_ = not_ready(port, "kafka", eventually)
            assert database == "database: ok", name
            assert kafka.bootstrap in of_kafka, name
        status, page = ask(ports["web"], "/")
        assert (status, kafka.bootstrap in page) == (200, True)


@pytest.mark.full
def test_the_database_stops_and_site_relay_and_job_stay_and_say_so(
    tmp_path: Path, servers_folder: Path, unique: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    with (
        Postgres(servers_folder / unique) as postgres,
        all_running(config_of(tmp_path, kafka_bootstrap, postgres.url), eventually) as ports,
    ):
        postgres.stop()
        for name, port in ports.items():
            database, of_kafka, *_ = not_ready(port, "database", eventually)
            assert "connection" in database.lower(), (name, database)
            assert of_kafka == "kafka: ok", name
        assert ask(ports["web"], "/")[0] == 200


@contextmanager
def all_running(config: Path, eventually: Eventually) -> Iterator[dict[str, int]]:
    """The ports of a site, a relay and a job, once each of them is ready."""
    relay_port = free_port()
    config.write_text(config.read_text("utf-8") + f'[health]\nlisten = "127.0.0.1:{relay_port}"\n', "utf-8")
    app = App(Settings.load(config, health={"listen": "127.0.0.1:0"}))
    with app, app.job_service("upsert", dict) as job, served(config) as port, relay_of(config):
        assert job.address is not None
        ports = {"web": port, "relay": relay_port, "job": job.address[1]}
        app.install_schema("native")
        for each in ports.values():
            eventually(lambda each=each: ask(each, "/readyz")[0] == 200)  # type: ignore[misc]  # mypy cannot infer a default
        yield ports


def not_ready(port: int, server: str, eventually: Eventually) -> list[str]:
    """What it says of database and Kafka once it has noticed; it lives, and serves its metrics."""

    def has_noticed() -> bool:
        status, text = ask(port, "/readyz")
        return status == 503 and f"{server}: ok" not in text.splitlines()

    eventually(has_noticed)
    assert ask(port, "/livez") == (200, "ok")
    assert ask(port, "/metrics")[0] == 200
    return ask(port, "/readyz")[1].splitlines()


@contextmanager
def relay_of(config: Path) -> Iterator[None]:
    """A relay that runs as a process."""
    line = [sys.executable, "-m", "inorder.cli", "relay", "run", "--config", str(config)]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()
