"""An errand runs until the driver hangs up; what it counts is heard, and what fails it comes back as an error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import Row

from inorder.engines.driver_channel import Report, Switchboard
from inorder.engines.resident_tasks import ErrandDuty, errand_task
from inorder.engines.slice_task import sorted_out
from inorder.model.errors import ConfigurationError
from tests.conftest import Eventually

HOST = "127.0.0.1"


@contextmanager
def listening(heard: list[tuple[int, Report]]) -> Iterator[Switchboard]:
    switchboard = Switchboard(HOST, HOST, dict, lambda seat, report: heard.append((seat, report)))
    try:
        yield switchboard
    finally:
        switchboard.close()


def no_rows() -> Iterator[pa.RecordBatch]:
    return iter([])


def test_an_errand_is_told_to_end_by_a_line_that_closes(eventually: Eventually) -> None:
    def work(goes_on: Callable[[], bool], tell: Callable[[Mapping[str, int]], None]) -> None:
        pause, rounds = threading.Event(), 0
        while goes_on():
            rounds += 1
            tell({"rounds": rounds})
            pause.wait(0.01)
        tell({"rounds": -1})

    heard: list[tuple[int, Report]] = []
    with listening(heard) as switchboard, ThreadPoolExecutor(1) as pool:
        task = ErrandDuty("test", work, seats=2).task(1, switchboard.address)
        running = pool.submit(lambda: list(task(no_rows())))
        eventually(lambda: len(heard) > 2)
        switchboard.hang_up()
        assert running.result(30) == []
        eventually(lambda: heard[-1] == (1, Report([], {}, {"rounds": -1})))


def test_what_fails_an_errand_goes_to_the_driver_as_a_row() -> None:
    def work(goes_on: Callable[[], bool], tell: Callable[[Mapping[str, int]], None]) -> None:
        tell({"rounds": int(goes_on())})
        raise ConfigurationError("There is no table.", hint="Make it.")

    with listening([]) as switchboard:
        [row] = errand_task(work, 0, switchboard.address)(no_rows())
    _, [error] = sorted_out([Row(**fields) for fields in row.to_pylist()])
    assert isinstance(error, ConfigurationError)
    assert (error.message, error.hint) == ("There is no table.", "Make it.")
