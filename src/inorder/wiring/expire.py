"""The job `expire`, from the settings: it needs no Spark, for it reads heads and writes some actions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

from inorder.journal.replication.expiring import Expired, expire
from inorder.model.errors import TransientError
from inorder.settings import Settings
from inorder.wiring.journal import Journals, journal_store
from inorder.wiring.journal_measuring import instruments
from inorder.wiring.replicate import journal_topics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from inorder.wiring.job_measuring import JobService

log = logging.getLogger("inorder.journal")

LOOK_SECONDS = 3600.0
RETRY_SECONDS = 60.0


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
            log.warning("journal.expire_failed", extra={"reason": str(error)})
            _hinder(service, error.message)
            stop.wait(RETRY_SECONDS)
            continue
        if once:
            break
        stop.wait(LOOK_SECONDS)
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
    rate, meter, began = settings.journal.expire_per_second, instruments(metrics).meter, perf_counter()
    with Journals(settings, metrics=metrics) as journals, closing(journal_store(settings)) as index:
        topics = journal_topics(settings)
        for each in expire(journals, index, topics, today, stop, per_second=rate, dry_run=dry_run):
            totals["found"] += 1
            totals["purged"] += each.is_purged
            log.info("journal.expired", extra={"journal": str(each.key), "is_purged": each.is_purged})
            tell(each)
            meter.add("expire_journals", 1, each.key.topic, "purged" if each.is_purged else "left")
    meter.took("expire_pass", perf_counter() - began)
