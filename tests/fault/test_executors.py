"""Executors killed in mid-slice on a cluster of two: their tasks run again, and nothing is lost or duplicated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from inorder.embedded.stack import Program
from tests.fault.engine_ordeal import PARTITIONS, Stage
from tests.fault.filling import WAIT_SECONDS, filling
from tests.fault.halting_replicator import STEPS
from tests.fault.journal_copy import verify, verify_rows
from tests.fault.journal_ordeal import kill_executors
from tests.fault.processes import executors, is_alive, kill, python_workers
from tests.fault.replicate_stages import ENGINES, NewStage

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.usefixtures("spark_home")]

CLUSTER = "local-cluster[2,1,1024]"
EXECUTORS = 2
KILLS = 10
"""Five per executor: more failures of one task than Spark tolerates, so that its job fails and is restarted."""
NONE_BEFORE = 0
"""For `make test`: both at once, and none before."""
_FIRST = f"SELECT count(*)::int FROM messages WHERE id < {PARTITIONS}"
_WAITING = """
SELECT count(*)::int FROM pg_stat_activity
WHERE application_name = 'inorder pipeline' AND datname = current_database() AND wait_event_type = 'Lock'
"""


@contextmanager
def in_mid_slice(stage: Stage) -> Iterator[None]:
    """During the block a slice of each partition waits in its transaction for a row that the test has locked."""
    with stage.connect() as connection, stage.connect() as looking, connection.transaction():
        # The first key of each partition, as soon as its row is there.
        stage.eventually(lambda: looking.execute(_FIRST).fetchone() == (PARTITIONS,), WAIT_SECONDS)
        connection.execute(f"SELECT id FROM messages WHERE id < {PARTITIONS} FOR UPDATE")
        stage.eventually(lambda: looking.execute(_WAITING).fetchone() == (PARTITIONS,), WAIT_SECONDS)
        yield


def kill_in_mid_slice(stage: Stage, service: Program, seats: Sequence[int]) -> None:
    """Kills the executors with these numbers at once; waits until every partition has continued without them."""
    assert service.pid is not None
    with in_mid_slice(stage):
        found = executors(service.pid)
        assert len(found) == EXECUTORS
        before = stage.pointers()
        # Workers end with their executor, a moment later; one that got its row meanwhile would still commit its slice.
        ending = [pid for seat in seats for pid in (found[seat], *python_workers(found[seat]))]
        assert len(ending) > len(seats)
        for seat in seats:
            kill(found[seat])
        stage.eventually(lambda: not any(map(is_alive, ending)), WAIT_SECONDS)
        assert stage.pointers() == before, "nothing moved without its rows"
    stage.eventually(lambda: service.has_ended() or are_beyond(stage.pointers(), before), WAIT_SECONDS)
    service.check()


def are_beyond(now: dict[int, int], before: dict[int, int]) -> bool:
    """Whether every pointer has moved."""
    return all(now[partition] > pointer for partition, pointer in before.items())


@pytest.mark.parametrize("engine", ENGINES)
def test_one_executor_with_one_core_serves_all_partitions(stage: Stage, tmp_path: Path, engine: str) -> None:
    with filling(stage, tmp_path, engine, master="local-cluster[1,1,1024]"):
        stage.send(10)
        stage.verify()


@pytest.mark.parametrize(
    ("engine", "kills"),
    [*((engine, KILLS) for engine in ENGINES), pytest.param("resident", NONE_BEFORE, marks=pytest.mark.short)],
)
def test_executors_killed_one_after_the_other_and_both_at_once_cost_a_table_nothing(
    stage: Stage, tmp_path: Path, engine: str, kills: int
) -> None:
    with filling(stage, tmp_path, engine, master=CLUSTER) as service:
        with stage.load(), stage.witness():
            for number in range(kills):
                kill_in_mid_slice(stage, service, [number % EXECUTORS])
            kill_in_mid_slice(stage, service, range(EXECUTORS))
        stage.verify()


@pytest.mark.parametrize("engine", ENGINES)
def test_executors_killed_at_every_step_cost_a_journal_nothing(
    new_stage: NewStage, fresh_url: str, engine: str
) -> None:
    stage = new_stage("postgres", master=CLUSTER)
    replicator = stage.start(engine)
    stage.wait_for_start()
    with stage.load():
        kill_executors(stage, replicator, STEPS)
    verify(stage)
    verify_rows(stage, fresh_url)
