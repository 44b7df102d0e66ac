"""How many rows to read at once, so that a batch of large rows does not fill the memory."""

from __future__ import annotations

FIRST_ROWS = 500
BATCH_BYTES = 32 * 1024 * 1024
GROWTH = 4


def next_limit(limit: int, rows: int, total_bytes: int, batch_size: int) -> int:
    """The row limit after a read of `rows` rows and `total_bytes`: grows step by step, never past either bound."""
    if rows == 0:
        return limit
    fitting = BATCH_BYTES * rows // max(total_bytes, 1)
    return max(1, min(batch_size, limit * GROWTH, fitting))
