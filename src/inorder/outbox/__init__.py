"""What applications call inside their own transaction."""

from inorder.outbox.outbox import Outbox

__all__ = ["Outbox"]
