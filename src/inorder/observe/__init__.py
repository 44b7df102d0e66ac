"""What inorder tells about itself: logs, health and metrics."""

from inorder.observe.logs import configure_logs

__all__ = ["configure_logs"]
