"""The job `relay`: relays as tasks of Spark, for those who have a cluster and no other place for a service.

Each task is a whole `Relay` of the settings. They share the shards as instances on any machines do, by leadership; the
fence of each shard makes a task harmless that Spark takes for lost. Spark's part is to place them and to begin them
again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inorder.engines.running import until_changed
from inorder.model.errors import TransientError
from inorder.relay.service import Relay
from inorder.relay.status import outbox_state
from inorder.settings import Settings

LOOK_SECONDS = 0.2
BACKLOG_SECONDS = 0.5
STANDSTILL_SECONDS = 20.0
"""Longer than a relay takes to be begun again, or to take a dead one's shards over."""


@dataclass(frozen=True)
class RelayErrand:
    """One relay, until the driver hangs up."""

    settings: Settings

    def __call__(self, goes_on: Callable[[], bool], tell: Callable[[Mapping[str, int]], None]) -> None:
        """Raises what ended the relay."""
        with Relay(self.settings) as relay:
            told = -1
            while goes_on() and not relay.wait(LOOK_SECONDS):
                if relay.published != told:
                    tell({"published": (told := relay.published)})
        tell({"published": relay.published})


class Published:
    """What all tasks have published; a task that is begun again counts from nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: dict[int, int] = {}
        self._ended = 0

    def hear(self, seat: int, totals: Mapping[str, int]) -> None:
        """A task told what it has published since it began."""
        with self._lock:
            before, now = self._now.get(seat, 0), totals["published"]
            if now < before:
                self._ended += before
            self._now[seat] = now

    @property
    def total(self) -> int:
        """By all of them."""
        with self._lock:
            return self._ended + sum(self._now.values())


def run_relay(settings: Settings, *, once: bool, stop: threading.Event) -> dict[str, Any]:
    """Relays on Spark until `stop` is set; `once`: until the outbox is empty, or holds only what stays there."""
    from inorder.engines.resident import count_slots
    from inorder.engines.resident_tasks import ServiceTaskPlan, run_service
    from inorder.engines.session import LOCAL_MASTER, spark_session

    published = Published()
    spark = spark_session("inorder relay", jars=(), master=settings.pipeline.master or LOCAL_MASTER)
    try:
        plan = ServiceTaskPlan("relay", RelayErrand(settings), tasks_for(settings, count_slots(spark)))
        is_done = Outbox(settings).is_done if once else lambda: False
        with until_changed(is_done, stop, BACKLOG_SECONDS) as over:
            run_service(spark, plan, over, published.hear)
    finally:
        spark.stop()
    return {"published": published.total, "waiting": outbox_state(settings)["waiting"]}


class Outbox:
    """Whether a relay is done with what waits. Rows of parked keys stay, so an outbox need not become empty."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._waiting = -1
        self._since = clock()

    def is_done(self) -> bool:
        """Whether nothing waits, or the same number of rows has waited for long."""
        try:
            waiting: int = outbox_state(self._settings)["waiting"]
        except TransientError:
            return False
        if waiting != self._waiting:
            self._waiting, self._since = waiting, self._clock()
        return waiting == 0 or self._clock() - self._since >= STANDSTILL_SECONDS


def tasks_for(settings: Settings, slots: int) -> int:
    """How many relays are of use: no more than there are shards to share, and one where nobody shares."""
    relay = settings.relay
    if relay.strategy == "polling" or relay.leadership == "none":
        return 1
    return slots if relay.strategy == "topic-lock" else max(1, min(slots, relay.shards))
