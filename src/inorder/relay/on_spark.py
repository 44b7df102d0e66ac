"""The job `relay`: relays as tasks of Spark, where a cluster is the only place for a service.

Each task is a whole `Relay` of the settings. They share the shards as instances on any machines do, by leadership; the
fence of each shard makes a task harmless that Spark considers lost. Spark places the tasks and restarts them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inorder.engines.running import SparkChoice, until_changed
from inorder.model.errors import TransientError
from inorder.relay.parts import RelayParts
from inorder.relay.service import Relay
from inorder.relay.status import open_admin
from inorder.settings import Settings

LOOK_SECONDS = 0.2
BACKLOG_SECONDS = 0.5
STANDSTILL_SECONDS = 20.0
"""Longer than a relay takes to restart, or to take over the shards of a dead one."""


@dataclass(frozen=True)
class RelayTask:
    """One relay, until the driver closes the connection."""

    settings: Settings

    def __call__(self, goes_on: Callable[[], bool], report: Callable[[Mapping[str, int]], None]) -> None:
        """Raises the error that ended the relay."""
        with Relay(self.settings) as relay:
            reported = -1
            while goes_on() and not relay.wait(LOOK_SECONDS):
                if relay.published != reported:
                    report({"published": (reported := relay.published)})
        report({"published": relay.published})


class PublishedTotal:
    """What all tasks have published; a task that Spark restarts counts from zero."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: dict[int, int] = {}
        self._ended = 0

    def add(self, index: int, totals: Mapping[str, int]) -> None:
        """Takes what a task has published since it started."""
        with self._lock:
            before, now = self._now.get(index, 0), totals["published"]
            if now < before:
                self._ended += before
            self._now[index] = now

    @property
    def total(self) -> int:
        with self._lock:
            return self._ended + sum(self._now.values())


def run_relay(settings: Settings, spark_choice: SparkChoice, *, once: bool, stop: threading.Event) -> dict[str, Any]:
    """Relays on Spark until `stop` is set; `once`: until the outbox is empty, or holds only what stays there."""
    from inorder.engines.resident import count_slots
    from inorder.engines.resident_tasks import ServiceTaskPlan, run_service
    from inorder.engines.session import open_session

    published = PublishedTotal()

    def waiting() -> int:
        with open_admin(RelayParts(settings)) as admin:
            return int(admin.outbox_state()["waiting"])

    with open_session("inorder relay", spark_choice, has_ui=not once) as spark:

        def count() -> int:
            return tasks_for(settings, count_slots(spark))

        plan = ServiceTaskPlan("relay", RelayTask(settings), count())
        is_done = DrainCheck(waiting).is_done if once else lambda: False
        with until_changed(is_done, stop, BACKLOG_SECONDS) as over:
            run_service(spark, plan, over, published.add, count)
    return {"published": published.total, "waiting": waiting()}


class DrainCheck:
    """Whether a relay is done with what waits. Rows of parked keys stay, so an outbox need not become empty."""

    def __init__(self, count_waiting: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._count_waiting = count_waiting
        self._clock = clock
        self._waiting = -1
        self._since = clock()

    def is_done(self) -> bool:
        """Whether nothing waits, or the same number of rows has waited for long."""
        try:
            waiting = self._count_waiting()
        except TransientError:
            return False
        if waiting != self._waiting:
            self._waiting, self._since = waiting, self._clock()
        return waiting == 0 or self._clock() - self._since >= STANDSTILL_SECONDS


def tasks_for(settings: Settings, slots: int) -> int:
    """How many relays are of use: no more than there are shards to share, and one where nothing is shared."""
    relay = settings.relay
    if relay.strategy == "polling" or relay.leadership == "none":
        return 1
    return slots if relay.strategy == "topic-lock" else max(1, min(slots, relay.shards))
