"""What inorder tells about itself: logs."""

from inorder.observe.logs import configure_logs

__all__ = ["configure_logs"]
