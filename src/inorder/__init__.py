"""inorder: events from your transaction, through Kafka, to the tables that need them, once and in order.

The names below are the public ones; each is loaded when it is first used, so that `import inorder` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inorder import spark, testing
    from inorder.journal.asynchronous import AsyncJournalClient
    from inorder.journal.client import Journal, JournalClient
    from inorder.journal.entity import Entity, Updated
    from inorder.journal.event_types import EventTypes
    from inorder.journal.projection import Appended, Deleted, Projection, Purged
    from inorder.journal.service import AsyncJournals, Journals
    from inorder.journal.snapshots import Recovery
    from inorder.journal.subscription import Subscribed, Subscription
    from inorder.model.errors import (
        ConfigurationError,
        DamagedRecordError,
        DeadlineError,
        EventTypeError,
        GuaranteeError,
        InorderError,
        JournalChangedError,
        OtherTopicError,
        PermanentError,
        PublishError,
        RecordsLostError,
        RejectedError,
        SeqNrConflictError,
        ShreddedError,
        SnapshotTooOldError,
        TopicUnavailableError,
        TransientError,
        UnknownOutcomeError,
        UnreachableError,
        UpdateConflictError,
        ValidationError,
    )
    from inorder.model.journal import (
        Event,
        EventRecord,
        Json,
        Key,
        PartitionOffset,
        Payload,
        SeqNr,
        Snapshot,
        SnapshotCriteria,
    )
    from inorder.model.message import Limits, Message
    from inorder.outbox import Outbox
    from inorder.pipeline.checks import Publisher, message_checks
    from inorder.relay.service import Relay
    from inorder.settings import Settings

_HOMES = {
    "Appended": "inorder.journal.projection",
    "AsyncJournalClient": "inorder.journal.asynchronous",
    "AsyncJournals": "inorder.journal.service",
    "ConfigurationError": "inorder.model.errors",
    "DamagedRecordError": "inorder.model.errors",
    "DeadlineError": "inorder.model.errors",
    "Deleted": "inorder.journal.projection",
    "Entity": "inorder.journal.entity",
    "Event": "inorder.model.journal",
    "EventRecord": "inorder.model.journal",
    "EventTypeError": "inorder.model.errors",
    "EventTypes": "inorder.journal.event_types",
    "GuaranteeError": "inorder.model.errors",
    "InorderError": "inorder.model.errors",
    "Journal": "inorder.journal.client",
    "JournalChangedError": "inorder.model.errors",
    "JournalClient": "inorder.journal.client",
    "Journals": "inorder.journal.service",
    "Json": "inorder.model.journal",
    "Key": "inorder.model.journal",
    "Limits": "inorder.model.message",
    "Message": "inorder.model.message",
    "OtherTopicError": "inorder.model.errors",
    "Outbox": "inorder.outbox",
    "PartitionOffset": "inorder.model.journal",
    "Payload": "inorder.model.journal",
    "PermanentError": "inorder.model.errors",
    "Projection": "inorder.journal.projection",
    "PublishError": "inorder.model.errors",
    "Publisher": "inorder.pipeline.checks",
    "Purged": "inorder.journal.projection",
    "RecordsLostError": "inorder.model.errors",
    "Recovery": "inorder.journal.snapshots",
    "RejectedError": "inorder.model.errors",
    "Relay": "inorder.relay.service",
    "SeqNr": "inorder.model.journal",
    "SeqNrConflictError": "inorder.model.errors",
    "Settings": "inorder.settings",
    "ShreddedError": "inorder.model.errors",
    "Snapshot": "inorder.model.journal",
    "SnapshotCriteria": "inorder.model.journal",
    "SnapshotTooOldError": "inorder.model.errors",
    "Subscribed": "inorder.journal.subscription",
    "Subscription": "inorder.journal.subscription",
    "TopicUnavailableError": "inorder.model.errors",
    "TransientError": "inorder.model.errors",
    "UnknownOutcomeError": "inorder.model.errors",
    "UnreachableError": "inorder.model.errors",
    "UpdateConflictError": "inorder.model.errors",
    "Updated": "inorder.journal.entity",
    "ValidationError": "inorder.model.errors",
    "message_checks": "inorder.pipeline.checks",
}
_ROOMS = ("spark", "testing")
"""Whole modules that are public."""

__all__ = [
    "Appended",
    "AsyncJournalClient",
    "AsyncJournals",
    "ConfigurationError",
    "DamagedRecordError",
    "DeadlineError",
    "Deleted",
    "Entity",
    "Event",
    "EventRecord",
    "EventTypeError",
    "EventTypes",
    "GuaranteeError",
    "InorderError",
    "Journal",
    "JournalChangedError",
    "JournalClient",
    "Journals",
    "Json",
    "Key",
    "Limits",
    "Message",
    "OtherTopicError",
    "Outbox",
    "PartitionOffset",
    "Payload",
    "PermanentError",
    "Projection",
    "PublishError",
    "Publisher",
    "Purged",
    "RecordsLostError",
    "Recovery",
    "RejectedError",
    "Relay",
    "SeqNr",
    "SeqNrConflictError",
    "Settings",
    "ShreddedError",
    "Snapshot",
    "SnapshotCriteria",
    "SnapshotTooOldError",
    "Subscribed",
    "Subscription",
    "TopicUnavailableError",
    "TransientError",
    "UnknownOutcomeError",
    "UnreachableError",
    "UpdateConflictError",
    "Updated",
    "ValidationError",
    "message_checks",
    "spark",
    "testing",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"inorder.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'inorder' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
