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
from functools import partial
from typing import Any

from inorder.journal.replication.replicating import ReplicateWork
from inorder.kafka.admin import Cluster
from inorder.model.errors import TransientError
from inorder.pipeline.progress import NOBODY, Listener, Progress, Several
from inorder.settings import Settings
from inorder.stores.journal_opening import JournalReplicas
from inorder.wiring.journal import journal_store
from inorder.wiring.notices import announcers
from inorder.wiring.pipeline import RunEngine, run_work
from inorder.wiring.until_changed import until_changed

log = logging.getLogger("inorder.pipeline")

LOOK_SECONDS = 3.0

Topics = Callable[[], tuple[str, ...]]


def run_replicate(
    settings: Settings, *, once: bool, stop: threading.Event, listener: Listener = NOBODY
) -> dict[str, Any]:
    """Runs the job `replicate` on Spark until `stop` is set, or once; returns its totals in records."""
    work = replicate_work(settings)
    with closing(journal_store(settings)) as store:
        store.install()
        work = replace(work, announcers=announcers(settings, store))
    progress = Progress()

    def topics() -> tuple[str, ...]:
        began = time.monotonic()
        found = journal_topics(settings)
        listener.spent({"topics": time.monotonic() - began})
        return found

    def drive(run_engine: RunEngine) -> None:
        follow_topics(work, topics, run_engine, stop, once=once)

    run_work(settings, work, once=once, stop=stop, listener=Several(progress, listener), drive=drive)
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
