"""Publishing messages in the caller's transaction, and straight to Kafka."""

from inorder.outbox.outbox import Outbox

__all__ = ["Outbox"]
