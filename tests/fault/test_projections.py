"""Instances of a projection that are killed and paused under load: the sums in the read model say what was applied."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import inorder
from inorder.database.database import open_database
from inorder.journal.stores.opening import open_journal_store
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.injections import INJECTIONS, injects
from tests.integration.journal.test_projecting import VIEW, balances

MODULE = """
import os
import inorder
from tests.integration.journal.test_projecting import fold_balance

projection = inorder.Projection("balances", fold_balance, [os.environ["TOPIC"]])
"""
INSTANCES = 3
FAULTS = 8
ACCOUNTS = 30


class Instances:
    """Processes of `inorder journal project`; the one with a number may be replaced."""

    def __init__(self, folder: Path, topic: str) -> None:
        self._folder = folder
        path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self._environment = {**os.environ, "TOPIC": topic, "PYTHONPATH": path}
        self._processes = [self._start() for _ in range(INSTANCES)]

    @injects("kill -9 of a projection")
    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait(60)
        self._processes[number] = self._start()

    def signal(self, number: int, which: signal.Signals) -> None:
        self._processes[number].send_signal(which)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(60)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "inorder.cli", "journal", "project", "projections:projection"]
        return subprocess.Popen(command, cwd=self._folder, env=self._environment)


@contextmanager
def load(journals: inorder.Journals, topic: str, counts: dict[str, int]) -> Iterator[None]:
    """Appends to accounts, one after the other, and purges one now and then, while the block runs."""
    stop = threading.Event()

    def write() -> None:
        chance = random.Random(17)
        while not stop.is_set():
            id = f"account {chance.randrange(ACCOUNTS)}"
            journal = journals.journal(Key(id, topic))
            if counts.get(id, 0) and chance.random() < 0.02:
                journal.purge()
                counts[id] = 0
            else:
                journal.append([Event(counts.get(id, 0) + 1, 1)])
                counts[id] = counts.get(id, 0) + 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@pytest.mark.fault
def test_instances_that_are_killed_and_paused_apply_every_change_once(
    kafka_bootstrap: str, postgres_url: str, unique: str, tmp_path: Path, eventually: Eventually
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 6)
    with closing(open_journal_store(postgres_url)) as store:
        store.install()
    (tmp_path / "projections.py").write_text(MODULE)
    (tmp_path / "inorder.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka_bootstrap}"\n"session.timeout.ms" = 6000\n'
        f'[database]\nurl = "{postgres_url}"\n[journal]\ntopic_prefixes = ["{unique}"]\nhead_cache = false\n'
    )
    settings, counts = inorder.Settings.load(tmp_path / "inorder.toml"), dict[str, int]()
    with (
        closing(open_database(postgres_url, "test")) as view,
        inorder.Journals(settings) as journals,
        closing(Instances(tmp_path, unique)) as instances,
    ):
        view.install([VIEW])

        def applied() -> int:
            return sum(events for _, events in balances(view).values())

        with load(journals, unique, counts):
            for fault in range(FAULTS):
                before = applied()
                eventually(lambda: applied() != before, 120)  # noqa: B023 - called at once
                if fault % 2:
                    INJECTIONS.note("SIGSTOP of a projection")
                    instances.signal(fault % INSTANCES, signal.SIGSTOP)
                    paused = applied()
                    eventually(lambda: applied() != paused, 120)  # noqa: B023 - called at once
                    instances.kill((fault + 1) % INSTANCES)
                    instances.signal(fault % INSTANCES, signal.SIGCONT)
                else:
                    instances.kill(fault % INSTANCES)
        expected = {id: (count, count) for id, count in counts.items() if count}
        eventually(lambda: balances(view) == expected, 180)
