"""Spark's offset log and commit log: a driver killed far beyond them, and both of them lost, old or damaged."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from inorder.engines.micro_batch import remove_abandoned
from inorder.engines.running import Engine
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from tests.fault import dying_driver
from tests.fault.engine_ordeal import Stage, running
from tests.integration.pipeline.engines import SPARK_WAIT, new_engine, upsert_work

LOGS = ("offsets", "commits")
OWN = "upsert:messages"
"""The default name of a pipeline."""


@dataclass(frozen=True)
class Logs:
    """Spark's logs of its batches."""

    folder: Path

    @classmethod
    def under(cls, parent: Path) -> Logs:
        """The logs of the one query in the folder."""
        [folder] = parent.glob("inorder-checkpoint-*")
        return cls(folder / "checkpoint")

    def batches(self, log: str) -> list[int]:
        """The batches in `offsets` or `commits`."""
        return sorted(int(entry.name) for entry in (self.folder / log).glob("[0-9]*"))

    def last(self) -> list[Path]:
        """The newest entry of each; a driver may die before its first commit is logged."""
        return [self.folder / log / str(max(found)) for log in LOGS if (found := self.batches(log))]

    def ends(self, batch: int) -> dict[int, int]:
        """The offset of each partition after a batch, by the offset log."""
        entry = (self.folder / "offsets" / str(batch)).read_text().splitlines()[-1]
        [found] = json.loads(entry).values()
        return {int(partition): offset for partition, offset in found.items()}


def lose(logs: Logs) -> None:
    shutil.rmtree(logs.folder)


def roll_back(logs: Logs) -> None:
    for entry in logs.last():
        entry.unlink()


def truncate(logs: Logs) -> None:
    for entry in logs.last():
        os.truncate(entry, 2)


def corrupt(logs: Logs) -> None:
    for entry in logs.last():
        entry.write_bytes(b"\0garbage\n{")


DAMAGES: list[Callable[[Logs], None]] = [lose, roll_back, truncate, corrupt]


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for checkpoints, for this test only."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def engine(spark: SparkSession, stage: Stage) -> Engine:
    """A micro-batch engine with the default name."""
    mapping = TableMapping(OWN, stage.topic, "messages")
    work = upsert_work(SqlTableStores(stage.url, mapping), mapping)
    return new_engine("micro-batch", spark, work, stage.bootstrap)


def die(moment: str, stage: Stage, folder: Path, parent: Path) -> None:
    """Runs a driver until it kills itself at the moment; waits until its sessions are closed as well."""
    config = stage.settings(folder)
    line = [sys.executable, dying_driver.__file__, moment, "pipeline", "run", "upsert", "--config", str(config)]
    environment = {**os.environ, "TMPDIR": str(parent)}
    ran = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=2 * SPARK_WAIT, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    stage.eventually(lambda: stage.sessions() == 0, 30)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_driver_killed_around_a_batch_that_sparks_logs_do_not_have_costs_nothing(
    stage: Stage, engine: Engine, tmp_path: Path, parent: Path
) -> None:
    with stage.witness(), stage.load():
        for moment, damage in zip(dying_driver.MOMENTS, (truncate, corrupt), strict=True):
            die(moment, stage, tmp_path, parent)
            logs = Logs.under(parent)
            assert logs.batches("offsets") == [0], "no other is written down"
            assert (stage.pointers() == logs.ends(0)) == (moment == "planned"), "what is applied, the pointers know"
            damage(logs)
    engine.run(threading.Event(), once=True)
    stage.verify()
    assert list(parent.iterdir()) == [], "what the dead left behind is gone, unread"


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("damage", [lose, *(pytest.param(each, marks=pytest.mark.fault) for each in DAMAGES[1:])])
def test_spark_logs_damaged_under_a_running_query_change_nothing(
    stage: Stage, engine: Engine, parent: Path, damage: Callable[[Logs], None]
) -> None:
    with running(engine) as (run,), stage.load():
        stage.wait_for_progress()
        with stage.witness():
            logs = Logs.under(parent)
            stage.eventually(lambda: logs.batches("commits"), SPARK_WAIT)
            damage(logs)
            stage.wait_for_progress(500)
    run.result(timeout=SPARK_WAIT)
    engine.run(threading.Event(), once=True)
    stage.verify()


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_a_dead_driver_left_the_next_ones_die_too_and_the_last_goes_on(
    stage: Stage, engine: Engine, tmp_path: Path, parent: Path, damage: Callable[[Logs], None]
) -> None:
    with stage.witness(), stage.load():
        for moment in dying_driver.MOMENTS * 2:
            die(moment, stage, tmp_path, parent)
            damage(Logs.under(parent))
    remove_abandoned(parent)
    engine.run(threading.Event(), once=True)
    stage.verify()
