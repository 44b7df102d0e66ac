"""Counts the faults that the tests inject, and how long recovery took: the table of `make fault`.

A helper that injects a fault is decorated with `injects`, one that returns when the work goes on with `recovers`. What
the product itself provides (the `kill` of programs and servers) is counted within `watch`.
`make fault` prints the table and writes what each test did to docs/proof.json as soon as it has ended, so a run that is
interrupted, or that has only some of the tests, loses nothing and claims nothing for the others.

The recovery time of a fault is the time until the helper that waits for progress next returns. It includes what the
test itself waits for, such as a server that is away for a minute on purpose. A test that fails, for whatever reason,
counts as one violation of each kind that it injected.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

from inorder.embedded.server import Server
from inorder.embedded.stack import Program

P = ParamSpec("P")
R = TypeVar("R")

FaultedTest = dict[str, Any]
"""Of one test: its `outcome` and, by kind, the `count` of its faults and the `seconds` of those that have recovered.
Nothing but JSON, since workers of pytest send it to the process that writes it."""


class Injections:
    """The faults of the test that runs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._open: list[tuple[str, float]] = []
        self._outcomes: dict[str, str] = {}

    def note(self, kind: str, times: int = 1) -> None:
        """So many faults of a kind were injected now."""
        self._counts[kind] += times
        self._open += [(kind, self._clock())] * times

    def recovered(self) -> None:
        """The work goes on after everything that was injected."""
        now = self._clock()
        for kind, at in self._open:
            self._seconds[kind].append(round(now - at, 2))
        self._open.clear()

    def end_phase(self, phase: str, outcome: str) -> FaultedTest | None:
        """A phase of a test ended, in pytest's words; the test ends with the last one, and fails with any of them."""
        self._outcomes[phase] = outcome
        if phase != "teardown":
            return None
        has_failed = "failed" in self._outcomes.values()
        found = {
            "outcome": "failed" if has_failed else self._outcomes.get("call", "skipped"),
            "faults": {
                kind: {"count": count, "seconds": self._seconds[kind]} for kind, count in sorted(self._counts.items())
            },
        }
        # What was not waited for has no recovery time.
        self._counts, self._seconds = Counter(), defaultdict(list)
        self._open.clear()
        self._outcomes.clear()
        return found


def tabulate(tests: Iterable[FaultedTest]) -> list[dict[str, Any]]:
    """A row for each kind, with the median and the longest recovery in seconds."""
    counts: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    seconds: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        for kind, of_kind in test["faults"].items():
            counts[kind] += of_kind["count"]
            violations[kind] += test["outcome"] == "failed"
            seconds[kind] += of_kind["seconds"]
    return [
        {
            "kind": kind,
            "count": count,
            "recovery_median": _share(sorted(seconds[kind]), 0.5),
            "recovery_longest": _share(sorted(seconds[kind]), 1.0),
            "violations": violations[kind],
        }
        for kind, count in sorted(counts.items())
    ]


def _share(ordered: list[float], share: float) -> float | None:
    return ordered[int(share * (len(ordered) - 1))] if ordered else None


INJECTIONS = Injections()
"""Those of this process."""


def injects(kind: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Counts the calls of a function that injects a fault."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def counting(*args: P.args, **kwargs: P.kwargs) -> R:
            INJECTIONS.note(kind)
            return function(*args, **kwargs)

        return counting

    return decorate


def recovers(function: Callable[P, R]) -> Callable[P, R]:
    """Of a function that returns when the work goes on."""

    @wraps(function)
    def noting(*args: P.args, **kwargs: P.kwargs) -> R:
        found = function(*args, **kwargs)
        INJECTIONS.recovered()
        return found

    return noting


@contextmanager
def watch() -> Iterator[None]:
    """Counts kills of programs and servers while the block lasts."""
    kill, kill_server = Program.kill, Server.kill

    def kill_program(program: Program) -> None:
        if program.pid is not None:
            INJECTIONS.note("kill -9 of a relay or a job")
        kill(program)

    def kill_one(server: Server) -> None:
        if server.pids:
            INJECTIONS.note(f"kill -9 of {_server(server)}")
        kill_server(server)

    with ExitStack() as patched:
        patched.enter_context(patch.object(Program, "kill", kill_program))
        patched.enter_context(patch.object(Server, "kill", kill_one))
        yield


def _server(server: Server) -> str:
    """The product that a server is, whatever the test derives from it."""
    return next(each.__name__ for each in type(server).__mro__ if each.__module__.startswith("inorder.embedded"))
