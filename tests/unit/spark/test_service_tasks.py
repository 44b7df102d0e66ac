"""A service task runs until the driver requests a stop; its totals and its failure reach the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import Row

from inorder.engines.driver_channel import DriverServer, TaskReport
from inorder.engines.placement import Assignment
from inorder.engines.resident_tasks import ServiceTaskPlan, service_task
from inorder.engines.slice_task import split_results
from inorder.model.errors import ConfigurationError
from inorder.model.partitioning import Place
from tests.conftest import Eventually

HOST = "127.0.0.1"


class Heard:
    """What tasks have reported, in one list."""

    def __init__(self, reports: list[tuple[int, TaskReport]]) -> None:
        self._reports = reports

    def joined(self, index: int, attempt: int) -> Assignment | None:  # noqa: ARG002 - all are welcome
        return Assignment(1, ())

    def expected(self, places: Collection[Place]) -> Mapping[Place, int]:
        return dict.fromkeys(places, 0)

    def reported(self, index: int, report: TaskReport) -> None:
        self._reports.append((index, report))

    def left(self, index: int) -> None: ...


@contextmanager
def listening(heard: list[tuple[int, TaskReport]]) -> Iterator[DriverServer]:
    server = DriverServer(HOST, HOST, Heard(heard))
    try:
        yield server
    finally:
        server.close()


def no_rows() -> Iterator[pa.RecordBatch]:
    return iter([])


def test_a_service_task_ends_when_the_connection_to_the_driver_closes(eventually: Eventually) -> None:
    def work(goes_on: Callable[[], bool], tell: Callable[[Mapping[str, int]], None]) -> None:
        pause, rounds = threading.Event(), 0
        while goes_on():
            rounds += 1
            tell({"rounds": rounds})
            pause.wait(0.01)
        tell({"rounds": -1})

    heard: list[tuple[int, TaskReport]] = []
    with listening(heard) as server, ThreadPoolExecutor(1) as pool:
        task = ServiceTaskPlan("test", work, count=2).task(1, server.address)
        running = pool.submit(lambda: list(task(no_rows())))
        eventually(lambda: len(heard) > 2)
        server.request_stop()
        assert running.result(30) == []
        eventually(lambda: heard[-1] == (1, TaskReport([], {}, {"rounds": -1})))


def test_an_error_of_a_service_task_reaches_the_driver_as_a_row() -> None:
    def work(goes_on: Callable[[], bool], tell: Callable[[Mapping[str, int]], None]) -> None:
        tell({"rounds": int(goes_on())})
        raise ConfigurationError("There is no table.", hint="Make it.")

    with listening([]) as server:
        [row] = service_task(work, 0, server.address)(no_rows())
    _, [error] = split_results([Row(**fields) for fields in row.to_pylist()])
    assert isinstance(error, ConfigurationError)
    assert (error.message, error.hint) == ("There is no table.", "Make it.")
