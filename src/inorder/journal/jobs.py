"""The jobs `replicate` and `expire`.

`replicate` follows all topics whose names begin with a journal's prefix. The engine runs on the topics that exist. When
another one is created, the engine is stopped and restarted with all of them; it finds new partitions by itself.

`expire` needs no Spark: it reads heads and writes some actions, every hour.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from inorder.engines.progress import NULL_LISTENER, CompositeListener, Listener, RunTotals
from inorder.engines.running import RunEngine, SparkEngine, until_changed
from inorder.journal.expire import Expired, expire
from inorder.journal.measuring import journal_meter
from inorder.journal.replication.job import ReplicateWork
from inorder.journal.service import Journals
from inorder.journal.stores.opening import JournalReplicas, JournalStore
from inorder.kafka.admin import Cluster, require_uncompacted
from inorder.model.errors import ConfigurationError, TransientError
from inorder.settings import Settings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from inorder.engines.job_status import JobService

log = logging.getLogger("inorder.pipeline")
_expire_log = logging.getLogger("inorder.journal")

LOOK_SECONDS = 3.0
EXPIRE_SECONDS = 3600.0
EXPIRE_RETRY_SECONDS = 60.0

Topics = Callable[[], tuple[str, ...]]


def run_replicate(
    work: ReplicateWork,
    engine: SparkEngine,
    read_topics: Topics,
    *,
    once: bool,
    stop: threading.Event,
    listener: Listener = NULL_LISTENER,
) -> dict[str, Any]:
    """Runs the job `replicate` on Spark until `stop` is set, or once; returns its totals in records."""
    progress = RunTotals()

    def topics() -> tuple[str, ...]:
        began = time.monotonic()
        found = read_topics()
        listener.spent({"topics": time.monotonic() - began})
        return found

    def drive(run_engine: RunEngine) -> None:
        follow_topics(work, topics, run_engine, stop, once=once)

    engine.run(work, once=once, stop=stop, listener=CompositeListener(progress, listener), drive=drive)
    return dict(progress.totals())


class UncompactedTopics:
    """The journal topics of the cluster; refuses one that is compacted when it first comes up.

    A job that is starting raises. One that runs leaves the topic out and logs it, so that other journals continue.
    """

    def __init__(self, cluster: Cluster, read_topics: Topics) -> None:
        self._cluster = cluster
        self._read_topics = read_topics
        self._is_compacted: dict[str, bool] = {}
        self._is_started = False

    def __call__(self) -> tuple[str, ...]:
        found = self._read_topics()
        for topic in found:
            if topic not in self._is_compacted:
                self._look_at(topic)
        self._is_started = True
        return tuple(topic for topic in found if not self._is_compacted.get(topic))

    def _look_at(self, topic: str) -> None:
        try:
            settings = self._cluster.topic_settings(topic)
        except ConfigurationError:
            settings = {}  # we may not read its settings
        try:
            require_uncompacted(topic, settings)
        except ConfigurationError as error:
            if not self._is_started:
                raise
            log.error("pipeline.topic_compacted", extra={"topic": topic, "error": str(error)})
            self._is_compacted[topic] = True
        else:
            self._is_compacted[topic] = False


def replicate_work(settings: Settings) -> ReplicateWork:
    """The job as engines see it, before its topics are known."""
    replicas = JournalReplicas(settings.journal.store_url(settings.database))
    is_measured = settings.health.address is not None
    return ReplicateWork((), replicas, settings.journal.segment_size, is_measured=is_measured)


def follow_topics(
    work: ReplicateWork,
    topics: Topics,
    run_engine: RunEngine,
    stop: threading.Event,
    *,
    once: bool = False,
    look: float = LOOK_SECONDS,
) -> None:
    """Runs the engine on all topics that exist, and again when one is created; until `stop` is set or it ends."""
    known: tuple[str, ...] = ()
    while not stop.is_set():
        found = _found(topics, known)
        if found == known:  # nothing there yet, or the engine has come to its end
            if once or known:
                return
            stop.wait(look)
            continue
        known = found
        log.info("pipeline.topics", extra={"pipeline": work.name, "topics": ",".join(known)})
        with until_changed(partial(_has_more, topics, known), stop, look) as over:
            run_engine(replace(work, topics=known), over)
        if once:
            return


def _has_more(topics: Topics, known: tuple[str, ...]) -> bool:
    return _found(topics, known) != known


def _found(topics: Topics, known: tuple[str, ...]) -> tuple[str, ...]:
    """The topics that exist now, with those that did: a deleted topic is left to the engine."""
    try:
        return tuple(sorted({*known, *topics()}))
    except TransientError as error:
        log.warning("pipeline.topics_not_read", extra={"error": str(error)})  # the engine waits for the same server
        return known


class ExpireJob:
    """Purges expired journals; opens its connections for each pass."""

    def __init__(
        self,
        open_journals: Callable[[CollectorRegistry | None], Journals],
        open_index: Callable[[], JournalStore],
        read_topics: Topics,
        *,
        per_second: float,
        dry_run: bool = False,
        on_expired: Callable[[Expired], None] = lambda _expired: None,
        today: Callable[[], date] = lambda: datetime.now(UTC).date(),
        service: JobService | None = None,
    ) -> None:
        """`service` serves the job's health and metrics."""
        self._open_journals = open_journals
        self._open_index = open_index
        self._read_topics = read_topics
        self._per_second = per_second
        self._dry_run = dry_run
        self._on_expired = on_expired
        self._today = today
        self._service = service
        self._totals = {"found": 0, "purged": 0}

    def run(self, *, once: bool, stop: threading.Event) -> dict[str, Any]:
        """Runs every hour until `stop` is set, or once; returns how many were found and purged."""
        while not stop.is_set():
            try:
                self._pass(stop)
                self._set_hindrance("")
            except TransientError as error:
                if once:
                    raise
                _expire_log.warning("journal.expire_failed", extra={"reason": str(error)})
                self._set_hindrance(error.message)
                stop.wait(EXPIRE_RETRY_SECONDS)
                continue
            if once:
                break
            stop.wait(EXPIRE_SECONDS)
        return dict(self._totals)

    def _set_hindrance(self, reason: str) -> None:
        if self._service is not None:
            self._service.hindrance = reason

    def _pass(self, stop: threading.Event) -> None:
        metrics = self._service.registry if self._service else None
        meter, began = journal_meter(metrics), perf_counter()
        with self._open_journals(metrics) as journals, closing(self._open_index()) as index:
            topics, rate = self._read_topics(), self._per_second
            for each in expire(journals, index, topics, self._today(), stop, per_second=rate, dry_run=self._dry_run):
                self._totals["found"] += 1
                self._totals["purged"] += each.is_purged
                _expire_log.info("journal.expired", extra={"journal": str(each.key), "is_purged": each.is_purged})
                self._on_expired(each)
                meter.add("expire_journals", 1, each.key.topic, "purged" if each.is_purged else "left")
        meter.took("expire_pass", perf_counter() - began)
