"""A lease key in Redis; the server's clock alone tells when it runs out."""

from __future__ import annotations

from inorder.database import sql
from inorder.database.redis import ANSWER_SECONDS, connect, redis_errors
from inorder.relay.leadership.share import MemberRank

_SCRIPTS = sql.load("inorder.relay", "sql/redis/lease.lua")
LEASE_SECONDS = 3.0
SHORTEST_ANSWER_SECONDS = 0.5


class RedisLease:
    """A `Lease` that one instance holds for `LEASE_SECONDS` after each `acquire`.

    The key's value names the holder. Only the holder extends or frees it, compared and done in one script on the
    server, so a holder whose time ran out takes nothing back from the next one.
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

        Asked in this order, an instance whose winning answer was lost finds that it holds the lease.
        """
        with redis_errors():
            extended = self._extend(keys=[self._key], args=[self._owner, self._milliseconds])
            self._won = bool(extended) or bool(self._client.set(self._key, self._owner, nx=True, px=self._milliseconds))
        return self._won

    def holds(self) -> bool:
        """As the last answer said; `KeptLease` knows for how long that is true."""
        return self._won

    def release(self) -> None:
        """Frees the lease if it is ours, and closes the connection."""
        self._won = False
        with redis_errors():
            self._free(keys=[self._key], args=[self._owner])
            self._client.close()

    def arbitrates(self) -> bool:
        """Whoever waits may win it when it runs out."""
        return True


def lease_key(name: str) -> str:
    """The key of a shard's lease."""
    return f"inorder:{name}:leader"


def holder_of(url: str, name: str) -> str | None:
    """Who holds a lease, or nobody."""
    client = connect(url)
    try:
        with redis_errors():
            found = client.get(lease_key(name))
    finally:
        client.close()
    return found.decode() if isinstance(found, bytes) else None


# Who takes part, as a sorted set in Redis; the server's clock alone tells who is still there.

_MEMBERSHIP_SCRIPTS = sql.load("inorder.relay", "sql/redis/membership.lua")
MEMBER_SECONDS = 3.0


class RedisMembership:
    """A `Membership` that is known for `MEMBER_SECONDS` after each `beat`."""

    def __init__(self, url: str, *, group: str, instance: str, seconds: float = MEMBER_SECONDS) -> None:
        self._client = connect(url)
        self._key = members_key(group)
        self._instance = instance
        self._milliseconds = int(seconds * 1000)
        self._beat = self._client.register_script(_MEMBERSHIP_SCRIPTS["beat"])

    def beat(self) -> MemberRank:
        """One script on the server: forgets who is gone, keeps this one, counts."""
        with redis_errors():
            members, rank = self._beat(keys=[self._key], args=[self._instance, self._milliseconds])
        return MemberRank(int(members), int(rank))

    def leave(self) -> None:
        """Removes this one, and closes the connection."""
        with redis_errors():
            self._client.zrem(self._key, self._instance)
            self._client.close()


def members_key(group: str) -> str:
    """The key of a relay group's members."""
    return f"inorder:{group}:members"
