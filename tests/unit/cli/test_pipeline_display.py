"""The line that a person sees while a pipeline runs."""

from __future__ import annotations

import io
import itertools
import logging

import pytest
from rich.console import Console

from inorder.cli import pipeline
from inorder.cli.pipeline import line_of, show_progress
from inorder.engines.progress import RunTotals
from inorder.engines.slice_work import SliceOutcome
from inorder.model.errors import UnreachableError


def test_the_line_names_what_there_is_and_nothing_else() -> None:
    progress = RunTotals()
    assert line_of(progress.totals(), 0.0, "?") == "0 records (none yet), 0/s, ? behind"
    progress.applied(SliceOutcome("a", 0, next_offset=9, read=1200, applied=1199, rejected=1))
    assert (
        line_of(progress.totals(), 250.4, "1,234") == "1,200 records (1,199 applied, 1 rejected), 250/s, 1,234 behind"
    )


def test_a_broker_that_does_not_answer_does_not_end_the_display() -> None:
    def behind() -> int:
        raise UnreachableError("Nobody there.")

    with show_progress(RunTotals(), behind):
        pass


class Looks:
    """An event that ends the display after so many looks."""

    def __init__(self, count: int) -> None:
        self._left = count

    def wait(self, _seconds: float) -> bool:
        self._left -= 1
        return self._left < 0


def test_an_idle_job_logs_its_progress_once(caplog: pytest.LogCaptureFixture) -> None:
    progress, behind = RunTotals(), iter([0, 0, 0, 5, 5])
    progress.applied(SliceOutcome("a", 0, next_offset=9, read=1200, applied=1199, rejected=1))
    progress.clock = itertools.count(1_000_000).__next__  # the age of the last slice grows
    display = pipeline._Display(progress, lambda: next(behind), Console(file=io.StringIO()))
    with caplog.at_level(logging.INFO, "inorder.pipeline"):
        display.run(Looks(5))  # type: ignore[arg-type]
    assert [record.behind for record in caplog.records] == [0, 5]  # type: ignore[attr-defined]
