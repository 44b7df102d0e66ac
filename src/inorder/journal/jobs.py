"""The jobs `replicate` and `expire`.

`replicate` follows all topics whose names begin with a journal's prefix. The engine runs on the topics that exist. When
another one is created, the engine is stopped and restarted with all of them; it finds new partitions by itself.

`expire` needs no Spark: every hour it purges journals whose day of expiry has passed, by an action in the log like any
other. An append says how long its journal lives after it, and the store has the day on which that ends. A journal is
purged when the whole day is over, so never too early and at most a day late; all earlier days are checked too, so that
a day on which the job did not run is made up for. The store may be behind. Before it purges a journal the job writes a
mark and reads the journal up to it, as readers do: if an append is in the log alone, or has moved the day meanwhile,
the journal stays. The purge has the end of the journal at the mark as its condition: after an append in between it is
void (`life.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from inorder.engines.progress import NULL_LISTENER, CompositeListener, Listener, RunTotals
from inorder.engines.running import RunEngine, SparkEngine, until_changed
from inorder.journal.client import JournalClient
from inorder.journal.measuring import journal_meter
from inorder.journal.reading.head import ReadPlan
from inorder.journal.replication.job import ReplicateWork
from inorder.journal.service import Journals
from inorder.journal.stores.opening import ExpiryIndex, JournalReplicas, JournalStore
from inorder.kafka.admin import Cluster, require_uncompacted
from inorder.model.errors import ConfigurationError, DamagedRecordError, TransientError
from inorder.model.journal import Key
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


@dataclass(frozen=True, slots=True)
class Expired:
    """A journal that is expired according to the store, and whether it was purged."""

    key: Key
    is_purged: bool
    """False if it lives on, or in a dry run."""

    def __str__(self) -> str:
        return f"{self.key} {'is purged' if self.is_purged else 'is left'}."


def expire(
    journals: JournalClient,
    index: ExpiryIndex,
    topics: Iterable[str],
    today: date,
    stop: threading.Event,
    *,
    per_second: float,
    dry_run: bool = False,
) -> Iterator[Expired]:
    """Purges journals that expired before today, at most `per_second`; ends early when `stop` is set."""
    for topic in topics:
        for id in index.expired(topic, today):
            if stop.is_set():
                return
            key = Key(id, topic)
            is_purged = not dry_run and _purge_expired(journals, key, today)
            if is_purged:
                stop.wait(1 / per_second)
            yield Expired(key, is_purged)


def _purge_expired(journals: JournalClient, key: Key, today: date) -> bool:
    try:
        marked = journals.moment(key)
    except DamagedRecordError:
        return False  # parked: what its records say is unknown
    return has_expired(marked.moment.plan, today) and journals.journal(key).purge_unchanged(marked)


def has_expired(plan: ReadPlan, today: date) -> bool:
    """Whether a journal's last append is in the store, and its day of expiry is over."""
    if plan.head is None or plan.log_from is not None or plan.head.expiry is None:
        return False
    return plan.head.expiry.on < today
