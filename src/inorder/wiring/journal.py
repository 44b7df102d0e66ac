"""Journals on Kafka and the store of the settings."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from inorder.journal.asynchronous import THREADS
from inorder.journal.asynchronous import AsyncJournals as AsyncJournalsOn
from inorder.journal.client import Journals as JournalsOn
from inorder.journal.codec import Sender
from inorder.journal.forks import Fork
from inorder.journal.reader import JournalReader
from inorder.journal.subscription import Subscription
from inorder.journal.topic_cache import HeadCache
from inorder.kafka.admin import Cluster
from inorder.kafka.journal_log import KafkaJournalLog
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Key
from inorder.model.message import Limits
from inorder.ports.journal_store import EventualJournal
from inorder.ports.partition_reader import Extent
from inorder.settings import Settings
from inorder.stores.journal_opening import JournalStore, open_journal_store

log = logging.getLogger("inorder.journal")


class Journals(JournalsOn):
    """All journals of a Kafka cluster and a store: `inorder.Journals(settings).journal(inorder.Key(id, topic))`."""

    def __init__(self, settings: Settings) -> None:
        kafka, store = KafkaJournalLog(settings.kafka.properties), journal_store(settings)
        timeout = self._seconds = settings.journal.timeout_seconds
        self._heads = HeadCache(kafka, store, time.monotonic) if settings.journal.head_cache else None
        reader = JournalReader(
            kafka, store, time.monotonic, heads=self._heads, timeout_seconds=timeout, on_fork=_tell_fork
        )
        limits = Limits(max_value_bytes=settings.outbox.max_value_bytes)
        super().__init__(kafka, store, reader, sender=_sender(settings), limits=limits, timeout_seconds=timeout)

    def subscribe(
        self,
        topic: str,
        checkpoint: Any = None,
        *,
        idle_seconds: float | None = None,
        on_damaged: Callable[[DamagedRecordError], None] | None = None,
    ) -> Subscription:
        """Every event of a topic after a checkpoint, journal by journal in order, for ever.

        Store the checkpoint of each event in the transaction in which you store what you made of it, and every event
        has its effect once. None begins at the first event. `idle_seconds` ends it when nothing came for so long.
        `on_damaged` is told of records that cannot be read, and they are passed over; without it they are raised.
        """
        return Subscription(
            self.log,
            self.store,
            topic,
            time.monotonic,
            checkpoint=checkpoint,
            idle_seconds=idle_seconds,
            timeout_seconds=self._seconds,
            on_fork=_tell_fork,
            on_damaged=on_damaged,
        )

    def close(self) -> None:
        """Sends what is waiting and gives everything back; may be called twice."""
        if self._heads is not None:
            self._heads.close()
        super().close()


class AsyncJournals(AsyncJournalsOn):
    """The same for `async` code: `await inorder.AsyncJournals(settings).journal(key).append(...)`."""

    def __init__(self, settings: Settings, *, threads: int = THREADS) -> None:
        journals = Journals(settings)
        super().__init__(journals, journals.subscribe, threads=threads)


def journal_store(settings: Settings) -> JournalStore:
    """The store of the settings; nothing connects before it is asked."""
    return open_journal_store(settings.journal.store_url(settings.database))


def _sender(settings: Settings) -> Sender:
    try:
        ours = version("inorder")
    except PackageNotFoundError:
        ours = "unknown"
    return Sender(settings.journal.origin or socket.gethostname(), ours)


def _tell_fork(key: Key, fork: Fork) -> None:
    log.warning("journal.fork", extra={"journal": str(key), "fork": str(fork), "is_proven": fork.is_proven})


class Lag(NamedTuple):
    """How far the store is behind one partition, in records; `replicated` is None before the first."""

    topic: str
    partition: int
    end: int
    replicated: int | None
    behind: int


def journal_lag(settings: Settings) -> list[Lag]:
    """Every partition of every topic whose name begins with one of `journal.topic_prefixes`."""
    cluster = Cluster(settings.kafka.properties)
    prefixes = tuple(settings.journal.topic_prefixes)
    with closing(journal_store(settings)) as store:
        return [
            _lag(store, topic, partition, extent)
            for topic in sorted(cluster.topic_names())
            if topic.startswith(prefixes)
            for partition, extent in (cluster.extents(topic) or {}).items()
        ]


def _lag(store: EventualJournal, topic: str, partition: int, extent: Extent) -> Lag:
    replicated = store.offset(topic, partition)
    applied = extent.first if replicated is None else max(extent.first, replicated + 1)
    return Lag(topic, partition, extent.end, replicated, max(0, extent.end - applied))
