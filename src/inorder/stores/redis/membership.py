"""Who takes part, as a sorted set in Redis; the server's clock alone tells who is still there."""

from __future__ import annotations

from inorder import sql
from inorder.ports.membership import Standing
from inorder.stores.redis.client import connect, our_errors

_SCRIPTS = sql.load("inorder.stores.redis", "membership.lua")
MEMBER_SECONDS = 3.0


class RedisMembership:
    """A `Membership` that is known for `MEMBER_SECONDS` after each `beat`."""

    def __init__(self, url: str, *, group: str, instance: str, seconds: float = MEMBER_SECONDS) -> None:
        self._client = connect(url)
        self._key = members_key(group)
        self._instance = instance
        self._milliseconds = int(seconds * 1000)
        self._beat = self._client.register_script(_SCRIPTS["beat"])

    def beat(self) -> Standing:
        """One script on the server: forgets who is gone, keeps this one, counts."""
        with our_errors():
            members, rank = self._beat(keys=[self._key], args=[self._instance, self._milliseconds])
        return Standing(int(members), int(rank))

    def leave(self) -> None:
        """Removes this one, and closes the connection."""
        with our_errors():
            self._client.zrem(self._key, self._instance)
            self._client.close()


def members_key(group: str) -> str:
    """The key of a relay group's members."""
    return f"inorder:{group}:members"
