"""Logs, the health endpoint, and metrics of the relay."""

from inorder.observe.logs import configure_logs

__all__ = ["configure_logs"]
