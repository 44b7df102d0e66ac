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
from threading import Event, Thread

from inorder.leadership.hold import LeaseClock, LeaseTimes
from inorder.model.errors import InorderError, TransientError
from inorder.ports.lease import Lease

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
