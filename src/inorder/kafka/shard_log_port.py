"""The Kafka side of one shard: where its batches go.

Two kinds keep this contract. The **fenced** one (delivery `exactly-once`) publishes a batch in a transaction, all or
nothing, with a marker that the next owner finds. The **unfenced** one (`at-least-once`) has no marker to return, stops
no other owner, and may deliver part of a batch. Both keep the order of each key: while a row is not delivered, no later
row of its key is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from inorder.model.outbox_row import OutboxRow


class ShardLog(Protocol):
    """Publishes the batches of one shard, one after the other."""

    def take_over(self) -> bytes | None:
        """Makes this the owner; returns the last committed marker, or None where there is none.

        Called once before the first `publish` and again after `FencedError`, `UnknownOutcomeError` or `close`. A fenced
        log stops every earlier owner and settles its open transaction first. Raises `UnreachableError` when it needs
        the broker and cannot reach it in time.
        """

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        """Sends the rows in order, and the marker with them where the log keeps one; returns once all are acknowledged.

        `TransientError` or `RejectedError`: the rows in its `delivered_ids` arrived and must not be sent again; the
        others did not, or it cannot be known, and must be published again, in order, before any later row of their
        keys. A fenced log has delivered none of them then. `TopicUnavailableError` is such an error about one topic,
        raised within a few seconds: rows of others can be published at once, its own when it is back. `FencedError`:
        another owner took over, nothing is visible. `UnknownOutcomeError`: only `take_over` tells.
        """

    def close(self) -> None:
        """Drops the producer, which sends nothing more; may be called twice, and `take_over` may follow."""
