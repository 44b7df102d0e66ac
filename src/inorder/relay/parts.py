"""What a relay is made of, by the settings: stores, logs, leases and the options of its loops.

Everything here is made on request and connects when it is first used. A loop gets connections of its own
(`open_database`), since a transaction of one must not wait for another; what an operator asks shares one connection
(`inorder.app`). Drivers of databases that are not used are not imported.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

from inorder.database.database import Database, dialect_of, open_database
from inorder.kafka.admin import group_members
from inorder.kafka.idempotent_producer import IdempotentShardLog
from inorder.model.breaker import BreakerOptions
from inorder.model.errors import ConfigurationError, InorderError, RejectedError
from inorder.model.partitioning import Shard
from inorder.outbox.layouts import layout
from inorder.outbox.outbox import trace_headers
from inorder.relay.drain import DrainStrategy
from inorder.relay.events import RelayEvent
from inorder.relay.leadership.lease import KeptLease, Lease, LeaseTimes, NoLease
from inorder.relay.leadership.share import Membership, Share, SharedLease
from inorder.relay.mark_purge import MarkPurgeStrategy
from inorder.relay.marker import Marker, MarkerCodec, spans_text
from inorder.relay.options import Pace, Policy
from inorder.relay.polling import PollingOptions
from inorder.relay.stores.exceeded import ExceededAdmin, SqlExceededStore
from inorder.relay.stores.kafka_lease import KafkaLeases, leader_topic
from inorder.relay.stores.kafka_log import KafkaShardLog, marker_topic, read_last_marker
from inorder.relay.stores.outbox_store import WHOLE, ReplicaReads
from inorder.relay.stores.polling import PollingExceededStore, SqlPollingStore
from inorder.relay.stores.ports import MarkStore, OutboxStore, Setup
from inorder.relay.stores.registry import SqlRegistry
from inorder.relay.stores.server import ServerCheck
from inorder.relay.stores.sql_lease import SqlLease, SqlMembership, lease_of, members_of
from inorder.relay.stores.topic_lock import SqlTopicStore
from inorder.relay.topic_lock_batch import TopicLockOptions
from inorder.settings import Settings
from inorder.settings.relay import RelaySettings
from inorder.settings.servers import Property
from inorder.topics.pauses import PauseKind, SqlPauses
from inorder.topics.routes import RoutedShardLog, RoutedUnfencedLog, Routes, SentListener
from inorder.topics.stores.generations import SqlTopicGenerations

LOOK_SECONDS = 2.0
"""For a marker that an operator asks for; the relay itself waits longer."""


class ClaimStore(OutboxStore, MarkStore, Protocol):
    """A store that serves every strategy."""


class Ownership(NamedTuple):
    """The owner and term of each shard, and the instances of the group that are alive, leading or not."""

    holders: Sequence[tuple[str | None, int | None]]
    instances: Sequence[str] | None = None
    """None where nothing knows them: with one shard, the leases of database and Redis have no members."""


class RelayParts:
    """Builds the parts of the relay of some settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def relay(self) -> RelaySettings:
        return self.settings.relay

    @property
    def setup(self) -> Setup:
        """What all instances must agree on."""
        return Setup(self.relay.group, self.relay.strategy, self.relay.shards)

    # The database of the outbox.

    def open_database(self, application_name: str) -> Database:
        """A connection of its own, under this name where the server shows names."""
        return open_database(self.settings.database.require_url(), application_name)

    def server_check(self) -> ServerCheck:
        """Refuses servers on which the order of ids does not hold."""
        database = self.settings.database
        return ServerCheck(database.require_url(), single_writer_node=database.single_writer_node)

    def outbox_store(self, shard: Shard, *, is_primary: bool = True) -> ClaimStore:
        """The store of one shard; that of the replica can only be read."""
        database, relay = self.settings.database, self.relay
        url = database.require_url() if is_primary else database.reading_url()
        match dialect_of(url):
            case "postgres":
                from inorder.relay.stores.postgres_outbox import PostgresOutboxStore

                keeps = relay.retention_days is not None
                return PostgresOutboxStore(
                    url, relay.table, layout=relay.layout, shard=shard, archive=keeps, is_primary=is_primary
                )
            case "mysql":
                from inorder.relay.stores.mysql_outbox import MySQLOutboxStore

                return MySQLOutboxStore(url, relay.table, layout=relay.layout, shard=shard, is_primary=is_primary)
            case "sqlite":
                from inorder.relay.stores.sqlite_outbox import SQLiteOutboxStore

                return SQLiteOutboxStore(url, relay.table, layout=relay.layout, shard=shard)

    def scanned_store(self) -> OutboxStore:
        """What the strategy `polling` scans: a replica where there is one, except for what only the primary knows."""
        primary = self.outbox_store(Shard())
        if self.settings.database.read_only_url is None:
            return primary
        return ReplicaReads(primary, self.outbox_store(Shard(), is_primary=False))

    def polling_store(self, database: Database) -> SqlPollingStore:
        """Offset, missing and exceeded events, which are always in the primary."""
        return SqlPollingStore(database, self.relay.table, self.relay.polling.side_tables)

    def topic_store(self, database: Database) -> SqlTopicStore:
        """Messages and lock rows of the strategy `topic-lock`."""
        return SqlTopicStore(database, self.relay.table, stale_seconds=self.relay.topic_lock.lock_seconds)

    def exceeded_store(self, database: Database, shard: Shard = WHOLE) -> ExceededAdmin:
        """The exceeded rows of the outbox; the strategy `polling`, which has no shards, leaves them in their table."""
        if self.relay.strategy == "polling":
            return PollingExceededStore(database, self.relay.table, self.relay.polling.side_tables)
        return SqlExceededStore(database, self.relay.table, self.relay.layout, shard=shard)

    def registry(self, database: Database) -> SqlRegistry:
        return SqlRegistry(database, self.relay.table)

    def require_postgres_url(self, what: str) -> str:
        """The URL, for parts that know PostgreSQL only."""
        url = self.settings.database.require_url()
        if (dialect := dialect_of(url)) != "postgres":
            raise ConfigurationError(
                f"{what} of this version need PostgreSQL, not {dialect!r}.",
                hint="Set database.url to postgresql+psycopg://user@host/db.",
            )
        return url

    # The Kafka side of a shard, by `relay.delivery`.

    def shard_log(self, setup: Setup, shard: int, holds: Callable[[], bool] = lambda: True) -> RoutedShardLog:
        """The log of one shard of a setup; it follows the generations of its topics.

        `holds` is that of the shard's lease, which counts where there is no fence.
        """
        match self.relay.delivery:
            case "exactly-once":
                return RoutedShardLog(self.fenced_log(setup, shard), self._routes(), self._traces())
            case "at-least-once":
                return self.unfenced_log(self.settings.kafka.properties, holds)

    def fenced_log(self, setup: Setup, shard: int) -> KafkaShardLog:
        """The log of a shard as the broker knows it, whatever the delivery."""
        return KafkaShardLog(
            self.settings.kafka.properties,
            group=setup.group,
            shard=shard,
            shards=setup.shards,
            partitioners=self.settings.partitioners(),
            id_header=self.relay.sent_id_header,
            named_topics=self.settings.named_topics(),
        )

    def unfenced_log(
        self, properties: Mapping[str, Property], holds: Callable[[], bool] = lambda: True
    ) -> RoutedUnfencedLog:
        """A log without a fence that follows the generations of its topics."""
        log = IdempotentShardLog(
            properties,
            partitioners=self.settings.partitioners(),
            holds=holds,
            id_header=self.relay.sent_id_header,
            named_topics=self.settings.named_topics(),
        )
        return RoutedUnfencedLog(log, self._routes(), self._traces())

    def _traces(self) -> SentListener | None:
        if not self.settings.observe.traces:
            return None
        trace_headers()  # raises where OpenTelemetry is missing
        from inorder.observe.tracing import SentTraces

        return SentTraces()

    def marker_codec(self, setup: Setup, *, is_restored: bool = False) -> MarkerCodec:
        """The codec of a setup's markers, which only delivery `exactly-once` has.

        `is_restored` accepts a marker of another outbox.
        """
        if self.relay.delivery == "at-least-once":
            return MarkerCodec()
        return MarkerCodec(self._read_identity, group=setup.group, is_restored=is_restored)

    def _routes(self) -> Routes:
        database = self.open_database("inorder relay (routes)")
        return Routes(SqlTopicGenerations(database), SqlPauses(database).read)

    def _read_identity(self) -> str:
        """Read once a term, so its connection is not kept."""
        with closing(self.registry(self.open_database("inorder relay (identity)"))) as registry:
            return registry.identity()

    # Leadership, by `relay.leadership`. The package redis is an extra, so its stores are imported where they are used.

    def leases(self) -> Callable[[int], Lease]:
        """Returns what makes the lease of a shard; all of them belong to one instance."""
        group, shards, owner = self.relay.group, self.relay.shards, owner_name(self.relay.lease.owner)
        times = self._lease_times()
        match self.relay.leadership:
            case "kafka":
                return KafkaLeases(self.settings.kafka.properties, group=group, owner=owner, shards=shards).lease
            case "database":

                def database_lease(shard: int) -> Lease:
                    database, name = self.open_database("inorder relay (lease)"), self.relay.lease_name(shard)
                    return KeptLease(SqlLease(database, name=name, owner=owner, seconds=times.lifetime), times)

                database = self.open_database("inorder relay (membership)")
                return self._shared(database_lease, lambda: SqlMembership(database, group=group, instance=owner))
            case "redis":
                from inorder.relay.stores.redis_lease import RedisLease, RedisMembership

                url = self.settings.redis.require_url()

                def redis_lease(shard: int) -> Lease:
                    name = self.relay.lease_name(shard)
                    return KeptLease(RedisLease(url, name=name, owner=owner, seconds=times.lifetime), times)

                return self._shared(redis_lease, lambda: RedisMembership(url, group=group, instance=owner))
            case "none":
                return lambda _shard: NoLease()

    def ownership(self, database: Database, *, asks_kafka: bool = True) -> Ownership:
        """Who holds the shards and who is alive, as far as one cheap question answers that."""
        relay, shards = self.relay, range(self.relay.shards)
        match relay.leadership:
            case "kafka":
                topic = leader_topic(relay.group)
                members = group_members(self.settings.kafka.properties, topic) if asks_kafka else []
                owners = {shard: name for name, owned in members for shard in owned}
                names = sorted({name for name, _ in members})
                return Ownership([(owners.get(shard), None) for shard in shards], names or None)
            case "database":
                return Ownership(
                    [lease_of(database, relay.lease_name(shard)) for shard in shards],
                    _members_of(database, relay.group) if relay.shards > 1 else None,
                )
            case "redis":
                from inorder.relay.stores import redis_lease

                url = self.settings.redis.require_url()
                return Ownership(
                    [(redis_lease.holder_of(url, relay.lease_name(shard)), None) for shard in shards],
                    redis_lease.members_of(url, relay.group) if relay.shards > 1 else None,
                )
            case "none":
                return Ownership([(None, None) for _ in shards])

    def read_phantoms(self) -> str | None:
        """Ids published whose rows the database has lost, by the last markers; None if they cannot be read now."""
        if self.relay.delivery == "at-least-once":
            return ""
        topic, properties = marker_topic(self.relay.group), self.settings.kafka.properties
        try:
            records = [read_last_marker(properties, topic, shard, LOOK_SECONDS) for shard in range(self.relay.shards)]
            return ";".join(filter(None, (spans_text(Marker.decode(each.value).phantoms) for each in records)))
        except InorderError:
            return None

    def _lease_times(self) -> LeaseTimes:
        lease = self.relay.lease
        return LeaseTimes(lease.lifetime_ms / 1000, lease.race_interval_ms / 1000, lease.margin_ms / 1000)

    def _shared(self, lease: Callable[[int], Lease], membership: Callable[[], Membership]) -> Callable[[int], Lease]:
        if self.relay.shards == 1:  # nothing to share, so the number of members does not matter
            return lease
        share = Share(self.relay.shards, membership())
        return lambda shard: SharedLease(lease(shard), share, shard)

    # Options of the loops.

    def strategy(self, store: ClaimStore) -> DrainStrategy | MarkPurgeStrategy:
        """How a shard publishes its rows."""
        relay = self.relay
        match relay.strategy:
            case "drain":
                return DrainStrategy(store, relay.batch_size, relay.shards, batch_bytes=relay.batch_bytes)
            case "mark-purge":
                return MarkPurgeStrategy(store, relay.batch_size, relay.in_flight_limit, relay.batch_bytes)
            case "topic-lock" | "polling":
                raise ConfigurationError(f"relay.strategy = {relay.strategy!r} has no shards.")

    def policy(self, topic: str) -> Policy:
        """What happens to a record of a topic whose attempts are used up."""
        return self.settings.topic(topic).on_exceeded or self.relay.on_exceeded

    def pace(self) -> Pace:
        """How long a loop waits, and for what."""
        relay, usual = self.relay, Pace()
        marks, is_timed = relay.strategy == "mark-purge", relay.leadership in ("database", "redis")
        wakes_us = layout(relay.layout, dialect_of(self.settings.database.require_url())).wakes_us
        return Pace(
            lease=relay.lease.race_interval_ms / 1000 if is_timed else usual.lease,
            check=relay.lease.check_interval_ms / 1000 if is_timed else usual.check,
            brief_poll=relay.mark_back_off_ms / 1000 if marks else usual.brief_poll,
            # Where publishers cannot wake us, a long poll is all the rest there is.
            longest_brief_poll=usual.longest_brief_poll if wakes_us else usual.poll,
            back_off=relay.io_back_off_ms / 1000,
            queue=relay.queue_timeout_seconds,
            # Several loops sleep on one lock; when its holder dies, the others notice only by polling.
            asleep=usual.asleep if relay.shards == 1 else 4 * usual.poll,
        )

    def polling_options(self) -> PollingOptions:
        polling = self.relay.polling
        return PollingOptions(
            batch_size=self.relay.batch_size,
            batch_bytes=self.relay.batch_bytes,
            missing_batch_size=polling.missing_batch_size,
            keep_order=polling.keep_order,
            queue_wait=polling.queue_wait_ms / 1000,
            missing_wait=polling.missing_wait_ms / 1000,
            missing_max_retries=polling.missing_max_retries,
            broker_max_retries=polling.broker_max_retries,
            redelivery_delay=polling.redelivery_delay_ms / 1000,
            policy=self.policy,
            breaker=BreakerOptions(
                polling.breaker.is_enabled,
                polling.breaker.threshold,
                polling.breaker.open_seconds,
                polling.breaker.half_open_attempts,
            ),
        )

    def topic_lock_options(self, stop: threading.Event, on_event: Callable[[RelayEvent], None]) -> TopicLockOptions:
        relay, lock = self.relay, self.relay.topic_lock
        return TopicLockOptions(
            stop=stop,
            batch_size=relay.batch_size,
            batch_bytes=relay.batch_bytes,
            delete_group_size=lock.delete_group_size,
            lock_seconds=lock.lock_seconds,
            max_attempts=relay.max_attempts,
            compact_topics="all" if lock.compact_topics == "all" else frozenset(lock.compact_topics),
            log_topics="all" if lock.log_topics == "all" else frozenset(lock.log_topics),
            policy=self.policy,
            on_event=on_event,
            pace=Pace(back_off=relay.io_back_off_ms / 1000, queue=relay.queue_timeout_seconds),
        )


def _members_of(database: Database, group: str) -> list[str] | None:
    try:
        return members_of(database, group)
    except (ConfigurationError, RejectedError):
        return None  # a role that was granted its rights by an earlier version may not read them


def owner_name(given: str) -> str:
    """The name of this instance in a lease; two that run at once must not have the same one."""
    match given:
        case "":
            return f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
        case "host":
            return socket.gethostname()
        case _:
            return given


_LONGEST_NAME: Final = 249
"""Of a pause; databases index it."""


def require_pausable(relay: RelaySettings, kind: PauseKind, name: str) -> None:
    """Raises `ConfigurationError` if the relay of these settings could not honour the pause of a key or shard."""
    if kind is PauseKind.SHARD:
        if relay.strategy not in ("drain", "mark-purge"):
            raise ConfigurationError(
                f"The strategy {relay.strategy!r} has no shards to pause.", hint="`inorder pause topic` pauses a topic."
            )
        if name not in map(str, range(relay.shards)):
            raise ConfigurationError(f"There is no shard {name!r}.", hint=f"There are 0 to {relay.shards - 1}.")
        return
    topic, slash, key = name.partition("/")
    if not (topic and slash) or len(name) > _LONGEST_NAME:
        raise ConfigurationError(
            f"{name!r} is no key of a topic.", hint=f"Write TOPIC/KEY, of {_LONGEST_NAME} characters at most."
        )
    if relay.strategy == "topic-lock" or (relay.strategy == "polling" and not relay.polling.keep_order):
        raise ConfigurationError(
            f"The key {key!r} cannot be paused: the strategy {relay.strategy!r} with these settings "
            "does not hold single keys.",
            hint=f"`inorder pause topic {topic}` pauses its topic.",
        )
