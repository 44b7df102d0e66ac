"""The store fails in the middle of a slice and returns: the job waits, continues, and nothing is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inorder.embedded import Cassandra, Postgres
from inorder.model.errors import TransientError
from tests.fault.halting_replicator import STEPS
from tests.fault.journal_copy import verify
from tests.fault.journal_ordeal import WAIT_SECONDS, JournalStage, Replicator, wake
from tests.fault.replicate_stages import ENGINES, LONG, NewStage
from tests.network import PostgresNetwork

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[Postgres]:
    """A server that may be killed."""
    with Postgres(tmp_path / "postgres", durable=True) as server:
        yield server


@pytest.fixture
def own_cassandra(tmp_path: Path) -> Iterator[Cassandra]:
    """A node that may be killed."""
    with Cassandra(tmp_path / "cassandra") as server:
        yield server


def restart_in_mid_slice(
    stage: JournalStage, server: Postgres | Cassandra, replicator: Replicator, steps: tuple[str, ...]
) -> None:
    """Kills the server while a worker halts at each step; the worker detects it by itself."""
    server.start_seconds = WAIT_SECONDS
    for step in steps:
        worker = replicator.halt_at(step)
        server.kill()
        wake(worker)
        server.start()
        stage.history.append(f"{server.name} killed with a worker {step}")
        stage.wait_for_progress(50)


@LONG
def test_postgres_killed_in_mid_slice_is_waited_for(new_stage: NewStage, own_postgres: Postgres) -> None:
    stage = new_stage(own_postgres.create_database("journals"))
    replicator = stage.start()
    stage.wait_for_start()
    with stage.load(TransientError):
        restart_in_mid_slice(stage, own_postgres, replicator, ("after-events", "after-pointer"))
    verify(stage)


@pytest.mark.full
def test_cassandra_killed_in_mid_slice_is_waited_for(
    new_stage: NewStage, own_cassandra: Cassandra, unique: str
) -> None:
    stage = new_stage(f"{own_cassandra.url}/{unique}")
    replicator = stage.start()
    stage.wait_for_start()
    with stage.load(TransientError):
        restart_in_mid_slice(stage, own_cassandra, replicator, ("after-events",))
    verify(stage)


@pytest.mark.full
def test_answers_to_commits_that_are_lost_are_settled_by_the_pointer(new_stage: NewStage, postgres_url: str) -> None:
    with PostgresNetwork(postgres_url) as proxy:
        stage = new_stage(proxy.url)
        stage.start()
        stage.wait_for_start()
        with stage.load(TransientError):
            stage.wait_for_progress()
            for _ in range(3):
                before = proxy.cuts
                proxy.cut_after("COMMIT")
                stage.eventually(lambda before=before: proxy.has_cut(before), WAIT_SECONDS)  # type: ignore[misc]  # bound at once
                stage.wait_for_progress(20)
        verify(stage)


@LONG
@pytest.mark.parametrize("engine", ENGINES)
def test_postgres_killed_at_every_step_under_spark(new_stage: NewStage, own_postgres: Postgres, engine: str) -> None:
    stage = new_stage(own_postgres.create_database("journals"))
    replicator = stage.start(engine)
    stage.wait_for_start()
    with stage.load(TransientError):
        restart_in_mid_slice(stage, own_postgres, replicator, STEPS)
    verify(stage)


@LONG
@pytest.mark.parametrize("engine", ENGINES)
def test_cassandra_killed_at_every_step_under_spark(
    new_stage: NewStage, own_cassandra: Cassandra, unique: str, engine: str
) -> None:
    stage = new_stage(f"{own_cassandra.url}/{unique}")
    replicator = stage.start(engine)
    stage.wait_for_start()
    with stage.load(TransientError):
        restart_in_mid_slice(stage, own_cassandra, replicator, STEPS)
    verify(stage)
