"""A lease with a time to live, kept alive beside the work and given up in time.

The loop of a shard asks often whether it leads, and must not wait for a server each time. So a thread extends the lease
while it is held, and the loop is answered from memory. What the thread notes is when the last successful request was
sent, nothing more (`hold.py`); that it cannot extend the lease is no event, the clock just runs out.

            acquire: won                         clock ran out, or a no
    waits ───────────────▶ held, extended ───────────────────────────────▶ must tell ──▶ waits
      ▲                       │                                            (acquire: no)
      └───────── release ─────┘

What is authoritative: the server says whose the lease is. Here it is only decided when to stop believing so.

Invariants

1. An owner is told no before its lease ends at the server, whether requests fail, hang or are answered late.
2. Whoever led and lost the lease hears so once before it may win again: its loop has to drop what it had in hand, even
   where nobody else wanted the lease.
3. The server is asked by one thread at a time: by the loop while it waits, by the keeper while the lease is held.

What if …

| what                                  | then                                                                         |
|---|---|
| the server is down or unreachable     | extensions are tried again, more often than usual; then invariant 1          |
| the server hangs                      | the keeper waits in its request; the loop is told no in time; nobody races   |
|                                       | until the request has ended                                                  |
| the process is paused                 | it wakes up with its clock run out: invariant 2                              |
| the lease was deleted, another has it | the next extension is answered with no                                       |
| the answer to an extension was lost   | the server keeps the lease for longer than we believe, which harms nobody    |
| release finds the server hanging      | `TransientError`; the lease runs out by itself                               |
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
        """Whether the lease is ours at the moment, from memory; any thread may ask."""
        return self._hold.leads(self._now())

    def acquire(self) -> bool:
        """Answers from memory while the lease is held; else tries to win it, once in `times.race`."""
        if self._is_leading:
            self._is_leading = self.holds()
            return self._is_leading
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return self._race()

    def release(self) -> None:
        """Frees the lease for whoever waits."""
        self._is_leading = False
        self._hold = self._hold.lost()
        self._tried_at = _NEVER
        if not self._is_keeper_gone(self._times.lifetime):
            raise TransientError("The lease was not released: its server does not answer. It runs out by itself.")
        self._lease.release()

    def arbitrates(self) -> bool:
        """As the lease does."""
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
        """Extends the lease until it is lost or given up."""
        rest = self._times.race
        while not self._ended.wait(rest) and self.holds():
            rest = self._extended()

    def _extended(self) -> float:
        """One extension; how long to rest afterwards."""
        sent_at = self._now()
        try:
            won = self._lease.acquire()
        except TransientError as error:
            log.warning("relay.lease_not_extended: %s", error, extra={"seconds_left": self._left()})
            return self._times.retry
        except InorderError as error:
            self._failure, won = error, False
        # Too late is lost: the loop must hear of it, and somebody else may have had the lease meanwhile.
        self._hold = self._hold.won(sent_at) if won and self.holds() else self._hold.lost()
        return self._times.race

    def _left(self) -> float:
        return round(self._hold.ends_at - self._now(), 3)


# How long a lease is ours by our own clock, which must end before it ends at the server.


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """All in seconds."""

    lifetime: float = 3.0
    """How long the server keeps the lease after each extension."""
    race: float = 1.0
    """Between extensions, and between tries to win it."""
    margin: float = 0.5
    """How long before the server's end ours comes: the time that a loop has for noticing, and clocks for differing."""

    @property
    def retry(self) -> float:
        """Before the next try after one that failed; sooner than usual, because time runs out."""
        return min(self.race, self.margin) / 5


@dataclass(frozen=True, slots=True)
class LeaseClock:
    """Until when an owner may work.

    The server counts from when it carried a request out, which was after the request was sent. So whoever counts
    from before the sending, and stops a margin early, has stopped before anybody else can win the lease, however long
    an answer took and whether or not it came.
    """

    times: LeaseTimes
    sent_at: float = _NEVER
    """When the last request that won or extended the lease was about to be sent."""

    @property
    def ends_at(self) -> float:
        """The moment from which the owner must not work any more."""
        return self.sent_at + self.times.lifetime - self.times.margin

    def leads(self, now: float) -> bool:
        """Whether the owner may work at the moment."""
        return now < self.ends_at

    def won(self, sent_at: float) -> LeaseClock:
        """After a request that was answered with yes; answers may come out of turn."""
        return replace(self, sent_at=max(sent_at, self.sent_at))

    def lost(self) -> LeaseClock:
        """After a no, or after it was given up."""
        return replace(self, sent_at=_NEVER)


# Leadership `none`: nobody is asked.


class NoLease:
    """Leadership `none`: this instance is told that it is the only one."""

    def acquire(self) -> bool:
        """Always."""
        return True

    def holds(self) -> bool:
        """Always."""
        return True

    def release(self) -> None:
        """Nothing to free."""

    def arbitrates(self) -> bool:
        """Nobody else should be there, so being fenced is an error."""
        return False


# Leadership as a hint: who should try to own a shard.


class Lease(Protocol):
    """A claim on a shard that spares two instances the trouble of fencing each other.

    It never decides anything: the broker's fence does. So a lease may be late, lost or held twice without harm.
    """

    def acquire(self) -> bool:
        """Wins the claim or extends it. Called about once a second by the owner and by those who wait.

        Whoever is told no stops its work before it asks again.
        """

    def holds(self) -> bool:
        """Whether the claim may still be ours, from memory: asked many times a second while records are under way.

        Whoever is told no sends nothing more, where no fence would stop it.
        """

    def release(self) -> None:
        """Gives the claim up so that the next instance need not wait for it to run out."""

    def arbitrates(self) -> bool:
        """Whether a fenced owner may wait for its turn; if not it must stop, or two would fence each other for ever."""
