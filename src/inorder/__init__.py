"""inorder: events from your transaction, through Kafka, to the tables that need them, once and in order.

The names below are the public ones; each is loaded when it is first used, so that `import inorder` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inorder.model.errors import (
        ConfigurationError,
        InorderError,
        PermanentError,
        PublishError,
        TransientError,
        ValidationError,
    )
    from inorder.model.message import Limits, Message
    from inorder.outbox import Outbox
    from inorder.settings import Settings
    from inorder.wiring import Publisher, Relay

_HOMES = {
    "ConfigurationError": "inorder.model.errors",
    "InorderError": "inorder.model.errors",
    "Limits": "inorder.model.message",
    "Message": "inorder.model.message",
    "Outbox": "inorder.outbox",
    "PermanentError": "inorder.model.errors",
    "PublishError": "inorder.model.errors",
    "Publisher": "inorder.wiring",
    "Relay": "inorder.wiring",
    "Settings": "inorder.settings",
    "TransientError": "inorder.model.errors",
    "ValidationError": "inorder.model.errors",
}

__all__ = [
    "ConfigurationError",
    "InorderError",
    "Limits",
    "Message",
    "Outbox",
    "PermanentError",
    "PublishError",
    "Publisher",
    "Relay",
    "Settings",
    "TransientError",
    "ValidationError",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'inorder' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
