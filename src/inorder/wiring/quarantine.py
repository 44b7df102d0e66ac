"""Records of journals in quarantine, as operators see them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from inorder.journal.replication.quarantine import Quarantine, Quarantined
from inorder.journal.replication.releasing import release
from inorder.model.journal import Key
from inorder.settings import Settings
from inorder.stores.journal_opening import JournalReplicas


def list_quarantine(settings: Settings, topic: str | None = None, id: str | None = None) -> Sequence[Quarantined]:
    """What is in quarantine, in the order of topics, journals and offsets."""
    with _store(settings) as store:
        return store.quarantined(topic, id)


def release_journal(settings: Settings, key: Key) -> int:
    """Applies all records of a parked journal in their order; returns how many. Raises `DamagedRecordError`."""
    with _store(settings) as store:
        return release(store, key, settings.journal.segment_size)


def discard_quarantined(settings: Settings, key: Key, offset: int | None = None) -> int:
    """Gives up the records of a parked journal, or one of them; returns how many."""
    with _store(settings) as store:
        return store.discard(key, offset)


@contextmanager
def _store(settings: Settings) -> Iterator[Quarantine]:
    with closing(JournalReplicas(settings.journal.store_url(settings.database))()) as store:
        yield store
