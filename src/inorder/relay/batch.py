"""Rows that a relay publishes together."""

from __future__ import annotations

from dataclasses import dataclass

from inorder.ports.outbox_store import OutboxRow


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
