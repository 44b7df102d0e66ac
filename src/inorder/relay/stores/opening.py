"""The database of the outbox, whichever it is."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Protocol
from uuid import uuid4

from inorder.database.database import dialect_of, open_database
from inorder.kafka.admin import partition_owners
from inorder.kafka.idempotent_producer import IdempotentShardLog
from inorder.kafka.shard_log import ShardLog
from inorder.model.errors import ConfigurationError
from inorder.model.partitioning import Partitioner, Shard
from inorder.outbox.layouts import layout
from inorder.relay.leadership.lease import KeptLease, Lease, LeaseTimes, NoLease
from inorder.relay.leadership.share import Membership, Share, SharedLease
from inorder.relay.marker import MarkerCodec
from inorder.relay.stores.exceeded import ExceededAdmin, SqlExceededStore
from inorder.relay.stores.kafka_lease import KafkaLeases, leader_topic
from inorder.relay.stores.kafka_log import KafkaShardLog
from inorder.relay.stores.outbox_store import ReplicaReads
from inorder.relay.stores.polling import PollingExceededStore, SqlPollingStore
from inorder.relay.stores.ports import MarkStore, OutboxStore, Setup
from inorder.relay.stores.registry import SqlRegistry
from inorder.relay.stores.sql_lease import SqlLease, SqlMembership, lease_of
from inorder.settings import Settings
from inorder.settings.servers import Property
from inorder.topics.routes import RoutedShardLog, RoutedUnfencedLog, Routes
from inorder.topics.stores.generations import SqlTopicGenerations


class ClaimStore(OutboxStore, MarkStore, Protocol):
    """A store that serves every strategy."""


def outbox_store(settings: Settings, shard: Shard, *, url: str | None = None) -> ClaimStore:
    """The store of one shard. Drivers of databases that are not used are not imported."""
    url, relay = url or settings.database.require_url(), settings.relay
    match dialect_of(url):
        case "postgres":
            from inorder.relay.stores.postgres_outbox import PostgresOutboxStore

            keeps = relay.retention_days is not None
            return PostgresOutboxStore(url, relay.table, layout=relay.layout, shard=shard, archive=keeps)
        case "mysql":
            from inorder.relay.stores.mysql_outbox import MySQLOutboxStore

            return MySQLOutboxStore(url, relay.table, layout=relay.layout, shard=shard)
        case "sqlite":
            from inorder.relay.stores.sqlite_outbox import SQLiteOutboxStore

            return SQLiteOutboxStore(url, relay.table, layout=relay.layout, shard=shard)


def scanned_store(settings: Settings) -> OutboxStore:
    """What the strategy `polling` scans: a replica where there is one, but for what only the primary knows."""
    primary = outbox_store(settings, Shard())
    if settings.database.read_only_url is None:
        return primary
    return ReplicaReads(primary, outbox_store(settings, Shard(), url=settings.database.reading_url()))


def polling_store(settings: Settings, application_name: str) -> SqlPollingStore:
    """Offset, missing and exceeded events, which are always in the primary."""
    database = open_database(settings.database.require_url(), application_name)
    return SqlPollingStore(database, settings.relay.table, settings.relay.polling.side_tables)


def exceeded_store(settings: Settings, application_name: str) -> ExceededAdmin:
    """The exceeded rows of the outbox; the strategy `polling` leaves them in their table."""
    database = open_database(settings.database.require_url(), application_name)
    if settings.relay.strategy == "polling":
        return PollingExceededStore(database, settings.relay.table, settings.relay.polling.side_tables)
    return SqlExceededStore(database, settings.relay.table, settings.relay.layout)


def can_wake(settings: Settings) -> bool:
    """Whether publishers can wake a sleeping relay."""
    return layout(settings.relay.layout, dialect_of(settings.database.require_url())).wakes_us


def postgres_url(settings: Settings, what: str) -> str:
    """The URL, for parts that know PostgreSQL only."""
    url = settings.database.require_url()
    require_postgres(dialect_of(url), what)
    return url


def require_postgres(dialect: str, what: str) -> None:
    """Refuses other databases."""
    if not dialect.startswith("postgres"):
        raise ConfigurationError(
            f"{what} of this version need PostgreSQL, not {dialect!r}.",
            hint="Set database.url to postgresql+psycopg://user@host/db.",
        )


# The Kafka side of a shard, by the delivery that is set.


def shard_log(
    settings: Settings,
    setup: Setup,
    shard: int,
    holds: Callable[[], bool] = lambda: True,
) -> ShardLog:
    """The log of one shard of a set-up; it follows the generations of its topics.

    `holds` is that of the shard's lease, which counts where there is no fence.
    """
    match settings.relay.delivery:
        case "exactly-once":
            partitioners = partitioners_of(settings)
            log = fenced_log(settings, setup, shard, partitioners)
            return RoutedShardLog(log, database_routes(settings), partitioners)
        case "at-least-once":
            return unfenced_log(settings, settings.kafka.properties, holds)


def marker_codec(settings: Settings, setup: Setup, *, is_restored: bool = False) -> MarkerCodec:
    """The codec of a set-up's markers, which only delivery `exactly-once` has."""
    if settings.relay.delivery == "at-least-once":
        return MarkerCodec()
    return MarkerCodec(partial(_read_identity, settings), group=setup.group, is_restored=is_restored)


def _read_identity(settings: Settings) -> str:
    """Read once a term, so its connection is not kept."""
    database = open_database(settings.database.require_url(), "inorder relay (identity)")
    with closing(SqlRegistry(database, settings.relay.table)) as registry:
        return registry.identity()


def fenced_log(
    settings: Settings, setup: Setup, shard: int, partitioners: Mapping[str, Partitioner] | None = None
) -> KafkaShardLog:
    """The log of a shard as the broker knows it, whatever the delivery."""
    return KafkaShardLog(
        settings.kafka.properties, group=setup.group, shard=shard, shards=setup.shards, partitioners=partitioners
    )


def unfenced_log(
    settings: Settings, properties: Mapping[str, Property], holds: Callable[[], bool] = lambda: True
) -> ShardLog:
    """A log without a fence that follows the generations of its topics."""
    partitioners = partitioners_of(settings)
    log = IdempotentShardLog(properties, partitioners=partitioners, holds=holds)
    return RoutedUnfencedLog(log, database_routes(settings), partitioners)


def database_routes(settings: Settings) -> Routes:
    """Routes as the database has them; nothing is connected before the first question."""
    return Routes(SqlTopicGenerations(open_database(settings.database.require_url(), "inorder relay (routes)")))


def setup_of(settings: Settings) -> Setup:
    """What the settings say that all instances must agree on."""
    return Setup(settings.relay.group, settings.relay.strategy, settings.relay.shards)


def partitioners_of(settings: Settings) -> dict[str, Partitioner]:
    """Topics whose partitions we choose ourselves; the client chooses for all others."""
    named = {name: Partitioner(topic.partitioner) for name, topic in settings.topics.items()}
    return {name: partitioner for name, partitioner in named.items() if partitioner is not Partitioner.MURMUR2}


# Who may own which shard, by the leadership that is set.


def leases(settings: Settings) -> Callable[[int], Lease]:
    """Gives the lease of a shard; all of them belong to one instance."""
    group, shards = settings.relay.group, settings.relay.shards
    owner = owner_name(settings.relay.lease.owner)
    match settings.relay.leadership:
        case "kafka":
            return KafkaLeases(settings.kafka.properties, group=group, owner=owner, shards=shards).lease
        case "database":
            return _shared(settings, _database_lease(settings, owner), _database_membership(settings, owner))
        case "redis":
            return _shared(settings, _redis_lease(settings, owner), _redis_membership(settings, owner))
        case "none":
            return lambda _shard: NoLease()


def lease_holders(settings: Settings) -> list[tuple[str | None, int | None]]:
    """Who holds the lease of each shard and in which term, as far as there is somebody to ask cheaply."""
    shards = range(settings.relay.shards)
    match settings.relay.leadership:
        case "kafka":
            owners = partition_owners(settings.kafka.properties, leader_topic(settings.relay.group))
            return [(owners.get(shard), None) for shard in shards]
        case "database":
            with closing(open_database(settings.database.require_url(), "inorder status")) as database:
                return [lease_of(database, lease_name(settings, shard)) for shard in shards]
        case "redis":
            from inorder.relay.stores.redis_lease import holder_of

            url = settings.redis.require_url()
            return [(holder_of(url, lease_name(settings, shard)), None) for shard in shards]
        case "none":
            return [(None, None) for _ in shards]


def lease_name(settings: Settings, shard: int) -> str:
    """What the lease of a shard is called, in the database and in Redis."""
    return settings.relay.lease_name(shard)


def owner_name(given: str) -> str:
    """What the lease says of this instance; two that run at once must not have the same name."""
    match given:
        case "":
            return f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
        case "host":
            return socket.gethostname()
        case _:
            return given


def lease_times(settings: Settings) -> LeaseTimes:
    """How long a lease lives, in seconds."""
    lease = settings.relay.lease
    return LeaseTimes(lease.lifetime_ms / 1000, lease.race_interval_ms / 1000, lease.margin_ms / 1000)


def _shared(
    settings: Settings, lease: Callable[[int], Lease], membership: Callable[[], Membership]
) -> Callable[[int], Lease]:
    if settings.relay.shards == 1:  # nothing to share, so nobody need know how many there are
        return lease
    share = Share(settings.relay.shards, membership())
    return lambda shard: SharedLease(lease(shard), share, shard)


def _database_lease(settings: Settings, owner: str) -> Callable[[int], Lease]:
    url, times = settings.database.require_url(), lease_times(settings)

    def lease(shard: int) -> Lease:
        database = open_database(url, "inorder relay (lease)")
        name = lease_name(settings, shard)
        return KeptLease(SqlLease(database, name=name, owner=owner, seconds=times.lifetime), times)

    return lease


def _database_membership(settings: Settings, owner: str) -> Callable[[], Membership]:
    database = open_database(settings.database.require_url(), "inorder relay (membership)")
    return lambda: SqlMembership(database, group=settings.relay.group, instance=owner)


# The package redis is an extra, so its adapters are imported where they are used.


def _redis_lease(settings: Settings, owner: str) -> Callable[[int], Lease]:
    from inorder.relay.stores.redis_lease import RedisLease

    url, times = settings.redis.require_url(), lease_times(settings)

    def lease(shard: int) -> Lease:
        return KeptLease(RedisLease(url, name=lease_name(settings, shard), owner=owner, seconds=times.lifetime), times)

    return lease


def _redis_membership(settings: Settings, owner: str) -> Callable[[], Membership]:
    from inorder.relay.stores.redis_lease import RedisMembership

    url = settings.redis.require_url()
    return lambda: RedisMembership(url, group=settings.relay.group, instance=owner)
