"""Every kind of lease, made the same way in the tests and in the processes that they kill."""

from __future__ import annotations

from typing import Literal

from inorder.database.database import open_database
from inorder.relay.leadership.lease import Lease
from inorder.relay.stores.kafka_lease import KafkaLeases
from inorder.relay.stores.redis_lease import RedisLease
from inorder.relay.stores.sql_lease import SqlLease

Kind = Literal["postgres", "mariadb", "sqlite", "redis", "kafka"]

# Milliseconds; short enough for quick tests, long enough that a busy machine expires no living instance.
QUICK_SESSION = 3000


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
