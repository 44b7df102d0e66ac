"""Micro-batches and a partition that waits: tasks leave it alone, the driver tries it, then the query restarts."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from inorder.engines import micro_batch
from inorder.engines.faults import PartitionFaults
from inorder.engines.holds import Holds
from inorder.engines.micro_batch import MicroBatch, _Attempt
from inorder.engines.progress import NULL_LISTENER
from inorder.engines.slice_work import Pointer, Slice, SliceOutcome
from inorder.model.errors import InorderError, MassRefusalError, TransientError, UnreachableError
from inorder.model.partitioning import Place
from tests.unit.spark.resident_parts import CountingWork, ScriptedSource, look

PLACE, OTHER = ("upsert", 0), ("upsert", 1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Driver:
    """An engine without Spark, with one partition that waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, once: bool = False) -> None:
        self.clock = Clock()
        self.work = CountingWork({"upsert": {0: Pointer(5)}})
        self.source = ScriptedSource()
        self.engine = MicroBatch(cast("SparkSession", None), self.work, self.source, {})
        self.holds = Holds(NULL_LISTENER, once=once, clock=self.clock)
        self.attempt = _Attempt(PartitionFaults("demo", "stop", NULL_LISTENER), NULL_LISTENER, self.holds)
        self.expected: dict[Place, int | None] = {}
        self.rows: list[SliceOutcome | InorderError] = []
        monkeypatch.setattr(micro_batch, "set_expected", lambda _batch, pointers: self.expected.update(pointers))
        monkeypatch.setattr(micro_batch, "collect_rows", lambda _batch: [])
        monkeypatch.setattr(micro_batch, "split_results", lambda _rows: self.split())

    def split(self) -> tuple[list[SliceOutcome], list[InorderError]]:
        outcomes = [row for row in self.rows if isinstance(row, SliceOutcome)]
        return outcomes, [row for row in self.rows if isinstance(row, InorderError)]

    def run_batch(self, *rows: SliceOutcome | InorderError) -> None:
        self.rows = list(rows)
        self.attempt.on_batch(cast("Any", None), 0)

    def refuse(self) -> None:
        error = MassRefusalError("no")
        error.place = PLACE
        self.run_batch(SliceOutcome(*OTHER, next_offset=3, read=3, applied=3), error)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def test_a_refusal_does_not_end_the_query_and_later_batches_leave_the_partition_alone(driver: Driver) -> None:
    driver.refuse()
    assert driver.attempt.failure is None
    driver.run_batch()
    assert driver.expected == {OTHER: 3, PLACE: None}


def test_it_waits_on_until_the_query_that_dropped_its_records_is_over(driver: Driver) -> None:
    driver.refuse()
    assert not driver.engine._try_again(driver.attempt)
    driver.clock.now, driver.source.looks = 1.0, [look(5, 6, 9)]
    assert driver.engine._try_again(driver.attempt)
    assert driver.work.handed == [(PLACE, [5, 6, 9], 0)]
    driver.run_batch()
    assert driver.expected[PLACE] is None
    assert driver.attempt.accepted == [PLACE]
    assert driver.attempt.faults.expected() == {OTHER: 3, PLACE: 10}


def test_a_few_records_are_tried_with_those_that_arrive(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.refuse()
    waited: list[float] = []

    def refuse(batch: Slice, _expected: int) -> SliceOutcome:
        waited.append(batch.waited_seconds)
        raise MassRefusalError("still")

    monkeypatch.setattr(driver.work, "apply", refuse)
    for now, found in ((1.0, look(5)), (2.0, look(5, 6)), (3.0, look(5, 6))):
        driver.clock.now, driver.source.looks = now, [found]
        assert not driver.engine._try_again(driver.attempt)
    assert waited == [0.0, 0.0, 1.0]


def test_a_database_that_is_away_is_no_refusal_and_is_not_asked_all_the_time(driver: Driver) -> None:
    driver.refuse()
    driver.work.error = UnreachableError("gone")
    driver.clock.now, driver.source.looks = 1.0, [look(5)]
    assert not driver.engine._try_again(driver.attempt)
    assert PLACE in driver.holds
    assert list(driver.holds.due()) == []


def test_other_errors_of_a_batch_still_end_it(driver: Driver) -> None:
    error = MassRefusalError("no")
    error.place = PLACE
    driver.run_batch(error, TransientError("the disk is full"))
    assert isinstance(driver.attempt.failure, TransientError)
    assert PLACE in driver.holds


def test_once_ends_with_the_error_and_does_not_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    starts: list[bool] = []

    def run_query(attempt: _Attempt, _stop: threading.Event, once: bool) -> bool:
        starts.append(once)
        raise MassRefusalError("upsert[0] waits")

    monkeypatch.setattr(driver.engine, "_run_query", run_query)
    with pytest.raises(MassRefusalError, match="waits"):
        driver.engine.run(threading.Event(), once=True)
    assert starts == [True]
