"""A lease key in Redis; the server's clock alone tells when it runs out."""

from __future__ import annotations

from inorder import sql
from inorder.stores.redis.client import ANSWER_SECONDS, connect, our_errors

_SCRIPTS = sql.load("inorder.stores.redis", "lease.lua")
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
        with our_errors():
            extended = self._extend(keys=[self._key], args=[self._owner, self._milliseconds])
            self._won = bool(extended) or bool(self._client.set(self._key, self._owner, nx=True, px=self._milliseconds))
        return self._won

    def holds(self) -> bool:
        """As the last answer said; `KeptLease` knows for how long that is true."""
        return self._won

    def release(self) -> None:
        """Frees the lease if it is ours, and closes the connection."""
        self._won = False
        with our_errors():
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
        with our_errors():
            found = client.get(lease_key(name))
    finally:
        client.close()
    return found.decode() if isinstance(found, bytes) else None
