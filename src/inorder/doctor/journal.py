"""The store of journals: reachable, with its tables, where journals are used."""

from __future__ import annotations

from contextlib import closing

from inorder.doctor.check import Check, of_error, ok
from inorder.model.errors import InorderError
from inorder.settings import Settings
from inorder.stores.journal_opening import open_journal_store


def examine_journal(settings: Settings) -> list[Check]:
    """Whether the store can be asked how far it is; nothing where the settings have no [journal]."""
    if "journal" not in settings.model_fields_set:
        return []
    topic = settings.journal.topic_prefixes[0] if settings.journal.topic_prefixes else "journal"
    try:
        with closing(open_journal_store(settings.journal.store_url(settings.database))) as store:
            store.offset(topic, 0)
    except InorderError as error:
        return [of_error("journal store", error)]
    return [ok("journal store", "it answers, and its tables are there")]
