"""Our side of the contest carries every kind of backlog whole, and its trials hold the figures that are compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inorder.bench.contender import Ours
from inorder.bench.load import Load, Schedule
from inorder.bench.options import RelayOptions, RelaySetting
from inorder.bench.place import BenchPlace
from inorder.bench.wake_up import WakeUpOptions, bench_wake_up
from inorder.embedded import Stack
from inorder.kafka.readers import read_back

ROWS = 2_000
OPTIONS = RelayOptions(rows=ROWS, schedule=Schedule(rate=100, seconds=1.0, warm_seconds=0.5))


@pytest.fixture(scope="module")
def place() -> Iterator[BenchPlace]:
    """Servers with what a peer could need of them."""
    stack = Stack(("postgres", "kafka"), durable=False, postgres={"wal_level": "logical"})
    with BenchPlace(stack, lambda _: None, RelaySetting()) as servers:
        yield servers


@pytest.mark.full
def test_the_database_has_the_settings_that_a_peer_asks_for(place: BenchPlace) -> None:
    assert place.watching.execute("SHOW wal_level").fetchone() == ("logical",)


@pytest.mark.full
@pytest.mark.parametrize("load", [Load(ROWS, 100), Load(ROWS, 1), Load(ROWS, 10, headers=1)])
def test_a_backlog_is_drained_to_its_end_and_read_back(place: BenchPlace, load: Load) -> None:
    number = 1_000 * load.headers + load.keys
    trial = Ours(place, OPTIONS).drain(load, number)
    assert trial.is_whole
    assert trial.check.verdict.holds, trial.check
    assert trial.check.records == ROWS
    assert trial.drain.startup_seconds > 0
    first = next(iter(read_back(place.kafka, f"inorder-drain-{number}")))
    assert len(first.headers) == load.headers


@pytest.mark.full
def test_live_rows_are_timed_from_their_commit_and_their_cost_is_known(place: BenchPlace) -> None:
    trial = Ours(place, OPTIONS).live(1)
    assert trial.check.verdict.holds, trial.check
    assert trial.since_commit["count"] == 100
    assert trial.latency["p50"] <= trial.since_due["p99"]
    assert trial.cpu.relay is not None
    assert trial.cpu.database is not None


@pytest.mark.full
def test_what_writers_commit_flat_out_arrives_once_and_in_order(place: BenchPlace) -> None:
    trials = bench_wake_up(place, WakeUpOptions(writers=3, seconds=0.5, repeats=1))
    assert trials.check.verdict.holds, trials.check
    assert trials.waking[0].commits_per_second > 0
    assert trials.plain[0].commits_per_second > 0
