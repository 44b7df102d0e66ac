"""Journals on Kafka and the store of the settings, and what an operator asks of them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, NamedTuple

from inorder.database.database import Database, open_database
from inorder.engines.measures import Meter
from inorder.journal.asynchronous import THREADS, AsyncJournalClient
from inorder.journal.client import JournalClient, log_fork
from inorder.journal.codec import RecordSender
from inorder.journal.keys import JournalKeys
from inorder.journal.measuring import (
    JournalMetrics,
    SlowCalls,
    StoreBreaker,
    WatchedStore,
    journal_meter,
    measure_loans,
)
from inorder.journal.projection import Projection
from inorder.journal.projection_runner import ProjectionRunner, SharedTail
from inorder.journal.reading.head_cache import HeadCache
from inorder.journal.reading.reader import JournalReader
from inorder.journal.replication.job import release
from inorder.journal.replication.store_port import Quarantine, Quarantined
from inorder.journal.snapshots import SnapshotHistory
from inorder.journal.stores.kafka_log import KafkaJournalLog
from inorder.journal.stores.kafka_notices import replicated_offsets, store_wait
from inorder.journal.stores.kafka_shared import KafkaSharedTail
from inorder.journal.stores.opening import JournalStore, ReplicaStore, open_journal_store, open_snapshot_store
from inorder.journal.stores.ports import EventualJournal, JournalFilter, JournalLog, ListedJournal, TopicIncarnation
from inorder.journal.stores.projection_store import ProjectionStore
from inorder.journal.subscription import Subscription
from inorder.journal.topic_identity import JournalReset, LookUp, TopicGuard, plan_reset
from inorder.kafka.admin import Cluster
from inorder.model.breaker import BreakerOptions
from inorder.model.errors import ConfigurationError, DamagedRecordError
from inorder.model.journal import Key
from inorder.model.message import Limits
from inorder.model.partitioning import Extent
from inorder.settings import Settings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class Journals(JournalClient):
    """All journals of a Kafka cluster and a store: `inorder.Journals(settings).journal(inorder.Key(id, topic))`."""

    def __init__(self, settings: Settings, *, metrics: CollectorRegistry | None = None) -> None:
        """`metrics` is a registry of `prometheus_client` that is to have their figures; without it none are taken."""
        self._settings = settings
        self._projections: list[ProjectionRunner] = []
        self._databases: list[Database] = []
        self._unwatch_projections: list[Callable[[], None]] = []
        meter = journal_meter(metrics)
        unmeasured = self._journal_store = journal_store(settings)
        self._guard = TopicGuard(
            topic_look_up(settings.kafka.properties), unmeasured.incarnation, time.monotonic, self._forget
        )
        kafka = self._kafka = KafkaJournalLog(
            settings.kafka.properties,
            on_lent=measure_loans(meter),
            guard=self._guard,
            max_consumers=settings.journal.max_consumers,
        )
        slow_calls, breaker = SlowCalls(settings.journal.slow_calls.seconds()), settings.journal.breaker
        store = WatchedStore(unmeasured, meter, slow_calls, StoreBreaker(BreakerOptions(**breaker.model_dump())))
        timeout = self._seconds = settings.journal.timeout_seconds
        self._heads = self._head_cache(settings, kafka, store, meter)
        self._notices = replicated_offsets(settings.kafka.properties, settings.journal, unmeasured)
        reader = JournalReader(
            kafka,
            store,
            time.monotonic,
            heads=self._heads,
            store_wait=store_wait(settings.journal, store, self._notices),
            timeout_seconds=timeout,
            on_fork=log_fork,
            meter=meter,
        )
        limits = Limits(max_value_bytes=settings.outbox.max_value_bytes)
        super().__init__(
            kafka,
            store,
            reader,
            sender=_sender(settings),
            limits=limits,
            meter=meter,
            snapshot_history=SnapshotHistory(
                open_snapshot_store(settings.journal.store_url(settings.database)), settings.journal.snapshots
            ),
            keys=None if settings.journal.keys is None else JournalKeys(settings.journal.keys.get_secret_value()),
            timeout_seconds=timeout,
            slow_calls=slow_calls,
        )

    def subscribe(
        self,
        topic: str,
        checkpoint: Any = None,
        *,
        idle_seconds: float | None = None,
        on_damaged: Callable[[DamagedRecordError], None] | None = None,
    ) -> Subscription:
        """Every event of a topic after a checkpoint, in order per journal, without end.

        Store the checkpoint of each event in the transaction in which you store its result, and every event has its
        effect once. None starts at the first event. `idle_seconds` ends the subscription when no event came for so
        long. `on_damaged` receives records that cannot be read, and they are skipped; without it they are raised.
        """
        return Subscription(
            self.log,
            self.store,
            topic,
            time.monotonic,
            checkpoint=checkpoint,
            idle_seconds=idle_seconds,
            timeout_seconds=self._seconds,
            on_fork=log_fork,
            on_damaged=on_damaged,
            identify=self._guard.require,
            open_record=self.open_record,
            meter=self.meter,
        )

    def find(
        self, topic: str, *, origin: str | None = None, created: date | None = None, expires: date | None = None
    ) -> Iterator[ListedJournal]:
        """The replicated journals of a topic, in any order, without those that are parked since their first record.

        `origin` is who wrote the first event, `created` the day (UTC) on which it was written, and `expires` the day
        after which the journal may be purged. Days are found by an index of the store.
        """
        return self._journal_store.journals(topic, JournalFilter(origin, created, expires))

    def _forget(self, topic: str) -> None:
        """Another topic was accepted under that name: nothing that is known of the former one holds."""
        self._kafka.forget(topic)
        if self._heads is not None:
            self._heads.forget(topic)

    def project(
        self,
        projection: Projection,
        *,
        database: str | None = None,
        on_waiting: Callable[[str], object] = lambda _reason: None,
    ) -> ProjectionRunner:
        """A projection into tables of a database, by default that of `database.url`: call `run` of what is returned.

        Instances with the same name share the partitions. `run` is for one thread; `stop` or `close` ends it.
        `on_waiting` is called with the reason when a partition begins to wait, and with "" when none does any more.
        """
        url = self._settings.database.require_url() if database is None else database
        opened = open_database(url, f"inorder projection {projection.name}")
        self._databases.append(opened)
        properties = self._settings.kafka.properties

        def open_tail(chosen: Projection, is_alone: bool) -> SharedTail:
            group = None if is_alone else f"inorder.projection.{chosen.name}"
            return KafkaSharedTail(properties, chosen.topics, group)

        store = ProjectionStore(opened, projection.name)
        runner = ProjectionRunner(
            projection,
            store,
            self.store,
            open_tail,
            meter=self.meter,
            on_waiting=on_waiting,
            identify=self._guard.require,
            open_record=self.open_record,
        )
        self._projections.append(runner)
        if isinstance(self.meter, JournalMetrics):
            self._unwatch_projections.append(self.meter.watch_projection(projection.name, runner.lags, runner.waiting))
        return runner

    def close(self) -> None:
        """Sends what is waiting and closes everything; may be called twice."""
        for runner in self._projections:
            runner.stop()
        for unwatch in self._unwatch_projections:
            unwatch()
        for opened in self._databases:
            opened.close()
        self._unwatch()
        if self._heads is not None:
            self._heads.close()
        if self._notices is not None:
            self._notices.close()
        super().close()

    def _head_cache(
        self, settings: Settings, log: JournalLog, store: EventualJournal, meter: Meter
    ) -> HeadCache | None:
        self._unwatch: Callable[[], None] = lambda: None
        if not settings.journal.head_cache:
            return None
        heads = HeadCache(log, store, time.monotonic, meter=meter)
        if isinstance(meter, JournalMetrics):
            self._unwatch = meter.watch(heads.readings)
        return heads


class AsyncJournals(AsyncJournalClient):
    """The same for `async` code: `await inorder.AsyncJournals(settings).journal(key).append(...)`."""

    def __init__(self, settings: Settings, *, threads: int = THREADS, metrics: CollectorRegistry | None = None) -> None:
        journals = Journals(settings, metrics=metrics)
        super().__init__(journals, journals.subscribe, threads=threads)


def journal_store(settings: Settings) -> JournalStore:
    """The store of the settings; it connects when it is first used."""
    return open_journal_store(settings.journal.store_url(settings.database))


def topic_look_up(properties: Mapping[str, Any]) -> LookUp:
    """What the cluster holds under the name of a topic; each call connects, so that none is kept open for it."""

    def look_up(topic: str) -> TopicIncarnation | None:
        found = Cluster(properties).identify(topic)
        return None if found is None else TopicIncarnation(*found)

    return look_up


def _sender(settings: Settings) -> RecordSender:
    try:
        ours = version("inorder")
    except PackageNotFoundError:
        ours = "unknown"
    return RecordSender(settings.journal.origin or socket.gethostname(), ours)


class Lag(NamedTuple):
    """The lag of the store behind one partition, in records; `replicated` is None before the first."""

    topic: str
    partition: int
    end: int
    replicated: int | None
    behind: int


def journal_topics(cluster: Cluster, prefixes: Sequence[str]) -> tuple[str, ...]:
    """The topics of the cluster that hold journals, by `journal.topic_prefixes`. Raises `UnreachableError`."""
    return tuple(name for name in cluster.topic_names() if name.startswith(tuple(prefixes)))


class JournalAdmin:
    """What an operator asks of journals and their store: lag and quarantine."""

    def __init__(
        self,
        store: JournalStore,
        replicas: Callable[[], ReplicaStore],
        cluster: Cluster,
        *,
        topic_prefixes: Sequence[str],
        segment_size: int,
    ) -> None:
        """`replicas` opens the write side of the store, for one call."""
        self._store = store
        self._quarantine: Callable[[], Quarantine] = replicas
        self._replicas = replicas
        self._cluster = cluster
        self._prefixes = topic_prefixes
        self._segment_size = segment_size

    def lag(self) -> list[Lag]:
        """Of every partition of every topic that holds journals."""
        return [
            self._lag(topic, partition, extent)
            for topic in sorted(journal_topics(self._cluster, self._prefixes))
            for partition, extent in (self._cluster.extents(topic) or {}).items()
        ]

    def quarantined(self, topic: str | None = None, id: str | None = None) -> Sequence[Quarantined]:
        """The records in quarantine, in the order of topics, journals and offsets."""
        with closing(self._quarantine()) as store:
            return store.quarantined(topic, id)

    def release(self, key: Key) -> int:
        """Applies all records of a parked journal in their order; returns how many. Raises `DamagedRecordError`."""
        with closing(self._quarantine()) as store:
            return release(store, key, self._segment_size)

    def discard(self, key: Key, offset: int | None = None) -> int:
        """Discards the records of a parked journal, or one of them; returns how many."""
        with closing(self._quarantine()) as store:
            return store.discard(key, offset)

    def reset(self, topic: str, *, dry_run: bool = False) -> JournalReset | None:
        """Accepts what has become of a topic (`topic_identity.py`); None if everything fits."""
        self._store.install()
        found, extents = self._cluster.identify(topic), self._cluster.extents(topic)
        if found is None or extents is None:
            raise ConfigurationError(f"There is no topic {topic!r}.", hint="Create it first, then run this again.")
        with closing(self._replicas()) as store:
            recorded, applied = store.incarnation(topic), store.offsets(topic)
            waiting = {
                number: self._lag(topic, number, extent).behind
                for number, extent in extents.items()
                if recorded is not None and number < recorded.partitions
            }
            plan = plan_reset(topic, recorded, applied, found[0], extents, waiting)
            if plan is not None and not dry_run:
                store.reset(plan)
        return plan

    def _lag(self, topic: str, partition: int, extent: Extent) -> Lag:
        replicated = self._store.offset(topic, partition)
        applied = extent.first if replicated is None else max(extent.first, replicated + 1)
        return Lag(topic, partition, extent.end, replicated, max(0, extent.end - applied))
