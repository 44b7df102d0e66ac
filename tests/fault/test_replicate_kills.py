"""The job `replicate` killed at every step of a slice: the store equals the topic, and every read was correct."""

from __future__ import annotations

import pytest

from tests.fault.halting_replicator import BETWEEN_HEADS, STEPS
from tests.fault.journal_copy import verify, verify_rows
from tests.fault.journal_ordeal import JournalStage, kill_driver, kill_workers
from tests.fault.replicate_stages import ENGINES, EVERY, LONG, SOME, STORES, NewStage

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("before-pointer", "after-pointer", "after-commit"), id=SOME),
        pytest.param(STEPS, id=EVERY, marks=LONG),
    ],
)
def test_a_process_killed_in_mid_slice_on_postgres(new_stage: NewStage, fresh_url: str, steps: tuple[str, ...]) -> None:
    stage = new_stage("postgres")
    replicator = stage.start()
    stage.wait_for_start()
    with stage.load():
        kill_workers(stage, replicator, steps)
    verify(stage)
    verify_rows(stage, fresh_url)


@pytest.mark.full
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("after-events", BETWEEN_HEADS, "after-head", "after-pointer"), id=SOME),
        pytest.param((*STEPS, BETWEEN_HEADS), id=EVERY, marks=LONG),
    ],
)
def test_a_process_killed_in_mid_slice_on_cassandra(new_stage: NewStage, steps: tuple[str, ...]) -> None:
    stage = new_stage("cassandra")
    replicator = stage.start()
    stage.wait_for_start()
    with stage.load():
        kill_workers(stage, replicator, steps)
    verify(stage)


def workers_and_drivers_are_killed(stage: JournalStage, engine: str, steps: tuple[str, ...], drivers: int) -> None:
    replicator = stage.start(engine)
    stage.wait_for_start()
    with stage.load():
        kill_workers(stage, replicator, steps)
        for step in steps[:drivers]:
            kill_driver(stage, replicator, step)
    verify(stage)


@pytest.mark.full
@pytest.mark.parametrize("drivers", [pytest.param(0, id="worker"), pytest.param(1, id="driver too", marks=LONG)])
def test_a_worker_and_a_driver_of_spark_killed_between_events_and_pointer(new_stage: NewStage, drivers: int) -> None:
    steps = "before-pointer", "after-events"
    workers_and_drivers_are_killed(new_stage("postgres"), "resident", steps, drivers)


@LONG
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("engine", ENGINES)
def test_workers_and_drivers_of_spark_killed_at_every_step(new_stage: NewStage, store: str, engine: str) -> None:
    workers_and_drivers_are_killed(new_stage(store), engine, STEPS, len(STEPS))


@LONG
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", range(2, 5))
def test_a_process_killed_at_every_step_ten_times(new_stage: NewStage, store: str, seed: int) -> None:
    stage = new_stage(store, seed=seed)
    replicator = stage.start()
    stage.wait_for_start()
    with stage.load():
        kill_workers(stage, replicator, STEPS * 10)
    verify(stage)
