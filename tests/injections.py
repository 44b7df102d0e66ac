"""Counts the faults that the tests inject, and how long recovery took: the table of `make fault`.

A helper that injects a fault is decorated with `injects`, one that returns when the work goes on with `recovers`. What
the product itself provides (the `kill` of programs and servers) is counted within `watch`.
`make fault` prints the table and writes it to docs/proof.json.

The recovery time of a fault is the time until the helper that waits for progress next returns. It includes what the
test itself waits for, such as a server that is away for a minute on purpose. A test that fails, for whatever reason,
counts as one violation of each kind that it injected.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

from inorder.embedded.server import Server
from inorder.embedded.stack import Program

P = ParamSpec("P")
R = TypeVar("R")


class Injections:
    """The faults of one session, by kind."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.counts: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self._open: list[tuple[str, float]] = []
        self._of_test: set[str] = set()
        self._outcomes: dict[str, str] = {}
        self.passed = self.failed = 0
        """Tests."""

    def note(self, kind: str, times: int = 1) -> None:
        """So many faults of a kind were injected now."""
        self.counts[kind] += times
        self._open += [(kind, self._clock())] * times
        self._of_test.add(kind)

    def recovered(self) -> None:
        """The work goes on after everything that was injected."""
        now = self._clock()
        for kind, at in self._open:
            self.seconds[kind].append(now - at)
        self._open.clear()

    def end_phase(self, phase: str, outcome: str) -> None:
        """A phase of a test ended, in pytest's words; the test ends with the last one, and fails with any of them."""
        self._outcomes[phase] = outcome
        if phase == "teardown":
            has_failed = "failed" in self._outcomes.values()
            self.failed += has_failed
            self.passed += not has_failed and self._outcomes.get("call") == "passed"
            self._outcomes.clear()
            self.end_test(failed=has_failed)

    def end_test(self, *, failed: bool) -> None:
        """What was not waited for has no recovery time."""
        if failed:
            self.violations.update(self._of_test)
        self._of_test.clear()
        self._open.clear()

    def table(self) -> list[dict[str, Any]]:
        """A row for each kind, with the median and the longest recovery in seconds."""
        return [
            {
                "kind": kind,
                "count": count,
                "recovery_median": _rounded(sorted(self.seconds[kind]), 0.5),
                "recovery_longest": _rounded(sorted(self.seconds[kind]), 1.0),
                "violations": self.violations[kind],
            }
            for kind, count in sorted(self.counts.items())
        ]


def _rounded(seconds: list[float], share: float) -> float | None:
    return round(seconds[int(share * (len(seconds) - 1))], 2) if seconds else None


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


def is_whole(options: Mapping[str, Any], status: int) -> bool:
    """Whether a session ran all tests of `make fault` to their end, by pytest's options and its exit status."""
    chosen = ("keyword", "deselect", "lf", "maxfail", "collectonly")
    is_cut = any(options.get(name) for name in chosen) or any("::" in path for path in options["file_or_dir"])
    return not is_cut and status in (0, 1)


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
