"""One process, many tasks, one order: a scheduler that decides by a seed who continues after each effect.

Tasks are greenlets. They switch only where simulated code calls `pause` or `wait`, so a run follows from its seed
alone. Time is virtual: it passes when all tasks wait. A task belongs to a `Node`, which stands for a process: when a
node dies, none of its tasks does anything any more; whatever they call raises `Killed`.

The real code uses threads, pools, conditions and clocks. `patched` replaces those of the modules of one run by tasks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped] # its stubs are a package of their own

from inorder.testing.checker import Verdict

MOST_STEPS = 200_000


class Killed(BaseException):
    """The process of this task is dead."""


class Endless(Exception):  # noqa: N818 - a verdict on a run
    """A run does not come to an end."""


@dataclass(eq=False)
class Node:
    """A process."""

    name: str
    is_dead: bool = False
    frozen_until: float = 0.0
    """A process that is paused does nothing until then, and does not know of it."""


@dataclass(eq=False)
class Task:
    run: greenlet
    node: Node
    is_ready: Callable[[], bool] = lambda: True
    wakes_at: float | None = None
    failure: BaseException | None = field(default=None)

    @property
    def is_done(self) -> bool:
        return bool(self.run.dead)


class Scheduler:
    """Runs tasks until a goal is met."""

    def __init__(self, chance: random.Random) -> None:
        self.now = 0.0
        self.steps = 0
        self._chance = chance
        self._tasks: list[Task] = []
        self._running: dict[greenlet, Task] = {}
        self._hub = getcurrent()

    def spawn(self, node: Node, run: Callable[[], object]) -> Task:
        task = Task(None, node)
        task.run = greenlet(lambda: self._run(task, run), parent=self._hub)
        self._tasks.append(task)
        self._running[task.run] = task
        return task

    def pause(self) -> None:
        """Lets others continue."""
        self.wait(lambda: True)

    def wait(self, is_ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Waits for a condition, or for a time; returns whether the condition holds."""
        task = self._current()
        if task.node.is_dead:
            raise Killed
        task.is_ready, task.wakes_at = is_ready, None if seconds is None else self.now + seconds
        self._hub.switch()
        if task.node.is_dead:
            raise Killed
        return is_ready()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Continues one task after the other until the goal is met; raises what a task raised."""
        while not is_over():
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise Endless(f"not over after {MOST_STEPS} steps")
            self._step()

    def end(self) -> None:
        """Kills all nodes, so that nothing is left."""
        for task in self._tasks:
            task.node.is_dead = True
        self._bury()

    def node(self) -> Node:
        return self._current().node

    def _step(self) -> None:
        self._bury()
        awake = [task for task in self._tasks if task.node.frozen_until <= self.now]
        ready = [task for task in awake if task.is_ready() or self._is_due(task)]
        if not ready:
            due = [task.wakes_at for task in awake if task.wakes_at is not None]
            due += [task.node.frozen_until for task in self._tasks if task.node.frozen_until > self.now]
            if not due:
                raise Endless("all tasks wait for each other")
            self.now = max(self.now, min(due))
            return
        task = self._chance.choice(ready)
        task.is_ready, task.wakes_at = _always, None
        task.run.switch()
        if task.failure is not None and not isinstance(task.failure, Killed):
            raise task.failure

    def _bury(self) -> None:
        for task in [task for task in self._tasks if task.node.is_dead and not task.is_done]:
            if task.run:  # one that never ran has nothing to end
                task.run.throw(Killed)
        self._tasks = [task for task in self._tasks if not task.is_done and not task.node.is_dead]

    def _is_due(self, task: Task) -> bool:
        return task.wakes_at is not None and task.wakes_at <= self.now

    def _current(self) -> Task:
        return self._running[getcurrent()]

    def _run(self, task: Task, run: Callable[[], object]) -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - the boundary of a task
            task.failure = error


def _always() -> bool:
    return True


class Condition:
    """`threading.Condition`: nothing runs in between, so a lock is not needed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...

    def wait_for(self, is_ready: Callable[[], bool], timeout: float | None = None) -> bool:
        return bool(is_ready()) or self._scheduler.wait(lambda: bool(is_ready()), timeout)


class Thread:
    """`threading.Thread`."""

    def __init__(self, scheduler: Scheduler, target: Callable[[], object]) -> None:
        self.ident: int | None = None
        self._scheduler = scheduler
        self._target = target
        self._task: Task | None = None

    def start(self) -> None:
        self.ident, self._task = 1, self._scheduler.spawn(self._scheduler.node(), self._target)

    def join(self) -> None:
        task = self._task
        self._scheduler.wait(lambda: task is None or task.is_done)


class Pool:
    """`ThreadPoolExecutor` with one worker."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._futures: list[Future] = []

    def submit(self, run: Callable[[], object]) -> Future:
        future = Future(self._scheduler, run)
        self._futures.append(future)
        return future

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:  # noqa: ARG002 - as the pool's
        wait_for(self._futures)


class Future:
    """`concurrent.futures.Future` of a task."""

    def __init__(self, scheduler: Scheduler, run: Callable[[], object]) -> None:
        self._scheduler = scheduler
        self._value: object = None
        self._error: BaseException | None = None
        self._task = scheduler.spawn(scheduler.node(), lambda: self._run(run))

    def result(self) -> object:
        self.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def wait(self) -> None:
        self._scheduler.wait(lambda: self._task.is_done)

    def _run(self, run: Callable[[], object]) -> None:
        try:
            self._value = run()
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error


def wait_for(futures: Iterable[Future]) -> None:
    """`concurrent.futures.wait`."""
    for future in futures:
        future.wait()


class Stop:
    """`threading.Event` of one node: set when it shall end in order."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return self._scheduler.wait(self.is_set, timeout)


@contextmanager
def patched(scheduler: Scheduler, others: dict[str, Any]) -> Iterator[None]:
    """The modules of the relay, with the scheduler's tasks and time in place of threads and clocks."""
    threading = SimpleNamespace(
        Condition=lambda: Condition(scheduler), Thread=lambda target, **_: Thread(scheduler, target)
    )
    clock = SimpleNamespace(monotonic=lambda: scheduler.now)
    replaced: dict[str, Any] = {
        "inorder.relay.purge_queue.threading": threading,
        "inorder.relay.term.ThreadPoolExecutor": lambda *_, **__: Pool(scheduler),
        "inorder.relay.term.wait": wait_for,
        "inorder.kafka.fenced_producer.time": clock,
        "inorder.relay.stores.kafka_log.time": clock,
        **others,
    }
    with ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(patch(name, value))
        yield


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    verdict: Verdict
    effects: int
    faults: int

    @property
    def holds(self) -> bool:
        return self.verdict.holds
