"""How long a lease is ours by our own clock, which must end before it ends at the server."""

from __future__ import annotations

from dataclasses import dataclass, replace

_NEVER = float("-inf")


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
