"""Split from inorder.relay.batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """All in seconds."""

    poll: float = 0.5
    """Between looks at the clock's duties while publishers are asked to wake us."""
    asleep: float = 10.0
    """Between looks at the table meanwhile, in case that nobody woke us."""
    brief_poll: float = 0.004
    """Before the next look while they cannot be asked, because one of them is about to commit. Doubles each time."""
    longest_brief_poll: float = 0.05
    """Where that doubling ends: a transaction that stays open is looked for so often."""
    lease: float = 1.0
    """Between tries to win the lease, and before the next one after being fenced."""
    check: float = 1.0
    """Between looks whether this instance leads."""
    parked: float = 1.0
    """Between looks whether somebody released a parked key, while there is one."""
    topic: float = 2.0
    """Before a topic that was deleted or closed to us is tried again."""
    switch: float = 0.25
    """Before one is tried again that is being switched: it will be open in a moment."""
    back_off: float = 0.5
    """After a failure of the environment, or a record that was refused."""
    blocked: float = 10.0
    """After a record has used up its attempts: somebody has to act, so trying more often helps nobody."""
    queue: float = 30.0
    """For a batch in hand to get through; after that the term is given up and the rows are claimed again."""
    meter: float = 5.0
    """Between readings of the meter."""

    def brief(self, rests: int) -> float:
        """The wait before the next look, after so many that found nothing."""
        return min(self.brief_poll * float(2 ** min(rests, 20)), self.longest_brief_poll)
