"""`inorder relay run` goes on with what is changed in its file, tells how it is, and loses nothing meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from inorder.embedded.server import free_port
from inorder.kafka.readers import read_back
from inorder.model.message import Message
from inorder.outbox import Outbox
from tests.conftest import Eventually
from tests.integration.relay.commands import Commands, heard
from tests.integration.relay.conftest import Bench
from tests.integration.relay.writing import Writers
from tests.network import PostgresNetwork


class Asked:
    """The endpoint of a relay that runs as a process."""

    def __init__(self) -> None:
        self.port = free_port()

    def __call__(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError as error:
            return 0, str(error)

    def metric(self, name: str) -> float:
        """Its value, without labels but the group."""
        lines = [line for line in self("/metrics")[1].splitlines() if line.startswith(f"{name}{{")]
        return float(lines[0].rpartition(" ")[2]) if lines else -1


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def sections(asked: Asked) -> dict[str, Any]:
    return {"health": {"listen": str(asked.port)}, "log": {"format": "json"}}


@pytest.fixture
def commands(bench: Bench, tmp_path: Path, sections: dict[str, Any]) -> Commands:
    return Commands(bench, tmp_path, sections=sections, leadership="database", batch_size=50)


@pytest.fixture
def process(commands: Commands) -> Iterator[subprocess.Popen[str]]:
    with commands.running("relay", "run") as found:
        heard(found, "runs. Ctrl-C stops it.")
        yield found


def event_of(process: subprocess.Popen[str], words: str) -> dict[str, Any]:
    """The next line of the log with these words."""
    found: dict[str, Any] = json.loads(heard(process, words).splitlines()[-1])
    return found


def test_settings_change_under_load_and_nothing_is_lost_doubled_or_reordered(
    bench: Bench,
    commands: Commands,
    process: subprocess.Popen[str],
    sections: dict[str, Any],
    asked: Asked,
    unique: str,
    eventually: Eventually,
) -> None:
    kafka = {"bootstrap.servers": bench.bootstrap}
    with Writers(bench, unique) as writers:
        for round_, linger in enumerate((0, 5, 1), start=1):
            before = len(writers.committed)
            changed = {**sections, "kafka": {**kafka, "linger.ms": linger, "compression.type": "zstd"}}
            commands.write(sections=changed, leadership="database", batch_size=100 * round_)
            found = event_of(process, "relay.reloaded")
            assert "relay.batch_size" in found["keys"]
            eventually(lambda before=before: len(writers.committed) - bench.count() > before)  # type: ignore[misc]  # mypy cannot infer a default
        writers.stop()
        eventually(lambda: bench.count() == 0)
    eventually(lambda: asked.metric("inorder_relay_published_total") == len(writers.committed))
    assert asked.metric("inorder_relay_reloads_total") == 3
    process.send_signal(signal.SIGTERM)
    assert f"Stopped. {len(writers.committed)} records were published" in process.communicate(timeout=120)[1]
    verdict = writers.verdict()
    assert verdict.holds, verdict


@pytest.mark.full
def test_a_file_with_a_mistake_is_refused_and_the_relay_works_on(
    bench: Bench,
    commands: Commands,
    process: subprocess.Popen[str],
    sections: dict[str, Any],
    asked: Asked,
    unique: str,
    eventually: Eventually,
) -> None:
    commands.write(sections=sections, leadership="database", batch_sise=7)
    assert "did you mean relay.batch_size?" in event_of(process, "relay.reload_refused")["error"]
    away = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    commands.write(sections={**sections, "kafka": away}, leadership="database")
    assert "cannot be reached" in event_of(process, "relay.reload_refused")["error"]
    commands.write(sections=sections, leadership="database", group="another")
    assert event_of(process, "relay.restart_needed")["keys"] == ["relay.group"]
    with Writers(bench, unique) as writers:
        eventually(lambda: len(writers.committed) > 20)
        writers.stop()
        eventually(lambda: bench.count() == 0)
    assert asked("/health") == (200, "Pong")


@pytest.mark.full
def test_health_is_503_with_the_reason_while_the_database_is_away(
    bench: Bench, asked: Asked, sections: dict[str, Any], eventually: Eventually, tmp_path: Path
) -> None:
    with PostgresNetwork(bench.url) as proxy, ExitStack() as running:
        sections = {**sections, "database": {"url": proxy.url}}
        running.enter_context(Commands(bench, tmp_path, sections=sections, leadership="none").running("relay", "run"))
        eventually(lambda: asked.metric("inorder_relay_is_leader") == 1)
        assert asked("/health") == (200, "Pong")
        eventually(lambda: asked("/readyz") == (200, "database: ok\nkafka: ok\nwork: ok\n"))
        away = running.pop_all()
    with away:
        eventually(lambda: asked("/health")[0] == 503)
        assert "PostgreSQL" in asked("/health")[1]
        eventually(lambda: (lines := asked("/readyz")[1].splitlines())[0] != "database: ok" and lines[1] == "kafka: ok")
        assert asked("/readyz")[0] == 503
        assert asked("/livez") == (200, "ok")
        assert asked.metric("inorder_relay_failing") == 1


@pytest.mark.full
def test_the_strategy_polling_reloads_its_waits_and_tells_offset_and_breakers(
    bench: Bench,
    commands: Commands,
    sections: dict[str, Any],
    redis_url: str,
    asked: Asked,
    unique: str,
    eventually: Eventually,
) -> None:
    polling = {**sections, "redis": {"url": redis_url}}
    relay = {"strategy": "polling", "layout": "trendyol", "leadership": "redis"}
    commands.write(sections=polling, **relay)
    commands.run("schema", "install", "--layout", "trendyol")
    outbox = Outbox("outbox_events", layout="trendyol")
    with bench.connect() as connection:
        outbox.publish_list(connection, [Message(unique, key="a", value=str(number)) for number in range(100)])
    with commands.running("relay", "run") as process:
        eventually(lambda: asked.metric("inorder_relay_published_total") == 100)
        commands.write(sections={**polling, "relay.polling": {"missing_wait_ms": 50, "keep_order": False}}, **relay)
        keys = event_of(process, "relay.reloaded")["keys"]
        assert keys == ["relay.polling.keep_order", "relay.polling.missing_wait_ms"]
        with bench.connect() as connection:
            outbox.publish(connection, Message(unique, key="a", value="100"))
        eventually(lambda: asked.metric("inorder_relay_published_total") == 101)
        eventually(lambda: asked.metric("inorder_outbox_offset") >= 100)
        told = asked("/metrics")[1]
    assert f'inorder_relay_breaker_state{{daemon="outbox",group="{bench.group}",state="closed"}} 1.0' in told
    values = [int(record.value or b"") for record in read_back(bench.properties, unique)]
    assert values == list(range(101)), "none lost, none doubled, none reordered"
