"""Every kind of lease, made the same way in the tests and in the processes that they kill."""

from __future__ import annotations

from typing import Literal

from inorder.kafka.leadership import KafkaLeases
from inorder.ports.lease import Lease
from inorder.stores.lease import SqlLease
from inorder.stores.opening import open_database
from inorder.stores.redis.lease import RedisLease

Kind = Literal["postgres", "mariadb", "sqlite", "redis", "kafka"]

# Milliseconds; about as short as the embedded broker allows, so that nobody waits long for the dead.
QUICK_SESSION = 1500


def make_lease(kind: Kind, address: str, group: str, owner: str, seconds: float) -> Lease:
    """A lease of the group; `seconds` is how long a silent holder is trusted, where the lease itself says so."""
    match kind:
        case "postgres" | "mariadb" | "sqlite":
            return SqlLease(open_database(address, "test"), name=f"{group}.0", owner=owner, seconds=seconds)
        case "redis":
            return RedisLease(address, name=f"{group}.0", owner=owner, seconds=seconds)
        case "kafka":
            properties = {"bootstrap.servers": address, "session.timeout.ms": QUICK_SESSION}
            return KafkaLeases(properties, group=group, owner=owner).lease(0)
