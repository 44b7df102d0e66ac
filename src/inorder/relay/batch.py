"""Rows that a relay publishes together."""

from __future__ import annotations

from dataclasses import dataclass

from inorder.model.outbox_row import OutboxRow


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to be published together, in id order, and the floor of the scan that read them."""

    rows: list[OutboxRow]
    floor: int = 0
    is_full: bool = False
    """Whether more rows are waiting than were read."""
    others_move: bool = False
    """Whether rows of other shards are being written, for which nobody should wake us."""

    @property
    def ids(self) -> list[int]:
        return [row.id for row in self.rows]


# How many rows to read at once, so that a batch of large rows does not fill the memory.

FIRST_ROWS = 500
BATCH_BYTES = 32 * 1024 * 1024
GROWTH = 4


def next_limit(limit: int, rows: int, total_bytes: int, batch_size: int) -> int:
    """The row limit after a read of `rows` rows and `total_bytes`: grows step by step, never past either bound."""
    if rows == 0:
        return limit
    fitting = BATCH_BYTES * rows // max(total_bytes, 1)
    return max(1, min(batch_size, limit * GROWTH, fitting))


# How long the relay waits, and for what.


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
