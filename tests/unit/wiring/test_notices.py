"""Who announces and who listens, from the settings."""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

from inorder.journal.stores.kafka_notices import announcers, replicated_offsets, store_wait
from inorder.journal.stores.opening import JournalStore
from inorder.settings import Settings
from inorder.settings.journal import JournalSettings
from inorder.testing.memory_journal import MemoryJournalStore


class Named(MemoryJournalStore):
    """A store with a name, or without."""

    def __init__(self, name: str | None) -> None:
        super().__init__()
        self._name = name

    def identity(self) -> str | None:
        return self._name


def store(name: str | None = "9f") -> JournalStore:
    return cast("JournalStore", Named(name))


def section(**journal: Any) -> JournalSettings:
    return Settings.load(None, journal=journal).journal


def test_replicators_announce_unless_there_is_no_topic_or_the_store_has_no_name() -> None:
    made = announcers({}, section(), store())
    assert made is not None
    assert (made.topic, made.store) == ("inorder.journal.replicated", "9f")
    assert announcers({}, section(replicated_topic=""), store()) is None
    assert announcers({}, section(), store(None)) is None


def test_readers_listen_only_where_they_wait() -> None:
    assert replicated_offsets({}, section(), store()) is None
    assert store_wait(section(), store(), None) is None
    waiting = section(wait_for_store_ms=100)
    notices = replicated_offsets({}, waiting, store())
    assert notices is not None
    with closing(notices):
        assert store_wait(waiting, store(), notices) is not None
