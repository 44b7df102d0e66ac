"""Spark's progress of a batch becomes the phases of a run, once for each batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from inorder.engines.micro_batch import QueryProgress
from inorder.engines.progress import RunTotals

DURATIONS = {"addBatch": 250, "walCommit": 50, "triggerExecution": 320}


def batch(number: int, **durations: int) -> Any:
    return SimpleNamespace(batchId=number, numInputRows=9, durationMs=durations)


class Polled:
    """A query with a new progress at each poll, polled to the last one."""

    def __init__(self, *batches: Any) -> None:
        self._batches = list(batches)
        self.progress = RunTotals()
        progress = QueryProgress(self, self.progress)  # type: ignore[arg-type]  # all that is asked of a query
        while self._batches:
            progress.poll()

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        return self._batches.pop(0)

    @property
    def phases(self) -> Any:
        return self.progress.as_dict()["phase_seconds"]


def test_the_phases_of_a_batch_are_told_in_seconds_without_their_sum() -> None:
    assert Polled(batch(3, **DURATIONS), batch(4, **DURATIONS)).phases == {
        "addBatch": 0.5,
        "walCommit": 0.1,
    }


def test_a_batch_that_is_seen_twice_is_told_once() -> None:
    assert Polled(batch(0, **DURATIONS), batch(0, **DURATIONS)).phases == {
        "addBatch": 0.25,
        "walCommit": 0.05,
    }


def test_before_the_first_batch_there_is_nothing_to_tell() -> None:
    assert Polled(None, None).phases == {}


def test_a_look_of_sparks_that_found_no_records_is_no_batch() -> None:
    idle = batch(1, latestOffset=3, triggerExecution=3)
    assert Polled(idle, batch(1, **DURATIONS)).phases == {"addBatch": 0.25, "walCommit": 0.05}
