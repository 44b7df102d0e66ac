"""Fair share: which shards an instance may hold, if there is nothing but a lease for each shard.

The leases say who holds a shard, not who should. So every instance sends heartbeats to a membership, which returns how
many are alive and its rank among them. From these two numbers each computes its own share, and the shares of all add
up to the shards. An instance that holds more gives up the excess; one that holds less tries what is free.

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

    No share grows when an instance joins or shrinks when one leaves, whatever ranks change by it. So no more shards
    move than the new instance takes or the leaving one had.

    >>> [fair_share(4, 3, rank) for rank in range(3)]
    [2, 1, 1]
    """
    return -((rank - shards) // members)


def excess(held: Collection[int], share: int) -> frozenset[int]:
    """Which of the held shards to give up: the highest."""
    return frozenset(sorted(held)[share:])


class Share:
    """What one instance may hold; thread-safe, because the loop of each shard has its own thread."""

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
        self._rank = MemberRank()
        self._beat_at = _NEVER
        self._held: set[int] = set()
        self._present: set[int] = set()

    @property
    def held(self) -> frozenset[int]:
        """The shards held or being tried."""
        with self._lock:
            return frozenset(self._held)

    def grants(self, shard: int) -> bool:
        """Whether the shard may be held; if so it counts as held until it is returned with `give_back`."""
        with self._lock:
            self._present.add(shard)
            self._beat_if_due()
            share = fair_share(self._shards, self._rank.members, self._rank.rank)
            if shard not in self._held and len(self._held) < share:
                self._held.add(shard)
            return shard in self._held - excess(self._held, share)

    def give_back(self, shard: int) -> None:
        """The shard is not held: it was not won, lost or given up."""
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
            self._rank = self._membership.beat()
            self._beat_at = now


class SharedLease:
    """A `Lease` on a shard that is acquired only while the share allows it, and given up when it does not."""

    def __init__(self, lease: Lease, share: Share, shard: int) -> None:
        self._lease = lease
        self._share = share
        self._shard = shard
        self._hand_over = HandOver()

    def acquire(self) -> bool:
        """Wins or extends the lease where this instance may hold the shard."""
        if self._share.grants(self._shard):
            won = self._win()
            self._hand_over.record(won)
            return won
        self._hand_over.record(False)
        if self._hand_over.is_idle:
            self._give_up()
        else:
            self._lease.acquire()  # extended, so that no other loop begins while ours stops
        return False

    def holds(self) -> bool:
        """A shard that is to be given up is held until its loop has stopped."""
        return self._lease.holds()

    def release(self) -> None:
        """Gives the shard up, and leaves the group with the last one."""
        self._hand_over.stopped()
        try:
            self._lease.release()
        finally:
            self._share.leave(self._shard)

    def arbitrates(self) -> bool:
        return self._lease.arbitrates()

    def _win(self) -> bool:
        won = self._lease.acquire()
        if not won:
            self._share.give_back(self._shard)
        return won

    def _give_up(self) -> None:
        if self._shard in self._share.held:
            self._lease.release()
            self._share.give_back(self._shard)


class HandOver:
    """How a shard moves to another instance without both working on it: whether its loop here still works.

    A loop that gets False from `acquire` stops before it calls again. So the first False gives notice, and the next
    call shows that the loop has stopped: then the shard may move.
    """

    def __init__(self) -> None:
        self._idle = Event()
        self._idle.set()
        self._is_given = False

    @property
    def is_idle(self) -> bool:
        """Whether no loop works on the shard here."""
        return self._idle.is_set()

    def record(self, may_work: bool) -> None:
        """Records an answer that the loop is about to get."""
        if may_work:
            self._is_given = False
            self._idle.clear()
        elif self._is_given:
            self.stopped()
        else:
            self._is_given = not self.is_idle

    def stopped(self) -> None:
        """Records that the loop has ended or stopped."""
        self._is_given = False
        self._idle.set()

    def wait(self, seconds: float) -> bool:
        """Waits until no loop works; returns whether that is so."""
        return self._idle.wait(max(seconds, 0))


@dataclass(frozen=True, slots=True)
class MemberRank:
    """One instance among those alive."""

    members: int = 1
    """How many are alive, including this one."""
    rank: int = 0
    """How many of them come before this one. All ranks differ once all instances know each other."""


class Membership(Protocol):
    """One instance's membership of a relay group. A hint like the lease: it may be late or wrong without harm."""

    def beat(self) -> MemberRank:
        """Counts this instance as alive for a while and returns its rank; called about once a second, may block."""

    def leave(self) -> None:
        """Ends the membership at once. May be called twice; the next `beat` joins again."""
