"""The job `replicate`, from the settings: it follows all topics whose names begin as journals' do.

The engine runs on the topics that there are. When another one has come it is stopped and begun anew with all of them;
new partitions of a topic it finds by itself.
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
from inorder.engines.running import RunEngine, run_work, until_changed
from inorder.journal.expire import Expired, expire
from inorder.journal.measuring import journal_meter
from inorder.journal.replication.job import ReplicateWork
from inorder.journal.service import Journals, journal_store
from inorder.journal.stores.kafka_notices import announcers
from inorder.journal.stores.opening import JournalReplicas
from inorder.kafka.admin import Cluster
from inorder.model.errors import TransientError
from inorder.settings import Settings

log = logging.getLogger("inorder.pipeline")

LOOK_SECONDS = 3.0

Topics = Callable[[], tuple[str, ...]]


def run_replicate(
    settings: Settings, *, once: bool, stop: threading.Event, listener: Listener = NULL_LISTENER
) -> dict[str, Any]:
    """Runs the job `replicate` on Spark until `stop` is set, or once; returns its totals in records."""
    work = replicate_work(settings)
    with closing(journal_store(settings)) as store:
        store.install()
        work = replace(work, announcers=announcers(settings, store))
    progress = RunTotals()

    def topics() -> tuple[str, ...]:
        began = time.monotonic()
        found = journal_topics(settings)
        listener.spent({"topics": time.monotonic() - began})
        return found

    def drive(run_engine: RunEngine) -> None:
        follow_topics(work, topics, run_engine, stop, once=once)

    run_work(settings, work, once=once, stop=stop, listener=CompositeListener(progress, listener), drive=drive)
    return dict(progress.totals())


def replicate_work(settings: Settings) -> ReplicateWork:
    """The job as engines see it, before its topics are known."""
    replicas = JournalReplicas(settings.journal.store_url(settings.database))
    is_measured = settings.health.address is not None
    return ReplicateWork((), replicas, settings.journal.segment_size, is_measured=is_measured)


def journal_topics(settings: Settings) -> tuple[str, ...]:
    """The topics of the cluster that hold journals. Raises `UnreachableError`."""
    prefixes = tuple(settings.journal.topic_prefixes)
    return tuple(name for name in Cluster(settings.kafka.properties).topic_names() if name.startswith(prefixes))


def follow_topics(
    work: ReplicateWork,
    topics: Topics,
    run_engine: RunEngine,
    stop: threading.Event,
    *,
    once: bool = False,
    look: float = LOOK_SECONDS,
) -> None:
    """Runs the engine on all topics that there are, and again when one is added; until `stop` is set or it ends."""
    known: tuple[str, ...] = ()
    while not stop.is_set():
        found = _found(topics, known)
        if found == known:  # nothing there yet, or the engine has come to its end
            if once or known:
                return
            stop.wait(look)
            continue
        known = found
        log.info("pipeline.topics pipeline=%s topics=%s", work.name, ",".join(known))
        with until_changed(partial(_has_more, topics, known), stop, look) as over:
            run_engine(replace(work, topics=known), over)
        if once:
            return


def _has_more(topics: Topics, known: tuple[str, ...]) -> bool:
    return _found(topics, known) != known


def _found(topics: Topics, known: tuple[str, ...]) -> tuple[str, ...]:
    """What there is now, with what was there: a topic that is deleted is left to the engine."""
    try:
        return tuple(sorted({*known, *topics()}))
    except TransientError as error:
        log.warning("pipeline.topics_not_asked %s", error)  # the engine meets the same trouble, and waits it out
        return known


# The job `expire`, from the settings: it needs no Spark, for it reads heads and writes some actions.

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from inorder.engines.job_status import JobService

_expire_log = logging.getLogger("inorder.journal")

EXPIRE_SECONDS = 3600.0
EXPIRE_RETRY_SECONDS = 60.0


def run_expire(
    settings: Settings,
    *,
    once: bool,
    stop: threading.Event,
    dry_run: bool = False,
    tell: Callable[[Expired], None] = lambda expired: None,  # noqa: ARG005 - the signature
    today: Callable[[], date] = lambda: datetime.now(UTC).date(),
    service: JobService | None = None,
) -> dict[str, Any]:
    """Purges what has expired, every hour until `stop` is set, or once; returns how many were found and purged.

    `service` is told how it goes.
    """
    totals = {"found": 0, "purged": 0}
    while not stop.is_set():
        try:
            _pass(settings, today(), stop, dry_run, tell, totals, service.registry if service else None)
            _hinder(service, "")
        except TransientError as error:
            if once:
                raise
            _expire_log.warning("journal.expire_failed", extra={"reason": str(error)})
            _hinder(service, error.message)
            stop.wait(EXPIRE_RETRY_SECONDS)
            continue
        if once:
            break
        stop.wait(EXPIRE_SECONDS)
    return dict(totals)


def _hinder(service: JobService | None, reason: str) -> None:
    if service is not None:
        service.hindrance = reason


def _pass(
    settings: Settings,
    today: date,
    stop: threading.Event,
    dry_run: bool,
    tell: Callable[[Expired], None],
    totals: dict[str, int],
    metrics: CollectorRegistry | None,
) -> None:
    rate, meter, began = settings.journal.expire_per_second, journal_meter(metrics), perf_counter()
    with Journals(settings, metrics=metrics) as journals, closing(journal_store(settings)) as index:
        topics = journal_topics(settings)
        for each in expire(journals, index, topics, today, stop, per_second=rate, dry_run=dry_run):
            totals["found"] += 1
            totals["purged"] += each.is_purged
            _expire_log.info("journal.expired", extra={"journal": str(each.key), "is_purged": each.is_purged})
            tell(each)
            meter.add("expire_journals", 1, each.key.topic, "purged" if each.is_purged else "left")
    meter.took("expire_pass", perf_counter() - began)
