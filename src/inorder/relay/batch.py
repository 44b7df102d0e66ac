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
