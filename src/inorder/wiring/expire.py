"""The job `expire`, from the settings: it needs no Spark, for it reads heads and writes some actions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from typing import Any

from inorder.journal.expiring import Expired, expire
from inorder.model.errors import TransientError
from inorder.settings import Settings
from inorder.wiring.journal import Journals, journal_store
from inorder.wiring.replicate import journal_topics

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
) -> dict[str, Any]:
    """Purges what has expired, every hour until `stop` is set, or once; returns how many were found and purged."""
    totals = {"found": 0, "purged": 0}
    while not stop.is_set():
        try:
            _pass(settings, today(), stop, dry_run, tell, totals)
        except TransientError as error:
            if once:
                raise
            log.warning("journal.expire_failed", extra={"reason": str(error)})
            stop.wait(RETRY_SECONDS)
            continue
        if once:
            break
        stop.wait(LOOK_SECONDS)
    return dict(totals)


def _pass(
    settings: Settings,
    today: date,
    stop: threading.Event,
    dry_run: bool,
    tell: Callable[[Expired], None],
    totals: dict[str, int],
) -> None:
    rate = settings.journal.expire_per_second
    with Journals(settings) as journals, closing(journal_store(settings)) as index:
        topics = journal_topics(settings)
        for each in expire(journals, index, topics, today, stop, per_second=rate, dry_run=dry_run):
            totals["found"] += 1
            totals["purged"] += each.is_purged
            log.info("journal.expired", extra={"journal": str(each.key), "is_purged": each.is_purged})
            tell(each)
