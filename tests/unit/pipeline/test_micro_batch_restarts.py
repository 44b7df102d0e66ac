"""When the engine starts its query again and when it gives up: the loop alone, without Spark."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from inorder.engines.faults import PartitionFaults
from inorder.engines.job_status import JobFigures
from inorder.engines.micro_batch import MicroBatch, _Attempt, starting_offsets, which_partitions
from inorder.engines.progress import NULL_LISTENER
from inorder.engines.session import classify_spark_error, error_rank, raise_gravest
from inorder.engines.slice_work import SliceWorker, TopicSource
from inorder.engines.survey import Survey
from inorder.model.errors import (
    ConfigurationError,
    GuaranteeError,
    InorderError,
    RejectedError,
    TransientError,
    UnreachableError,
)


@dataclass(frozen=True)
class NoWork:
    """The loop itself opens nothing."""

    name: str = "demo"
    topics: tuple[str, ...] = ("upsert",)
    needs_headers: bool = False

    def open(self) -> SliceWorker:
        raise AssertionError("the loop itself opens no store")


class PatientStop(threading.Event):
    """Remembers how long the engine would have paused, and returns at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        return self.is_set()


class Scripted(MicroBatch):
    """An engine whose starts end as given: an error, or None for a good end."""

    def __init__(self, *ends: Exception | None, applies: bool = False) -> None:
        spark = cast("SparkSession", None)
        super().__init__(spark, NoWork(), cast("TopicSource", None), {"bootstrap.servers": "x"})
        self._ends = list(ends)
        self._applies = applies
        self.starts = 0

    def _run_query(self, attempt: _Attempt, stop: threading.Event, once: bool) -> bool:
        assert not once
        assert not stop.is_set()
        self.starts += 1
        attempt.has_applied = self._applies
        attempt.places = [("upsert", 0), ("upsert", 1)]
        end = self._ends.pop(0)
        if end is not None:
            raise end
        return False


def test_failures_of_the_environment_are_waited_out_with_longer_and_longer_pauses_up_to_a_limit() -> None:
    engine, stop = Scripted(*[UnreachableError("gone")] * 8, None), PatientStop()
    engine.run(stop)
    assert engine.starts == 9
    assert stop.pauses == pytest.approx([0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0], rel=0.2)
    assert len(set(stop.pauses)) == 8


def test_each_restart_is_reported_with_the_partitions_that_were_read() -> None:
    figures = JobFigures("upsert")
    Scripted(*[UnreachableError("gone")] * 3, None).run(PatientStop(), listener=figures)
    assert figures.reading(is_running=True, lag=None).restarts == {("upsert", 0): 3, ("upsert", 1): 3}


def test_progress_makes_the_pauses_short_again() -> None:
    engine, stop = Scripted(TransientError("a"), TransientError("b"), None, applies=True), PatientStop()
    engine.run(stop)
    assert stop.pauses == pytest.approx([0.2, 0.2], rel=0.2)


@pytest.mark.parametrize("kind", [GuaranteeError, RejectedError, ConfigurationError])
def test_what_retrying_cannot_mend_is_raised_at_once(kind: type[InorderError]) -> None:
    engine, stop = Scripted(TransientError("a"), kind("broken"), None), PatientStop()
    with pytest.raises(kind, match="broken"):
        engine.run(stop)
    assert engine.starts == 2


def test_a_stop_before_the_start_starts_nothing() -> None:
    engine, stop = Scripted(None), threading.Event()
    stop.set()
    engine.run(stop)
    assert engine.starts == 0


def test_a_broken_guarantee_is_told_before_other_errors_of_the_same_batch() -> None:
    errors = [TransientError("t"), RejectedError("r"), GuaranteeError("g"), ConfigurationError("c")]
    assert type(max(errors, key=error_rank)) is TransientError
    with pytest.raises(GuaranteeError):
        raise_gravest(errors)
    raise_gravest([])


def test_an_error_of_sparks_keeps_its_first_line() -> None:
    assert str(classify_spark_error(RuntimeError("first line\n  at java"))).startswith("Spark: first line It starts")
    assert "RuntimeError" in str(classify_spark_error(RuntimeError()))


def test_pointers_seen_committed_are_remembered_over_restarts() -> None:
    faults = PartitionFaults("demo", "stop", NULL_LISTENER)
    faults.expect({("a", 0): 10, ("a", 1): 3})
    faults.expect({("a", 0): 7, ("a", 1): 5})
    assert faults.expected() == {("a", 0): 10, ("a", 1): 5}


def test_a_violated_guarantee_of_one_partition_starts_again_without_it_and_is_raised_at_the_end() -> None:
    error = GuaranteeError("moved")
    error.place = "a", 0
    engine = Scripted(error, None)
    with pytest.raises(GuaranteeError, match="moved"):
        engine.run(PatientStop())
    assert engine.starts == 2


def test_spark_reads_all_of_a_topic_or_the_partitions_that_are_not_stopped() -> None:
    found = Survey({"a": 2, "b": 1}, {("a", 0): 4, ("a", 1): 9, ("b", 0): 2})
    assert which_partitions(found) == {"subscribe": "a,b"}
    stopped = replace(found, stopped={("a", 0): GuaranteeError("x"), ("b", 0): GuaranteeError("y")})
    assert which_partitions(stopped) == {"assign": '{"a": [1]}'}
    assert starting_offsets(stopped) == {"a": {"1": 9}}


def test_a_start_goes_on_at_the_pointers_and_takes_new_partitions_from_their_beginning() -> None:
    found = Survey({"a": 3, "b": 1}, {("a", 0): 4, ("a", 1): 9, ("b", 0): 2})
    assert starting_offsets(found) == {"a": {"0": 4, "1": 9, "2": -2}, "b": {"0": 2}}
