"""The whole path under continuous load while its processes are killed."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyspark
import pytest

from inorder.demo.load import Ledger, plan_load, write
from inorder.demo.path import TOPIC, DemoPath, DemoSummary, summarise
from inorder.embedded import Stack
from inorder.kafka.admin import ensure_topic
from tests.conftest import Eventually
from tests.fault.engine_ordeal import PARTITIONS, Stage
from tests.fault.fleet import Fleet, NewFleet, Place, Way
from tests.fault.replicate_stages import fresh_url, new_stage
from tests.injections import INJECTIONS, FaultedTest, recovers, tabulate, watch
from tests.integration.pipeline.conftest import direct, spark
from tests.proof.results import record_test

__all__ = ["direct", "fresh_url", "new_stage", "spark"]

LAST_LINES = 40
EVENTS_A_ROUND = 400
QUIET_SECONDS = 0.5
STALL_SECONDS = 180
"""A path that moves nothing for so long is stuck; Spark alone may take a minute to start on a busy machine."""


@dataclass
class Ordeal:
    """One path, its writers' ledger, and the history of faults."""

    path: DemoPath
    seed: int
    eventually: Eventually
    ledger: Ledger = field(default_factory=Ledger)
    history: list[str] = field(default_factory=list)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Runs the writers for the duration of the block."""
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(self._write_rounds, stop)
            try:
                yield
            finally:
                stop.set()
            writing.result()

    def kill_at_random(self, times: int) -> None:
        """Kills relay and pipeline in turn at moments chosen by the seed, and restarts each at once."""
        chance = random.Random(self.seed)
        for number in range(times):
            service = self.path.pipeline if number % 2 else self.path.relay
            # A pipeline needs seconds to start: most kills wait until it applies records, some hit it while it starts.
            if service is self.path.pipeline and chance.random() < 0.8:
                self.wait_for_progress()
            threading.Event().wait(chance.uniform(0.1, 3.0))
            self.history.append(f"{service.name} killed at {self.path.position()} of {len(self.ledger.entries)}")
            service.kill()
            service.start()

    @recovers
    def wait_for_published(self) -> None:
        """Waits until the relay has published something that was committed after the call."""
        committed = len(self.ledger.entries)

        def is_ahead() -> bool:
            now = len(self.ledger.entries)
            return now - self.path.position().waiting > committed

        self.eventually(is_ahead, STALL_SECONDS)

    @recovers
    def wait_for_progress(self) -> None:
        """Waits until the pipeline has applied something since the call; the first time, Spark may be starting."""
        before = self.path.position().processed
        self.eventually(lambda: self.path.position().processed > before, STALL_SECONDS)

    @recovers
    def verdict(self) -> DemoSummary:
        """Waits until everything committed has arrived, and compares."""
        wanted = len(self.ledger.entries)
        while not self._has_arrived(wanted):
            before = self.path.position()
            self.eventually(lambda: self._has_arrived(wanted) or self.path.position() != before, STALL_SECONDS)  # noqa: B023 - at once
        return summarise(self.path, self.ledger.entries, {})

    def _has_arrived(self, wanted: int) -> bool:
        self.path.relay.check()
        self.path.pipeline.check()
        return self.path.position().processed >= wanted and not self.path.position().waiting

    def _write_rounds(self, stop: threading.Event) -> None:
        for number in count():
            plans = plan_load(EVENTS_A_ROUND, self.seed + number)
            write(self.path.url, TOPIC, plans, self.ledger, stop, late_seconds=1.0)
            if stop.wait(QUIET_SECONDS):
                return


@pytest.fixture
def ordeal(request: pytest.FixtureRequest, eventually: Eventually) -> Iterator[Ordeal]:
    """A path for this test, with relay and pipeline running; the test's parameter is the seed."""
    with DemoPath(Stack(("postgres", "kafka"), durable=False)) as path:
        path.pipeline.start()
        path.relay.start()
        found = Ordeal(path, request.param, eventually)
        yield found
        print(f"\nseed {found.seed}, {len(found.ledger.entries)} committed", *found.history, sep="\n  ")  # noqa: T201
        for service in (path.relay, path.pipeline):
            last = service.log_path.read_text(errors="replace").splitlines()[-LAST_LINES:]
            print(f"last words of {service.name}, at {path.position()}", *last, sep="\n  ")  # noqa: T201


@pytest.fixture
def new_fleet(
    postgres_url: str, kafka_bootstrap: str, unique: str, tmp_path: Path, eventually: Eventually
) -> Iterator[NewFleet]:
    """Creates a fleet on the session's servers, or on the given ones; stops it after the test."""
    fleets: list[Fleet] = []

    def set_up(way: Way, *, seed: int = 1, url: str = "", relay_url: str = "", bootstrap: str = "") -> Fleet:
        place = Place(url or postgres_url, bootstrap or kafka_bootstrap, tmp_path, unique, relay_url)
        fleets.append(Fleet(place, way, eventually, seed))
        return fleets[-1]

    yield set_up
    for fleet in fleets:
        fleet.stop_all()
        print(f"\n{fleet.way}, seed {fleet.seed}", *fleet.history, sep="\n  ")  # noqa: T201


@pytest.fixture
def stage(kafka_bootstrap: str, postgres_url: str, unique: str, eventually: Eventually) -> Stage:
    """A topic and a database for this test."""
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, PARTITIONS)
    return Stage(kafka_bootstrap, unique, postgres_url, eventually)


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the Spark installation for this test: a local cluster writes its work files beside its jars."""
    home = tmp_path / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


@pytest.fixture(scope="session", autouse=True)
def new_topics(topics_on_demand: None) -> None:
    """Of every test here."""


# The table of injections: what was done to the servers and programs of all tests, and whether they survived it.

RECORDING = "RECORD_FAULTS"
"""The variable with which `make fault` writes to docs/proof.json."""
WORKER = "PYTEST_XDIST_WORKER"
FAULTED: dict[str, FaultedTest] = {}
"""What was injected, by test; of all workers, in the process that reports."""


@pytest.fixture(autouse=True, scope="session")
def counted() -> Iterator[None]:
    """Counts what the tests kill."""
    with watch():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (found := INJECTIONS.end_phase(call.when, report.outcome)) is not None:
        report.user_properties.append(("faulted", found))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    found = dict(report.user_properties).get("faulted") if report.when == "teardown" else None
    if not isinstance(found, dict) or WORKER in os.environ:
        return
    FAULTED[report.nodeid] = found
    if os.environ.get(RECORDING) and found["outcome"] != "skipped":
        record_test(report.nodeid, found)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    table = tabulate(FAULTED.values())
    if not table:
        return
    terminalreporter.section("injected faults")
    width = max(len(row["kind"]) for row in table)
    terminalreporter.write_line(f"{'kind':{width}}  count  median s  longest s  violations")
    for row in table:
        median, longest = (f"{row[name] or 0:.1f}" for name in ("recovery_median", "recovery_longest"))
        terminalreporter.write_line(
            f"{row['kind']:{width}}  {row['count']:5}  {median:>8}  {longest:>9}  {row['violations']:10}"
        )
