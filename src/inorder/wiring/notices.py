"""Telling readers how far the store is, and hearing it, from the settings."""

from __future__ import annotations

import time

from inorder.journal.reading.waiting import StoreWait
from inorder.kafka.offset_announcer import OffsetAnnouncers
from inorder.kafka.replicated_offsets import ReplicatedOffsets
from inorder.ports.journal_store import EventualJournal
from inorder.settings import Settings
from inorder.stores.journal_opening import JournalStore


def announcers(settings: Settings, store: JournalStore) -> OffsetAnnouncers | None:
    """What replicators of this store announce with; None where nothing is to be announced."""
    name = store.identity() if settings.journal.replicated_topic else None
    if name is None:
        return None
    return OffsetAnnouncers.of(settings.kafka.properties, settings.journal.replicated_topic, name)


def replicated_offsets(settings: Settings, store: JournalStore) -> ReplicatedOffsets | None:
    """What readers of this store listen with; None where they do not wait. Nothing connects yet."""
    if not settings.journal.wait_for_store_ms:
        return None
    return ReplicatedOffsets(settings.kafka.properties, settings.journal.replicated_topic, store.identity)


def store_wait(settings: Settings, store: EventualJournal, notices: ReplicatedOffsets | None) -> StoreWait | None:
    """How readers wait for a store."""
    if notices is None:
        return None
    return StoreWait(store, notices, time.monotonic, seconds=settings.journal.wait_for_store_ms / 1000)
