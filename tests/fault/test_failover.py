"""A topic is switched from 4 to 8 partitions under load while the command is killed at every step."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import inorder
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.testing.checker import Verdict, check_delivery, check_placement
from tests.conftest import Eventually
from tests.fault import dying_operator
from tests.fault.gated_reader import PARTITIONS, GatedReader
from tests.fault.load import Load
from tests.operating import generations_status, install_schema

STEPS = 9
_SETTINGS = """\
[kafka]
"bootstrap.servers" = "{bootstrap}"
[database]
url = "{url}"
[relay]
group = "{name}"
leadership = "database"
delivery = "{delivery}"
shards = 2
batch_size = 200
io_back_off_ms = 100
"""


class Move:
    """A topic under load, with a relay that publishes and a reader that follows it."""

    def __init__(self, folder: Path, url: str, bootstrap: str, name: str, delivery: str = "exactly-once") -> None:
        self.topic = name
        self.folder = folder
        self.config = folder / "inorder.toml"
        self.config.write_text(_SETTINGS.format(bootstrap=bootstrap, url=url, name=name, delivery=delivery))
        self.settings = inorder.Settings.load(self.config)
        install_schema(self.settings, "native")
        ensure_topic(self.settings.kafka.properties, name, PARTITIONS)
        self.load = Load(url, [name], "native", seed=1)
        self.relay = inorder.Relay(self.settings)
        self.reader = GatedReader(self.settings, name)

    @contextmanager
    def under_load(self, eventually: Eventually) -> Iterator[None]:
        """Runs everything; at the end the reader has read all that was committed."""
        with self.reader, self.relay:
            with self.load:
                eventually(lambda: len(self.reader.seen) > 200)
                yield
            committed = len(self.load.committed())
            eventually(lambda: len(set(self.reader.seen)) >= committed, 60)

    def operator(self, *arguments: str, deaths: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs `inorder topics …` until it ends or is killed."""
        program = ["-m", "inorder.cli"] if deaths is None else [dying_operator.__file__, str(deaths)]
        line = [sys.executable, *program, "topics", *arguments, "--config", str(self.config)]
        return subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)

    def status(self) -> dict[str, Any]:
        """The topic in `inorder topics status`."""
        return generations_status(self.settings, self.topic)[0]

    def verdict(self) -> Verdict:
        """Compares what the reader saw, in its order, with what was committed; and the partitions of each key."""
        found = check_delivery(self.load.committed(), self.reader.seen)
        for places in self.reader.places.values():
            found += check_placement(places)
        return found


@pytest.fixture
def move(postgres_url: str, kafka_bootstrap: str, unique: str, tmp_path: Path) -> Move:
    return Move(tmp_path, postgres_url, kafka_bootstrap, unique)


def die_at_every_step(move: Move, *arguments: str) -> int:
    """Runs the same command until it succeeds; returns how often it died."""
    deaths = move.folder / "deaths"
    deaths.write_text("")
    while True:
        ran = move.operator("failover", move.topic, *arguments, "--json", deaths=deaths)
        if ran.returncode == 0:
            assert json.loads(ran.stdout)["phase"] == "steady"
            return len(deaths.read_text().splitlines())
        assert ran.returncode == -9, ran.stderr


@pytest.mark.full
def test_four_partitions_become_eight_under_load_with_a_kill_at_every_step(move: Move, eventually: Eventually) -> None:
    with move.under_load(eventually):
        assert die_at_every_step(move, "--partitions", "8") == STEPS
        before = len(move.reader.places[f"{move.topic}.g1"])
        eventually(lambda: len(move.reader.places[f"{move.topic}.g1"]) > before + 200, 60)
    verdict = move.verdict()
    assert verdict.holds, verdict
    status = move.status()
    assert [each["late"] for each in status["generations"]] == [0, 0]
    assert (status["kafka_topic"], status["next"]) == (f"{move.topic}.g1", "")
    closed = list(read_back(move.settings.kafka.properties, move.topic))
    ends = status["generations"][0]["ends"]
    assert all(record.offset < ends[record.partition] for record in closed)
    assert len({partition for _, partition in move.reader.places[f"{move.topic}.g1"]}) > PARTITIONS


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 42, 1971])
def test_operators_killed_at_any_moment_two_at_once_and_three_switches_lose_nothing(
    move: Move, eventually: Eventually, seed: int
) -> None:
    chance = random.Random(seed)
    with move.under_load(eventually):
        for partitions in (8, 3, 16):
            _switch_with_kills(move, partitions, chance)
    verdict = move.verdict()
    assert verdict.holds, verdict
    assert [each["late"] for each in move.status()["generations"]] == [0] * 4


def _switch_with_kills(move: Move, partitions: int, chance: random.Random) -> None:
    line = [sys.executable, "-m", "inorder.cli", "topics", "failover", move.topic]
    line += ["--partitions", str(partitions), "--config", str(move.config)]
    for _ in range(6):
        operators = [subprocess.Popen(line, stderr=subprocess.DEVNULL) for _ in range(2)]
        for operator in operators:
            threading.Event().wait(chance.uniform(0.4, 3.0))
            operator.kill()
            operator.wait()
    ran = move.operator("failover", move.topic, "--partitions", str(partitions))
    assert ran.returncode == 0, ran.stderr
