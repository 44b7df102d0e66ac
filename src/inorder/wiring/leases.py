"""Who may own which shard, by the leadership that is set."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import closing
from uuid import uuid4

from inorder.kafka.leadership import KafkaLeases, leader_topic
from inorder.kafka.owners import partition_owners
from inorder.leadership.hold import LeaseTimes
from inorder.leadership.kept import KeptLease
from inorder.leadership.share import Share, SharedLease
from inorder.leadership.unguarded import NoLease
from inorder.ports.lease import Lease
from inorder.ports.membership import Membership
from inorder.settings import Settings
from inorder.stores.lease import SqlLease, lease_of
from inorder.stores.membership import SqlMembership
from inorder.stores.opening import open_database


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
            from inorder.stores.redis.lease import holder_of

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
    from inorder.stores.redis.lease import RedisLease

    url, times = settings.redis.require_url(), lease_times(settings)

    def lease(shard: int) -> Lease:
        return KeptLease(RedisLease(url, name=lease_name(settings, shard), owner=owner, seconds=times.lifetime), times)

    return lease


def _redis_membership(settings: Settings, owner: str) -> Callable[[], Membership]:
    from inorder.stores.redis.membership import RedisMembership

    url = settings.redis.require_url()
    return lambda: RedisMembership(url, group=settings.relay.group, instance=owner)
