"""Fair share: which shards an instance may hold, where a lease for each shard is all that there is.

The leases say who holds a shard; nobody says who should. So every instance beats in a membership, which tells it how
many are alive and how many come before it. From these two numbers each reckons its own share, and the shares of all
add up to the shards. An instance that holds more gives the excess up; one that holds less tries what is free.

`leadership/__init__.py` says what is authoritative and what happens when something fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Event, Lock
from typing import Protocol

from inorder.relay.leadership.lease import Lease

BEAT_SECONDS = 1.0
_NEVER = float("-inf")


def fair_share(shards: int, members: int, rank: int = 0) -> int:
    """How many shards the instance with this rank should hold; the first ranks hold the odd ones.

    Nobody's share grows when one joins or falls when one leaves, whatever ranks change by it. So no more shards move
    than the newcomer takes or the leaver had.

    >>> [fair_share(4, 3, rank) for rank in range(3)]
    [2, 1, 1]
    """
    return -((rank - shards) // members)


def excess(held: Collection[int], share: int) -> frozenset[int]:
    """What to give up of what is held: the highest shards."""
    return frozenset(sorted(held)[share:])


class Share:
    """What one instance may hold; asked by the loops of all its shards, each on a thread of its own."""

    def __init__(
        self,
        shards: int,
        membership: Membership,
        *,
        beat_seconds: float = BEAT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shards = shards
        self._membership = membership
        self._beat_seconds = beat_seconds
        self._clock = clock
        self._lock = Lock()
        self._standing = MemberRank()
        self._beat_at = _NEVER
        self._held: set[int] = set()
        self._present: set[int] = set()

    @property
    def held(self) -> frozenset[int]:
        """The shards held or being tried."""
        with self._lock:
            return frozenset(self._held)

    def grants(self, shard: int) -> bool:
        """Whether the shard may be held; counts it as held from then on, until it is given `back`."""
        with self._lock:
            self._present.add(shard)
            self._beat_if_due()
            share = fair_share(self._shards, self._standing.members, self._standing.rank)
            if shard not in self._held and len(self._held) < share:
                self._held.add(shard)
            return shard in self._held - excess(self._held, share)

    def back(self, shard: int) -> None:
        """The shard is not held: it was tried in vain, lost or given up."""
        with self._lock:
            self._held.discard(shard)

    def leave(self, shard: int) -> None:
        """The shard's loop has ended; with the last one this instance leaves. May be called twice."""
        with self._lock:
            self._held.discard(shard)
            self._present.discard(shard)
            if not self._present and self._beat_at > _NEVER:
                self._membership.leave()
                self._beat_at = _NEVER

    def _beat_if_due(self) -> None:
        now = self._clock()
        if now - self._beat_at >= self._beat_seconds:
            self._standing = self._membership.beat()
            self._beat_at = now


class SharedLease:
    """A `Lease` on a shard that is asked for only while the share allows, and given up when it does not."""

    def __init__(self, lease: Lease, share: Share, shard: int) -> None:
        self._lease = lease
        self._share = share
        self._shard = shard
        self._notice = HandOver()

    def acquire(self) -> bool:
        """Wins or extends the lease where this instance may hold the shard."""
        if self._share.grants(self._shard):
            won = self._win()
            self._notice.tell(won)
            return won
        self._notice.tell(False)
        if self._notice.is_idle:
            self._give_up()
        else:
            self._lease.acquire()  # extended, so that nobody begins while our loop stops
        return False

    def holds(self) -> bool:
        """As the lease does; a shard that is to be given up is held until its loop has stopped."""
        return self._lease.holds()

    def release(self) -> None:
        """Gives the shard up, and leaves the group with the last one."""
        self._notice.stopped()
        try:
            self._lease.release()
        finally:
            self._share.leave(self._shard)

    def arbitrates(self) -> bool:
        """As the lease does."""
        return self._lease.arbitrates()

    def _win(self) -> bool:
        won = self._lease.acquire()
        if not won:
            self._share.back(self._shard)
        return won

    def _give_up(self) -> None:
        if self._shard in self._share.held:
            self._lease.release()
            self._share.back(self._shard)


# Notice: how a shard goes from one instance to another without both working on it.


class HandOver:
    """Whether a shard's loop still works, judged by what it was told.

    A loop that is told no stops before it asks again. So the first no gives notice, and the next question shows that
    the loop has stopped: then the shard may go.
    """

    def __init__(self) -> None:
        self._idle = Event()
        self._idle.set()
        self._is_given = False

    @property
    def is_idle(self) -> bool:
        """Whether nobody works on the shard here."""
        return self._idle.is_set()

    def tell(self, may_work: bool) -> None:
        """Notes an answer that the loop is about to get."""
        if may_work:
            self._is_given = False
            self._idle.clear()
        elif self._is_given:
            self.stopped()
        else:
            self._is_given = not self.is_idle

    def stopped(self) -> None:
        """Notes that the loop has ended or stopped."""
        self._is_given = False
        self._idle.set()

    def wait(self, seconds: float) -> bool:
        """Waits until nobody works, and says whether that is so."""
        return self._idle.wait(max(seconds, 0))


# How many instances are there: what a fair share of the shards is reckoned from.


@dataclass(frozen=True, slots=True)
class MemberRank:
    """One instance among those alive."""

    members: int = 1
    """How many are alive, this one with them."""
    rank: int = 0
    """How many of them come before this one. Each has a rank of its own once all know each other."""


class Membership(Protocol):
    """One instance's place in a relay group. A hint like the lease: it may be late or wrong without harm."""

    def beat(self) -> MemberRank:
        """Keeps this instance known for a while and tells who else is; called about once a second, may block."""

    def leave(self) -> None:
        """Is forgotten at once. May be called twice; the next `beat` comes back."""
