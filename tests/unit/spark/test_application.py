"""Several jobs in one application: one that fails is started again alone, and the others go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from inorder.engines import session as sessions
from inorder.engines.resident import count_slots
from inorder.engines.running import SparkChoice
from inorder.engines.session import Backoff
from inorder.model.errors import ConfigurationError, GuaranteeError, InorderError, PermanentError, TransientError
from inorder.settings import Settings
from inorder.spark.application import (
    Finished,
    Next,
    RunJob,
    Supervisor,
    check_jobs,
    local_choice,
    next_step,
    require_slots,
    run_application,
    slots_needed,
)

SECONDS = 30.0


@pytest.mark.parametrize(
    ("error", "once", "stopping", "spark_is_stopped", "expected"),
    [
        (None, True, False, False, Next.DONE),
        (None, False, True, False, Next.DONE),
        (None, False, False, False, Next.RESTART),
        (PermanentError("x"), False, False, False, Next.RESTART),
        (ConfigurationError("x"), False, False, False, Next.RESTART),
        (ValueError("x"), False, False, False, Next.RESTART),
        (PermanentError("x"), True, False, False, Next.FAILED),
        (PermanentError("x"), False, True, False, Next.FAILED),
        (GuaranteeError("x"), False, False, False, Next.FAILED),
        (PermanentError("x"), False, False, True, Next.END_ALL),
        (GuaranteeError("x"), True, True, True, Next.END_ALL),
    ],
)
def test_what_follows_the_end_of_a_job(
    error: Exception | None, once: bool, stopping: bool, spark_is_stopped: bool, expected: Next
) -> None:
    assert next_step(error, once=once, stopping=stopping, spark_is_stopped=spark_is_stopped) is expected


@contextmanager
def supervised(stop: threading.Event, jobs: dict[str, RunJob], **options: Any) -> Iterator[Future[Finished]]:
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(Supervisor(jobs, first_pause=0.001, **options).run, stop)
        finally:
            stop.set()


def failing(times: int, error: Exception, then: RunJob) -> tuple[RunJob, list[int]]:
    """A job that fails so many times first, and its starts."""
    starts: list[int] = []

    def run(stop: threading.Event) -> dict[str, Any]:
        starts.append(len(starts))
        if len(starts) <= times:
            raise error
        return then(stop)

    return run, starts


def running(began: threading.Event) -> RunJob:
    def run(stop: threading.Event) -> dict[str, Any]:
        began.set()
        assert stop.wait(SECONDS)
        return {"applied": 7}

    return run


def test_a_job_that_fails_is_started_again_alone(caplog: pytest.LogCaptureFixture) -> None:
    stop, recovered, steady = threading.Event(), threading.Event(), threading.Event()
    steady_starts: list[None] = []
    upsert, starts = failing(3, PermanentError("no such column"), running(recovered))

    def relay(over: threading.Event) -> dict[str, Any]:
        steady_starts.append(None)
        return running(steady)(over)

    with (
        caplog.at_level(logging.WARNING, "inorder.pipeline"),
        supervised(stop, {"relay": relay, "upsert": upsert}) as run,
    ):
        assert steady.wait(SECONDS)
        assert recovered.wait(SECONDS)
        stop.set()
        finished = run.result(SECONDS)
    assert (len(starts), len(steady_starts)) == (4, 1)
    assert finished == Finished({"relay": {"applied": 7}, "upsert": {"applied": 7}}, {})
    named = [vars(record)["job"] for record in caplog.records if record.message == "application.job_restart"]
    assert named == ["upsert"] * 3


def test_a_job_that_waits_for_its_next_start_decides_the_exit_code() -> None:
    stop, began, failed = threading.Event(), threading.Event(), threading.Event()
    reasons: list[str] = []

    def ended(_job: str, reason: str) -> None:
        reasons.append(reason)
        failed.set()

    def fail(_stop: threading.Event) -> dict[str, Any]:
        raise ConfigurationError("no topic")

    observer = SimpleNamespace(began=lambda _job: None, ended=ended)
    with supervised(stop, {"upsert": fail, "relay": running(began)}, observer=observer) as run:
        assert failed.wait(SECONDS)
        assert began.wait(SECONDS)
        stop.set()
        finished = run.result(SECONDS)
    assert reasons[0] == "The job upsert has failed: no topic"
    with pytest.raises(ConfigurationError, match="no topic"):
        finished.raise_gravest()


def test_a_violated_guarantee_is_not_tried_again_and_the_others_go_on() -> None:
    stop, began, failed = threading.Event(), threading.Event(), threading.Event()
    upsert, starts = failing(9, GuaranteeError("moved back"), running(began))
    observer = SimpleNamespace(
        began=lambda _job: None, ended=lambda job, _reason: failed.set() if job == "upsert" else None
    )
    with supervised(stop, {"upsert": upsert, "relay": running(began)}, observer=observer) as run:
        assert failed.wait(SECONDS)
        assert began.wait(SECONDS)
        assert not run.done()
        stop.set()
        finished = run.result(SECONDS)
    assert (len(starts), dict(finished.totals)["relay"]) == (1, {"applied": 7})
    with pytest.raises(GuaranteeError):
        finished.raise_gravest()


def test_all_end_when_spark_is_gone() -> None:
    stop, began = threading.Event(), threading.Event()

    def lose_spark(_stop: threading.Event) -> dict[str, Any]:
        assert began.wait(SECONDS)
        raise PermanentError("Spark was stopped")

    with supervised(stop, {"upsert": lose_spark, "relay": running(began)}, spark_is_stopped=lambda: True) as run:
        finished = run.result(SECONDS)
    assert stop.is_set()
    assert list(finished.errors) == ["upsert"]


def test_once_ends_when_each_job_has_ended_and_the_gravest_error_counts() -> None:
    def fail(error: InorderError) -> RunJob:
        def run(_stop: threading.Event) -> dict[str, Any]:
            raise error

        return run

    jobs: dict[str, RunJob] = {
        "relay": lambda _stop: {"published": 2},
        "upsert": fail(PermanentError("x")),
        "replicate": fail(GuaranteeError("y")),
    }
    finished = Supervisor(jobs, once=True).run(threading.Event())
    assert dict(finished.totals) == {"relay": {"published": 2}, "upsert": {}, "replicate": {}}
    with pytest.raises(GuaranteeError):
        finished.raise_gravest()


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 60.0)
    pauses = [backoff.after(progress=False) for _ in range(9)]
    expected = [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert all(0.75 * right <= found <= 1.25 * right for found, right in zip(pauses, expected, strict=True))
    assert backoff.after(progress=True) < 1


@pytest.mark.parametrize(
    ("engine", "jobs", "expected"),
    [
        ("resident", ["relay", "upsert", "replicate"], 3),
        ("micro-batch", ["relay", "upsert", "replicate"], 2),
        ("micro-batch", ["upsert", "replicate", "expire"], 1),
        ("resident", ["expire", "relay"], 1),
    ],
)
def test_each_job_that_holds_cores_needs_one(engine: str, jobs: list[str], expected: int) -> None:
    assert slots_needed(Settings.load(pipeline={"engine": engine}), jobs) == expected


def test_a_local_spark_of_ours_has_a_slot_for_each_job() -> None:
    assert local_choice(SparkChoice(), 3, cores=2).master == "local[3,4]"
    assert local_choice(SparkChoice(), 3, cores=8).master == "local[8,4]"
    assert local_choice(SparkChoice("spark://a:1"), 3).master == "spark://a:1"


def test_too_few_slots_are_refused_where_no_more_can_come() -> None:
    require_slots("local[3]", 3, 3)
    require_slots("spark://a:1", 1, 3)
    with pytest.raises(ConfigurationError, match=r"2 slots at local\[2\], and the jobs hold 3"):
        require_slots("local[2]", 2, 3)


@pytest.mark.parametrize("jobs", [["upsert", "audit"], ["upsert", "upsert"]])
def test_what_cannot_share_an_application_is_refused(jobs: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        check_jobs(jobs)
    assert check_jobs(["upsert", "relay"]) == ["relay", "upsert"]


@pytest.mark.parametrize(("shared_by", "expected"), [("1", 7), ("2", 3), ("9", 1), (None, 7)])
def test_jobs_of_one_application_divide_the_slots(shared_by: str | None, expected: int) -> None:
    scala = SimpleNamespace(
        maxNumConcurrentTasks=lambda _profile: 7,
        resourceProfileManager=lambda: SimpleNamespace(defaultResourceProfile=lambda: None),
    )
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala), defaultParallelism=2)
    get: Callable[[str, str], str] = lambda _name, default: shared_by or default  # noqa: E731
    spark = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(get=get))
    assert count_slots(cast("SparkSession", spark)) == expected


def test_a_transient_error_ranks_below_a_permanent_one() -> None:
    finished = Finished({}, {"relay": TransientError("x"), "upsert": PermanentError("y")})
    with pytest.raises(PermanentError):
        finished.raise_gravest()


@pytest.mark.parametrize(
    ("jobs", "target", "expected"),
    [
        (["relay", "upsert"], "delta:/lake/messages", True),
        (["relay", "replicate"], "delta:/lake/messages", False),
        (["relay", "upsert"], None, False),
    ],
)
def test_spark_is_started_with_delta_lake_if_one_of_the_jobs_writes_delta_tables(
    monkeypatch: pytest.MonkeyPatch, jobs: list[str], target: str | None, expected: bool
) -> None:
    asked: list[dict[str, bool]] = []

    def open_session(_name: str, _choice: SparkChoice, **needs: bool) -> None:
        asked.append(needs)
        raise TransientError("Not today.")

    monkeypatch.setattr(sessions, "open_session", open_session)
    settings = Settings.load(pipeline={"upsert": {} if target is None else {"target": target}})
    with pytest.raises(TransientError):
        run_application(settings, jobs, stop=threading.Event())
    assert [needs.get("needs_delta", False) for needs in asked] == [expected]
