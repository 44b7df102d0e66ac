"""Leadership `redis`: a key for each lease, a sorted set of members; only the server's clock makes them expire."""

from __future__ import annotations

from inorder.database import sql
from inorder.database.redis import ANSWER_SECONDS, connect, redis_errors
from inorder.relay.leadership.share import MemberRank

_SCRIPTS = sql.load("inorder.relay", "sql/redis/lease.lua")
LEASE_SECONDS = 3.0
SHORTEST_ANSWER_SECONDS = 0.5


class RedisLease:
    """A `Lease` that one instance holds for `LEASE_SECONDS` after each `acquire`.

    The key's value names the holder. Only the holder extends or frees it, by one script on the server that compares
    first, so a holder whose lease expired takes nothing back from the next one.
    """

    def __init__(self, url: str, *, name: str, owner: str, seconds: float = LEASE_SECONDS) -> None:
        # A request that hangs must leave time for another one before the lease ends.
        self._client = connect(url, min(ANSWER_SECONDS, max(seconds / 3, SHORTEST_ANSWER_SECONDS)))
        self._key = lease_key(name)
        self._owner = owner
        self._won = False
        self._milliseconds = int(seconds * 1000)
        self._extend = self._client.register_script(_SCRIPTS["extend"])
        self._free = self._client.register_script(_SCRIPTS["release"])

    def acquire(self) -> bool:
        """Extends the lease if it is ours, or wins it if it is free.

        In this order, an instance whose winning answer was lost finds that it holds the lease.
        """
        with redis_errors():
            extended = self._extend(keys=[self._key], args=[self._owner, self._milliseconds])
            self._won = bool(extended) or bool(self._client.set(self._key, self._owner, nx=True, px=self._milliseconds))
        return self._won

    def holds(self) -> bool:
        """By the last answer; `KeptLease` knows for how long that is true."""
        return self._won

    def release(self) -> None:
        """Frees the lease if it is ours, and closes the connection."""
        self._won = False
        with redis_errors():
            self._free(keys=[self._key], args=[self._owner])
            self._client.close()

    def arbitrates(self) -> bool:
        """A waiting instance may win it when it expires."""
        return True


def lease_key(name: str) -> str:
    return f"inorder:{name}:leader"


def holder_of(url: str, name: str) -> str | None:
    """Who holds a lease, if any instance does."""
    client = connect(url)
    try:
        with redis_errors():
            found = client.get(lease_key(name))
    finally:
        client.close()
    return found.decode() if isinstance(found, bytes) else None


_MEMBERSHIP_SCRIPTS = sql.load("inorder.relay", "sql/redis/membership.lua")
MEMBER_SECONDS = 3.0


class RedisMembership:
    """A `Membership` that lasts for `MEMBER_SECONDS` after each `beat`."""

    def __init__(self, url: str, *, group: str, instance: str, seconds: float = MEMBER_SECONDS) -> None:
        self._client = connect(url)
        self._key = members_key(group)
        self._instance = instance
        self._milliseconds = int(seconds * 1000)
        self._beat = self._client.register_script(_MEMBERSHIP_SCRIPTS["beat"])

    def beat(self) -> MemberRank:
        """One script on the server: deletes expired members, adds this one, counts."""
        with redis_errors():
            members, rank = self._beat(keys=[self._key], args=[self._instance, self._milliseconds])
        return MemberRank(int(members), int(rank))

    def leave(self) -> None:
        """Removes this member and closes the connection."""
        with redis_errors():
            self._client.zrem(self._key, self._instance)
            self._client.close()


def members_key(group: str) -> str:
    return f"inorder:{group}:members"


def members_of(url: str, group: str) -> list[str]:
    """The instances of a group that are alive, by the server's clock."""
    client = connect(url)
    try:
        with redis_errors():
            seconds, microseconds = client.time()
            found = client.zrangebyscore(members_key(group), f"({seconds * 1000 + microseconds // 1000}", "+inf")
    finally:
        client.close()
    return sorted(name.decode() for name in found if isinstance(name, bytes))
