"""What the driver of `resident` costs with 1,000 partitions and 400 tasks: `python -m tests.proof.driver_scale`.

The driver's side is the real one: its server, its placement, its listeners. The 400 tasks are connections of another
process, which report as often as real ones may, each for all its partitions. Spark itself is not there. Printed are the
processor time of the driver's process per second, and its memory after the first and after the last second.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson

from inorder.engines.driver_channel import DriverAddress, DriverConnection, TaskReport
from inorder.engines.faults import PartitionFaults
from inorder.engines.placement import share_out
from inorder.engines.progress import RunTotals
from inorder.engines.resident_tasks import WATCH_SECONDS, ResidentTasks, SliceTaskPlan
from inorder.engines.slice_work import SliceOutcome

PARTITIONS, TASKS = 1_000, 400
SECONDS = 20.0


class NoSpark:
    """A Spark whose jobs run until they are cancelled; the tasks are elsewhere."""

    def __init__(self) -> None:
        self._over = threading.Event()
        conf = SimpleNamespace(get=lambda _name: None)
        self.sparkContext = SimpleNamespace(
            getConf=lambda: conf, setJobGroup=lambda *_, **__: None, cancelJobGroup=self._cancel, master="local[2]"
        )

    def _cancel(self, _group: str) -> None:
        self._over.set()

    def _collect(self) -> list[Any]:
        self._over.wait()
        return []

    def range(self, *_bounds: int) -> SimpleNamespace:
        return SimpleNamespace(mapInArrow=lambda _task, _schema: SimpleNamespace(collect=self._collect))


class NoWork:
    name = "scale"


@dataclass(frozen=True, slots=True)
class DriverCost:
    """What was measured."""

    reports_per_second: float
    outcomes_per_second: float
    cores: float
    """Processor seconds of the driver's process per second."""
    first_mb: float
    last_mb: float


def measure(partitions: int = PARTITIONS, tasks: int = TASKS, seconds: float = SECONDS) -> DriverCost:
    """Runs the driver's side for some seconds."""
    places = [("orders", number) for number in range(partitions)]
    plan = SliceTaskPlan(cast("Any", NoWork()), cast("Any", None), tuple(share_out(places, tasks)), once=False)
    totals = RunTotals()
    driver = ResidentTasks(cast("Any", NoSpark()), plan, PartitionFaults("scale", "stop", totals), totals)
    driver.start()
    try:
        with _reporting(driver._server.address, tasks, plan.report_seconds):
            while len(driver._placement.here) < tasks or totals.totals()["read"] < partitions:
                driver.tend()
                time.sleep(WATCH_SECONDS)
            return _watch(driver, totals, seconds)
    finally:
        driver.stop()


def _watch(driver: ResidentTasks, totals: RunTotals, seconds: float) -> DriverCost:
    began, spent, reports = time.monotonic(), time.process_time(), sum(driver._reports.values())
    outcomes, first = totals.totals()["read"], _memory_mb()
    while time.monotonic() < began + seconds:
        driver.tend()
        time.sleep(WATCH_SECONDS)
    lasted = time.monotonic() - began
    return DriverCost(
        reports_per_second=(sum(driver._reports.values()) - reports) / lasted,
        outcomes_per_second=(totals.totals()["read"] - outcomes) / lasted,
        cores=(time.process_time() - spent) / lasted,
        first_mb=first,
        last_mb=_memory_mb(),
    )


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@contextmanager
def _reporting(address: DriverAddress, tasks: int, seconds: float) -> Iterator[None]:
    words = [address.host, str(address.port), address.token, str(tasks), str(seconds)]
    process = subprocess.Popen([sys.executable, "-m", "tests.proof.driver_scale", "tasks", *words])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def report_for_ever(address: DriverAddress, tasks: int, seconds: float) -> None:
    """All tasks, on one thread: each reports one record of each of its partitions in each interval."""
    connections = [DriverConnection(address, index) for index in range(tasks)]
    for each in connections:
        each.report(TaskReport((), {}, follows=each.assignment.number))
    offset = 0
    while True:
        offset += 1
        began = time.monotonic()
        for number, each in enumerate(connections):
            each.check()
            outcomes = [SliceOutcome(*place, next_offset=offset, read=1, applied=1) for place in each.assignment.places]
            each.report(TaskReport(outcomes, {"read": 0.1, "apply": 0.2}))
            time.sleep(max(0.0, began + seconds * (number + 1) / tasks - time.monotonic()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["tasks"]:
        host, port, token, count, interval = sys.argv[2:]
        report_for_ever(DriverAddress(host, int(port), token), int(count), float(interval))
    else:
        cost = measure()
        figures = {name: round(getattr(cost, name), 3) for name in cost.__slots__}
        sys.stdout.write(f"{orjson.dumps({**figures, 'load_average': os.getloadavg()[0]}).decode()}\n")
