"""A lease with a time to live, extended beside the work and given up in time.

The loop of a shard checks often whether it leads, and must not wait for a server each time. So a thread extends the
lease while it is held, and the loop is answered from memory. The thread records only when the last successful request
was sent (`LeaseClock`); if it cannot extend the lease, nothing happens but that the clock runs out.

            acquire: won                        clock ran out, or refused
    waits ───────────────▶ held, extended ───────────────────────────────▶ lost ──────▶ waits
      ▲                       │                                            (acquire: False)
      └───────── release ─────┘

What is authoritative: the server decides who holds the lease. This module only decides when to stop relying on it.

Invariants

1. `acquire` returns False to an owner before its lease expires at the server, whether requests fail, hang or are
   answered late.
2. An owner that lost the lease gets False once before it may win again: its loop has to drop what it had in hand, even
   if no other instance wanted the lease.
3. One thread at a time sends requests: the loop while it waits, the keeper while the lease is held.

What if …

| what                                  | then                                                                         |
|---|---|
| the server is down or unreachable     | extensions are repeated, more often than usual; then invariant 1             |
| the server hangs                      | the keeper waits in its request; the loop gets False in time; this instance  |
|                                       | does not compete until the request has ended                                 |
| the process is paused                 | it wakes up with its clock run out: invariant 2                              |
| the lease was deleted, another has it | the next extension is refused                                                |
| the answer to an extension was lost   | the server keeps the lease for longer than we assume, which is harmless      |
| release finds the server hanging      | `TransientError`; the lease expires by itself                                |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Protocol

from inorder.model.errors import InorderError, TransientError

log = logging.getLogger("inorder.relay")

_NEVER = float("-inf")


class KeptLease:
    """A `Lease` over one that lives for `times.lifetime` after each `acquire`."""

    def __init__(self, lease: Lease, times: LeaseTimes, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease = lease
        self._times = times
        self._now = clock
        self._hold = LeaseClock(times)
        self._is_leading = False
        self._tried_at = _NEVER
        self._keeper: Thread | None = None
        self._ended = Event()
        self._failure: InorderError | None = None

    def holds(self) -> bool:
        """Whether the lease is ours at the moment, from memory; thread-safe."""
        return self._hold.leads(self._now())

    def acquire(self) -> bool:
        """Answers from memory while the lease is held; otherwise tries to win it, once in `times.race`."""
        if self._is_leading:
            self._is_leading = self.holds()
            return self._is_leading
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return self._race()

    def release(self) -> None:
        self._is_leading = False
        self._hold = self._hold.lost()
        self._tried_at = _NEVER
        if not self._is_keeper_gone(self._times.lifetime):
            raise TransientError(
                "Releasing the lease timed out: its server does not answer. The lease expires by itself."
            )
        self._lease.release()

    def arbitrates(self) -> bool:
        return self._lease.arbitrates()

    def _race(self) -> bool:
        if self._now() < self._tried_at + self._times.race or not self._is_keeper_gone(0):
            return False
        sent_at = self._tried_at = self._now()
        if not self._lease.acquire():
            return False
        self._hold = self._hold.won(sent_at)
        self._is_leading = self.holds()
        if self._is_leading:
            self._ended.clear()
            self._keeper = Thread(target=self._keep, name="inorder-lease", daemon=True)
            self._keeper.start()
        return self._is_leading

    def _is_keeper_gone(self, seconds: float) -> bool:
        keeper = self._keeper
        if keeper is None:
            return True
        self._ended.set()
        keeper.join(seconds)
        if not keeper.is_alive():
            self._keeper = None
        return self._keeper is None

    def _keep(self) -> None:
        """Extends the lease until it is lost or released."""
        rest = self._times.race
        while not self._ended.wait(rest) and self.holds():
            rest = self._extend()

    def _extend(self) -> float:
        """Sends one extension; returns how long to wait before the next."""
        sent_at = self._now()
        try:
            won = self._lease.acquire()
        except TransientError as error:
            left = round(self._hold.ends_at - self._now(), 3)
            log.warning("relay.lease_not_extended", extra={"seconds_left": left, "error": str(error)})
            return self._times.retry
        except InorderError as error:
            self._failure, won = error, False
        # A late answer means lost: the loop must learn of it, and another instance may have had the lease meanwhile.
        self._hold = self._hold.won(sent_at) if won and self.holds() else self._hold.lost()
        return self._times.race


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times of a lease, in seconds."""

    lifetime: float = 3.0
    """How long the server keeps the lease after each extension."""
    race: float = 1.0
    """Between extensions, and between attempts to win it."""
    margin: float = 0.5
    """How long before the server's expiry ours comes: time for a loop to notice, and for clocks to differ."""

    @property
    def retry(self) -> float:
        """Before the next extension after a failed one; sooner than usual, because time runs out."""
        return min(self.race, self.margin) / 5


@dataclass(frozen=True, slots=True)
class LeaseClock:
    """Until when an owner may work, by its own clock, which ends before the lease expires at the server.

    The server counts from when it executed a request, which was after the request was sent. So an owner that counts
    from before the sending, and stops a margin early, has stopped before any other instance can win the lease, however
    long an answer took and whether or not it came.
    """

    times: LeaseTimes
    sent_at: float = _NEVER
    """When the last request that won or extended the lease was about to be sent."""

    @property
    def ends_at(self) -> float:
        """The moment from which the owner must not work."""
        return self.sent_at + self.times.lifetime - self.times.margin

    def leads(self, now: float) -> bool:
        """Whether the owner may work at the moment."""
        return now < self.ends_at

    def won(self, sent_at: float) -> LeaseClock:
        """After a granted request; answers may arrive out of order."""
        return replace(self, sent_at=max(sent_at, self.sent_at))

    def lost(self) -> LeaseClock:
        """After a refused request, or after release."""
        return replace(self, sent_at=_NEVER)


class NoLease:
    """Leadership `none`: the operator guarantees that this is the only instance."""

    def acquire(self) -> bool:
        return True

    def holds(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def arbitrates(self) -> bool:
        """There should be no other instance, so being fenced is an error."""
        return False


class Lease(Protocol):
    """A claim on a shard that keeps two instances from fencing each other.

    It decides nothing: the broker's fence does. So a lease may be late, lost or held twice without harm.
    """

    def acquire(self) -> bool:
        """Wins the claim or extends it. Called about once a second by the owner and by those who wait.

        After False the caller stops its work before it calls again.
        """

    def holds(self) -> bool:
        """Whether the claim may still be ours, from memory; called many times a second while records are being sent.

        After False the caller sends nothing more, where no fence would stop it.
        """

    def release(self) -> None:
        """Gives the claim up so that the next instance need not wait for it to expire."""

    def arbitrates(self) -> bool:
        """Whether a fenced owner may wait for its turn; if not it must stop, or two would fence each other forever."""
