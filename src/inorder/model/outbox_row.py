"""Split from inorder.relay.stores.ports."""

from __future__ import annotations

from typing import NamedTuple


class OutboxRow(NamedTuple):
    """One row, ready to be sent; a named tuple because a relay makes a hundred thousand of them a second."""

    id: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None
    flaw: str = ""
    """Why this row cannot be sent, whatever the broker says: somebody else wrote it wrongly."""
    partition_key: bytes | None = None
    """What decides the partition instead of the key, where the layout keeps such a thing."""

    @property
    def routed_by(self) -> bytes | None:
        """What the partition is chosen by, where none is given."""
        return self.key if self.partition_key is None else self.partition_key
