"""A job serves its health at `health.listen`, and nowhere else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.client import HTTPConnection

import pytest

from inorder.engines.job_status import (
    ENDLESS_RESTARTS,
    ENDLESS_SECONDS,
    QUIET_SECONDS,
    JobFigures,
    JobService,
    JobServices,
    Lag,
    Restarts,
)
from inorder.engines.slice_work import SliceOutcome
from inorder.model.errors import TransientError, UnreachableError
from inorder.observe.endpoint import PeriodicReader
from tests.conftest import Eventually

LISTENING = ("127.0.0.1", 0)


def ask(service: JobService | JobServices, path: str) -> tuple[int, str]:
    assert service.address is not None
    connection = HTTPConnection(*service.address, timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    try:
        return response.status, response.read().decode()
    finally:
        connection.close()


def outcome(topic: str, next_offset: int, applied: int, stale: int = 0) -> SliceOutcome:
    return SliceOutcome(topic, 0, next_offset, read=applied + stale, applied=applied, stale=stale)


def test_figures_are_summed_by_topic() -> None:
    figures = JobFigures("upsert", clock=iter((1.0, 2.0, 3.0, 7.0)).__next__)
    figures.applied(outcome("a", 5, applied=4, stale=1))
    figures.applied(outcome("a", 9, applied=4))
    figures.applied(SliceOutcome("b", 1, next_offset=3, read=1, measures={"records": 1}))
    figures.spent({"read": 1.0})
    figures.spent({"read": 0.5, "apply": 2.0})
    reading = figures.reading(is_running=True, lag=None)
    assert (reading.records["a"]["applied"], reading.records["a"]["stale"]) == (8, 1)
    assert (reading.offsets, reading.phases) == ({("a", 0): 9, ("b", 1): 3}, {"read": 1.5, "apply": 2.0})
    assert (reading.measures, reading.last_slice_age) == ({"b": {"records": 1}}, 4.0)


def test_a_running_job_is_told_with_what_waits_for_it(eventually: Eventually) -> None:
    with JobService(LISTENING, "replicate", lambda: {("journal", 2): 5}) as service:
        assert ask(service, "/health") == (200, "Pong")
        service.listener.applied(outcome("journal", 7, applied=7))
        wanted = 'inorder_pipeline_lag_records{job="replicate",partition="2",topic="journal"} 5.0'
        eventually(lambda: wanted in ask(service, "/metrics")[1])
        assert (
            'inorder_pipeline_records_total{job="replicate",outcome="applied",topic="journal"} 7.0'
            in (ask(service, "/metrics")[1])
        )
        address = service.address
    assert address is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=10).close()


def test_a_job_whose_servers_are_away_is_not_well(eventually: Eventually) -> None:
    def away() -> Lag:
        raise UnreachableError("Kafka is away.")

    with JobService(LISTENING, "upsert", away) as service:
        eventually(lambda: ask(service, "/health") == (503, "Kafka is away."))
        assert "inorder_pipeline_lag_records" not in ask(service, "/metrics")[1]


def test_a_job_that_says_what_hinders_it_is_not_well_until_it_says_otherwise() -> None:
    with JobService(LISTENING, "expire", dict) as service:
        service.hindrance = "The store is away."
        assert ask(service, "/health") == (503, "The store is away.")
        service.hindrance = ""
        assert ask(service, "/health") == (200, "Pong")
    assert service.trouble() == "The job expire does not run."


def test_without_an_address_nobody_listens_and_nothing_is_asked() -> None:
    asked: list[str] = []

    def lag() -> Lag:
        asked.append("lag")
        return {}

    with JobService(None, "upsert", lag) as service:
        assert (service.address, service.registry, asked) == (None, None, [])
    assert not [thread for thread in threading.enumerate() if thread.name in ("inorder-health", "inorder-lag-watch")]


class Question:
    """Returns the given answers, one after the other."""

    def __init__(self, *answers: int | UnreachableError) -> None:
        self._answers = list(answers)

    def __call__(self) -> int:
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        if isinstance(answer, UnreachableError):
            raise answer
        return answer


@pytest.fixture
def watching() -> Callable[[Question], PeriodicReader[int]]:
    def begin(question: Question) -> PeriodicReader[int]:
        watch = PeriodicReader("test", question, seconds=0.01)
        assert watch.last is None
        watch.start()
        return watch

    return begin


def test_a_watch_keeps_the_last_answer_while_there_is_no_other(
    watching: Callable[[Question], PeriodicReader[int]], eventually: Eventually
) -> None:
    watch = watching(Question(3, UnreachableError("Away.")))
    eventually(lambda: watch.failure == "Away.")
    assert watch.last is not None
    age, found = watch.last
    assert (age > 0, found) == (True, 3)
    watch.stop()


def test_a_watch_forgets_a_failure_when_it_is_answered(
    watching: Callable[[Question], PeriodicReader[int]], eventually: Eventually
) -> None:
    watch = watching(Question(UnreachableError("Away."), 4))
    eventually(lambda: watch.last is not None and watch.failure == "")
    watch.stop()


PAUSE = ENDLESS_SECONDS / (ENDLESS_RESTARTS - 1)


@pytest.mark.parametrize(
    ("moments", "now", "endless"),
    [
        ([PAUSE * number for number in range(ENDLESS_RESTARTS)], ENDLESS_SECONDS, True),
        ([PAUSE * number for number in range(ENDLESS_RESTARTS - 1)], ENDLESS_SECONDS, False),
        ([0.1 * number for number in range(ENDLESS_RESTARTS)], ENDLESS_SECONDS, False),
        ([PAUSE * number for number in range(ENDLESS_RESTARTS)], ENDLESS_SECONDS + QUIET_SECONDS + 1, False),
        ([(QUIET_SECONDS + 1) * number for number in range(9)], (QUIET_SECONDS + 1) * 8, False),
    ],
    ids=["again and again", "too few", "a burst", "long ago", "now and then"],
)
def test_only_restarts_again_and_again_are_endless(moments: list[float], now: float, endless: bool) -> None:
    found: Restarts | None = None
    for moment in moments:
        found = Restarts.after(found, moment, "Why.")
    assert found is not None
    assert found.are_endless(now) is endless


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_partition_that_restarts_for_ever_is_not_well_until_a_slice_is_applied() -> None:
    clock = Clock()
    figures = JobFigures("upsert", clock)
    for _ in range(2 * ENDLESS_RESTARTS):
        figures.restarted([("a", 0), ("b", 1)], TransientError("A trigger fails."))
        figures.applied(SliceOutcome("b", 1, next_offset=3, read=1))
        clock.now += PAUSE
    assert figures.trouble == "a[0] was restarted 10 times and nothing of it was applied: A trigger fails."
    assert figures.reading(is_running=True, lag=None).restarts == {("a", 0): 10, ("b", 1): 10}
    figures.applied(outcome("a", 9, applied=4))
    assert figures.trouble == ""


def test_a_run_that_cannot_begin_is_counted_and_no_partition_is_blamed() -> None:
    figures = JobFigures("upsert", Clock())
    figures.restarted((), TransientError("Topic 'a' does not exist yet."))
    assert (figures.reading(is_running=True, lag=None).restarts, figures.trouble) == ({("", -1): 1}, "")


def test_jobs_of_one_application_share_an_endpoint_and_each_fails_its_health(eventually: Eventually) -> None:
    with JobServices(LISTENING, {"relay": dict, "upsert": lambda: {("orders", 1): 5}}) as services:
        assert ask(services, "/health") == (503, "The job relay does not run. The job upsert does not run.")
        for job in ("relay", "upsert"):
            services.began(job)
        eventually(lambda: 'inorder_pipeline_lag_records{job="upsert"' in ask(services, "/metrics")[1])
        assert ask(services, "/health") == (200, "Pong")
        services.listeners["upsert"].applied(outcome("orders", 7, applied=7))
        services.ended("relay", "The job relay has failed: no table.")
        assert ask(services, "/health") == (503, "The job relay has failed: no table.")
        metrics = ask(services, "/metrics")[1]
    assert metrics.count("# HELP inorder_pipeline_running ") == 1
    assert 'inorder_pipeline_running{job="relay"} 0.0' in metrics
    assert 'inorder_pipeline_running{job="upsert"} 1.0' in metrics
    assert 'outcome="applied",topic="orders"} 7.0' in metrics
