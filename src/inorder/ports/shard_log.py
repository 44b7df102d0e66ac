"""The Kafka side of one shard: a fence, transactions and the marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from inorder.ports.outbox_store import OutboxRow


class ShardLog(Protocol):
    """Publishes batches of one shard, each in a transaction that also writes the shard's marker record."""

    def take_over(self) -> bytes | None:
        """Fences every earlier owner, settles its open transaction and returns the last committed marker.

        Called once before the first `publish` and again after `FencedError` or `UnknownOutcomeError`. Raises
        `UnreachableError` when the broker cannot be reached in time.
        """

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        """Sends the rows in order and the marker in one transaction, and returns once it is committed.

        `TransientError` or `RejectedError`: the transaction was aborted, nothing is visible, the rows may go again.
        `FencedError`: another owner took over, nothing is visible. `UnknownOutcomeError`: only `take_over` tells.
        """

    def close(self) -> None:
        """Drops the producer; may be called twice."""
