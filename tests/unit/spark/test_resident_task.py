"""What a resident task does between its call to the driver and its end, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import Row, SparkSession

from inorder.engines.driver_channel import DriverConnection, DriverServer, TaskReport
from inorder.engines.faults import PartitionFaults
from inorder.engines.placement import Assignment
from inorder.engines.progress import NULL_LISTENER
from inorder.engines.resident_tasks import ResidentTasks, SliceTaskPlan, TaskOrder, consume, resident_task
from inorder.engines.slice_task import split_results
from inorder.engines.slice_work import Pointer, SliceOutcome
from inorder.model.errors import GuaranteeError, InorderError, TransientError, UnreachableError
from inorder.model.partitioning import Place
from tests.conftest import Eventually
from tests.unit.spark.resident_parts import CountingWork, ScriptedSource, look

HOST = "127.0.0.1"
HERE: Place = ("upsert", 0)
THERE: Place = ("upsert", 1)


class Driver:
    """The driver's end of one task, with the sums of the reports it received."""

    def __init__(self) -> None:
        self.assignment = Assignment(1, (HERE, THERE))
        self.seen: dict[Place, int] = {}
        self.outcomes: list[SliceOutcome] = []
        self.reports = 0
        self.phases: set[str] = set()
        self.follows: list[int] = []
        self.ended: set[Place] = set()
        self.server = DriverServer(HOST, HOST, self)

    def joined(self, index: int, attempt: int) -> Assignment | None:
        assert (index, attempt) == (0, -1)
        return self.assignment

    def expected(self, places: Collection[Place]) -> Mapping[Place, int]:
        return {place: self.seen[place] for place in places if place in self.seen}

    def reported(self, _index: int, report: TaskReport) -> None:
        self.outcomes += report.outcomes
        self.reports += bool(report.outcomes)
        self.phases |= set(report.phases)
        self.follows += [] if report.follows is None else [report.follows]
        self.ended |= set(report.ended)
        if report.ended and self.ended >= set(self.assignment.places):
            self.server.request_stop()

    def left(self, index: int) -> None: ...

    def order(self, work: CountingWork, source: ScriptedSource, *, once: bool = False) -> TaskOrder:
        return TaskOrder(0, work, source, self.server.address, once)

    def applied(self) -> int:
        return sum(outcome.applied for outcome in self.outcomes)


@pytest.fixture
def driver() -> Iterator[Driver]:
    found = Driver()
    yield found
    found.server.close()


def errors_of(order: TaskOrder) -> list[InorderError]:
    rows = [Row(**row) for batch in resident_task(order)([]) for row in batch.to_pylist()]
    outcomes, errors = split_results(rows)
    assert outcomes == []
    return errors


def test_a_task_begins_at_the_pointers_and_new_partitions_at_their_first_record(driver: Driver) -> None:
    source = ScriptedSource([look(ended=(HERE, THERE))])
    consume(driver.order(CountingWork({"upsert": {0: Pointer(7)}}), source, once=True))
    assert source.starts == {HERE: 7, THERE: None}
    assert source.reports_ends


def test_slices_are_applied_in_the_order_in_which_they_were_read_and_all_is_told(
    driver: Driver, eventually: Eventually
) -> None:
    work, source = CountingWork(), ScriptedSource([look(0, 1), look(5, partition=1), look(2, 4)])
    driver.seen[THERE] = 5
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consume, driver.order(work, source))
        assert source.asked.wait(10)
        driver.server.request_stop()
        running.result(timeout=10)
    assert work.handed == [(HERE, [0, 1], 0), (THERE, [5], 5), (HERE, [2, 4], 2)]
    eventually(lambda: driver.applied() == 5, 10)
    assert {outcome.partition: outcome.next_offset for outcome in driver.outcomes} == {0: 5, 1: 6}
    assert driver.phases == {"read", "apply"}
    assert (work.closed, source.is_open) == (1, False)


def test_a_task_reads_what_it_is_assigned_later_from_the_pointers_and_says_so(
    driver: Driver, eventually: Eventually
) -> None:
    driver.assignment = Assignment(1, ())
    work, source = CountingWork({"upsert": {0: Pointer(7), 1: Pointer(3)}}), ScriptedSource()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consume, driver.order(work, source))
        eventually(lambda: driver.follows == [1], 10)
        assert not source.is_open, "it has no partitions yet"
        for number, places in enumerate([(HERE,), (HERE, THERE), ()], start=2):
            driver.server.assign(0, Assignment(number, places))
            eventually(lambda number=number: driver.follows[-1] == number, 10)  # type: ignore[misc]  # bound at once
            eventually(lambda places=places: set(source.starts) == set(places) or not source.is_open, 10)  # type: ignore[misc]
        eventually(lambda: not source.is_open, 10)
        driver.server.request_stop()
        running.result(timeout=10)
    assert source.starts == {HERE: 7, THERE: 3}
    assert work.closed == 1, "one connection to the database, however often partitions move"


def test_once_ends_when_every_partition_was_read_to_its_end_and_not_before(driver: Driver) -> None:
    looks = [look(0, ended=(THERE,)), look(1), look(2, ended=(HERE,)), look(3)]
    work, source = CountingWork(), ScriptedSource(list(looks))
    consume(driver.order(work, source, once=True))
    assert [offsets for _, offsets, _ in work.handed] == [[0], [1], [2]]


@pytest.mark.parametrize("kind", [TransientError, GuaranteeError, UnreachableError])
def test_an_error_ends_the_task_and_goes_to_the_driver_as_a_row(driver: Driver, kind: type[InorderError]) -> None:
    work, source = CountingWork(error=kind("It broke at 7.", hint="Mend it.")), ScriptedSource([look(7), look(8)])
    (error,) = errors_of(driver.order(work, source))
    assert (type(error), str(error)) == (kind, "It broke at 7. Mend it.")
    assert (work.closed, source.is_open, len(source.looks)) == (1, False, 1)


def test_an_error_of_the_reader_does_not_lose_the_report_of_what_was_applied(
    driver: Driver, eventually: Eventually
) -> None:
    source = ScriptedSource([look(0, 1), look(2), TransientError("The partition is gone.")])
    (error,) = errors_of(driver.order(CountingWork(), source))
    assert "gone" in str(error)
    eventually(lambda: driver.applied() == 3, 10)


def test_a_task_whose_driver_is_not_there_opens_nothing(driver: Driver) -> None:
    driver.server.close()
    work = CountingWork()
    (error,) = errors_of(driver.order(work, ScriptedSource()))
    assert isinstance(error, UnreachableError)
    assert work.closed == 0


def test_a_task_that_is_told_to_end_before_it_began_reads_nothing(driver: Driver) -> None:
    driver.server.request_stop()
    source = ScriptedSource([look(0)])
    consume(driver.order(CountingWork(), source))
    assert len(source.looks) == 1


def test_a_task_ends_when_its_driver_goes_in_mid_work(driver: Driver) -> None:
    source = ScriptedSource()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consume, driver.order(CountingWork(), source))
        assert source.asked.wait(10)
        driver.server.close()
        running.result(timeout=10)


class DescribedSpark:
    """A local Spark whose tasks run until their jobs are cancelled; it keeps how these were described."""

    def __init__(self) -> None:
        self.descriptions: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self._changed, self._group = threading.Condition(), threading.local()
        conf = SimpleNamespace(get=lambda _name: None)
        self.sparkContext = SimpleNamespace(
            getConf=lambda: conf, setJobGroup=self._describe, cancelJobGroup=self._cancel, master="local[2]"
        )

    def _describe(self, group: str, description: str, *, interruptOnCancel: bool) -> None:  # noqa: N803 - Spark's
        assert interruptOnCancel
        self._group.name = group
        self.descriptions[group] = description

    def _cancel(self, group: str) -> None:
        with self._changed:
            self.cancelled.add(group)
            self._changed.notify_all()

    def _collect(self) -> list[Row]:
        with self._changed:
            self._changed.wait_for(lambda: self._group.name in self.cancelled)
        return []

    def range(self, *_bounds: int) -> SimpleNamespace:
        return SimpleNamespace(mapInArrow=lambda _task, _schema: SimpleNamespace(collect=self._collect))


@pytest.fixture
def tasks_of() -> Iterator[Callable[..., ResidentTasks]]:
    started: list[ResidentTasks] = []

    def begin(spark: DescribedSpark, *shares: tuple[Place, ...]) -> ResidentTasks:
        plan = SliceTaskPlan(CountingWork(), ScriptedSource(), shares, once=False)
        tasks = ResidentTasks(cast("SparkSession", spark), plan, PartitionFaults("demo", "stop", NULL_LISTENER))
        started.append(tasks)
        tasks.start()
        return tasks

    yield begin
    for tasks in started:
        tasks.stop()


def test_the_job_of_a_task_is_described_by_its_pipeline_and_partitions(
    tasks_of: Callable[..., ResidentTasks], eventually: Eventually
) -> None:
    spark, many = DescribedSpark(), tuple(("upsert", number) for number in range(2, 100))
    tasks_of(spark, (HERE, THERE), many)
    eventually(lambda: len(spark.descriptions) >= 2)
    few, cut = sorted(spark.descriptions.values(), key=len)
    assert few == "inorder demo: upsert[0], upsert[1]"
    assert (len(cut), cut[-1]) == (200, "…")


def test_a_task_gets_the_pointers_of_its_own_partitions_only(tasks_of: Callable[..., ResidentTasks]) -> None:
    tasks = tasks_of(DescribedSpark(), (HERE,), (THERE, ("upsert", 2)))
    tasks._faults.expect({HERE: 5, THERE: 7})
    connections = [DriverConnection(tasks._server.address, index) for index in range(2)]
    assert [each.expected for each in connections] == [{HERE: 5}, {THERE: 7}]
    for each in connections:
        each.close()


def test_of_too_many_tasks_those_that_wait_for_a_slot_end_first_and_are_cancelled(
    tasks_of: Callable[..., ResidentTasks], eventually: Eventually
) -> None:
    spark = DescribedSpark()
    tasks = tasks_of(spark, (HERE,), (THERE,))
    tasks.resize(4)
    eventually(lambda: len(spark.descriptions) == 4)
    running = [DriverConnection(tasks._server.address, index) for index in (1, 3)]
    tasks.resize(2)
    assert sorted(group[-2:] for group in spark.cancelled) == ["-0", "-2"]
    assert all(each.check() for each in running)
    late = DriverConnection(tasks._server.address, 0)
    assert not late.is_open, "it is not wanted any more"
    tasks.tend()
    eventually(lambda: running[1].check() and running[1].assignment.places == (HERE,))
    for each in (*running, late):
        each.close()


@pytest.mark.parametrize(("tasks", "seconds"), [(1, 0.05), (50, 0.05), (400, 0.4)])
def test_all_tasks_together_report_at_most_a_thousand_times_per_second(tasks: int, seconds: float) -> None:
    shares = tuple((("upsert", number),) for number in range(tasks))
    assert SliceTaskPlan(CountingWork(), ScriptedSource(), shares, once=True).report_seconds == seconds


def test_a_task_sums_up_what_it_did_until_its_next_report_is_due(driver: Driver, eventually: Eventually) -> None:
    source = ScriptedSource([look(1), look(2), look(3), look(4, ended=(HERE, THERE))])
    consume(replace(driver.order(CountingWork(), source, once=True), report_seconds=3_600.0))
    eventually(lambda: driver.applied() == 4, 10)
    assert driver.reports == 2, "the first, and what is left at the end"
