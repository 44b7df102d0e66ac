"""inorder: events from your transaction, through Kafka, to the tables that need them, once and in order.

The names below are the public ones; each is loaded when it is first used, so that `import inorder` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inorder import spark
    from inorder.journal.service import AsyncJournals, Journals
    from inorder.model.errors import (
        ConfigurationError,
        InorderError,
        PermanentError,
        PublishError,
        TransientError,
        ValidationError,
    )
    from inorder.model.journal import Event, Json, Key, Snapshot, SnapshotCriteria
    from inorder.model.message import Limits, Message
    from inorder.outbox import Outbox
    from inorder.pipeline.checks import Publisher, message_checks
    from inorder.relay.service import Relay
    from inorder.settings import Settings

_HOMES = {
    "AsyncJournals": "inorder.journal.service",
    "ConfigurationError": "inorder.model.errors",
    "Event": "inorder.model.journal",
    "InorderError": "inorder.model.errors",
    "Journals": "inorder.journal.service",
    "Json": "inorder.model.journal",
    "Key": "inorder.model.journal",
    "Limits": "inorder.model.message",
    "Message": "inorder.model.message",
    "Outbox": "inorder.outbox",
    "PermanentError": "inorder.model.errors",
    "PublishError": "inorder.model.errors",
    "Publisher": "inorder.pipeline.checks",
    "Relay": "inorder.relay.service",
    "Settings": "inorder.settings",
    "Snapshot": "inorder.model.journal",
    "SnapshotCriteria": "inorder.model.journal",
    "TransientError": "inorder.model.errors",
    "ValidationError": "inorder.model.errors",
    "message_checks": "inorder.pipeline.checks",
}
_ROOMS = ("spark",)
"""Whole modules that are public."""

__all__ = [
    "AsyncJournals",
    "ConfigurationError",
    "Event",
    "InorderError",
    "Journals",
    "Json",
    "Key",
    "Limits",
    "Message",
    "Outbox",
    "PermanentError",
    "PublishError",
    "Publisher",
    "Relay",
    "Settings",
    "Snapshot",
    "SnapshotCriteria",
    "TransientError",
    "ValidationError",
    "message_checks",
    "spark",
]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"inorder.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'inorder' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
