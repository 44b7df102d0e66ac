"""A job runs on what is to be read, waits while all of it is paused, and ends only when its engine ends by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from inorder.engines.running import follow
from inorder.engines.slice_work import SliceWork, SliceWorker
from inorder.model.errors import UnreachableError

LOOK = 0.001


@dataclass(frozen=True)
class Work:
    """A work that only has topics."""

    topics: tuple[str, ...]
    name: str = "upsert"
    needs_headers: bool = False

    def open(self) -> SliceWorker:
        raise NotImplementedError


BOTH, ONE = Work(("orders", "payments")), Work(("payments",))


class Engine:
    """Runs until it is stopped; before that, calls the next of some steps."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)
        self.ran: list[SliceWork] = []

    def __call__(self, work: SliceWork, over: threading.Event) -> None:
        self.ran.append(work)
        if not self._steps:
            return  # it ends by itself
        self._steps.pop(0)()
        assert over.wait(30)


def test_a_job_whose_tables_are_all_paused_waits_and_then_runs_on_the_same_again() -> None:
    reading: list[SliceWork | None] = [BOTH]
    looks = 0

    def read() -> SliceWork | None:
        nonlocal looks
        if reading[0] is None:
            looks += 1
            if looks == 3:
                reading[0] = BOTH
        return reading[0]

    engine = Engine(lambda: reading.insert(0, None))
    follow(read, "upsert", threading.Event(), engine, look=LOOK)
    assert engine.ran == [BOTH, BOTH]


def test_a_table_that_is_paused_or_resumed_restarts_the_engine_without_or_with_it() -> None:
    reading: list[SliceWork] = [BOTH]
    engine = Engine(lambda: reading.insert(0, ONE), lambda: reading.insert(0, BOTH))
    follow(lambda: reading[0], "upsert", threading.Event(), engine, look=LOOK)
    assert engine.ran == [BOTH, ONE, BOTH]


def test_a_job_that_is_stopped_while_it_is_paused_ends() -> None:
    stop, engine = threading.Event(), Engine()

    def read() -> None:
        stop.set()

    follow(read, "upsert", stop, engine, look=LOOK)
    assert engine.ran == []


def test_a_database_that_does_not_answer_ends_no_pause_and_no_run() -> None:
    answers: list[SliceWork | None] = [BOTH, None]

    def read() -> SliceWork | None:
        if answers:
            return answers.pop()
        raise UnreachableError("No answer.")

    stop = threading.Event()
    engine = Engine(stop.set)
    follow(read, "upsert", stop, engine, look=LOOK)
    assert engine.ran == [BOTH]
