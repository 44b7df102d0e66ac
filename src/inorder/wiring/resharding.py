"""Changing what is registered of a relay, from the settings."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from inorder.model.errors import ConfigurationError
from inorder.model.shard import Shard
from inorder.ports.registry import Registration
from inorder.relay.marker import Marker, ranges
from inorder.relay.polling_rules import recovered
from inorder.relay.reshard import Resharding
from inorder.settings import Settings
from inorder.stores.opening import open_database
from inorder.stores.registry import SqlRegistry
from inorder.wiring.databases import exceeded_store, outbox_store, polling_store
from inorder.wiring.logs import setup_of, shard_log

NOTICE_SECONDS = 5.0
"""Instances that no fence stops look at the registration once a second; this is longer."""


def reshard(settings: Settings, *, restored: bool = False) -> Registration:
    """Makes the group, strategy and shards of the settings what is registered, whatever was."""
    database = open_database(settings.database.require_url(), "inorder relay reshard")
    with (
        closing(SqlRegistry(database, settings.relay.table)) as registry,
        closing(exceeded_store(settings, "inorder relay reshard")) as exceeded,
        closing(outbox_store(settings, Shard())) as store,
    ):
        _refuse_kept_rows(settings, registry)
        purge = partial(_settle_published, settings) if _polls(registry) else store.purge
        change = Resharding(registry, exceeded, partial(shard_log, settings, is_restored=restored), purge)
        return change.run(setup_of(settings), restored=restored, wait=partial(_wait, settings))


def _polls(registry: SqlRegistry) -> bool:
    found = registry.read()
    return found is not None and found.strategy == "polling"


def _settle_published(settings: Settings, ids: Sequence[int]) -> int:
    """What a polling relay published and perhaps did not settle; its rows stay."""
    with closing(polling_store(settings, "inorder relay reshard")) as store:
        found = recovered(store.offset(), Marker(ranges(ids)))
        if found is not None:
            store.settle(found)
    return len(ids)


def _refuse_kept_rows(settings: Settings, registry: SqlRegistry) -> None:
    """Other strategies publish every row that they find, and `polling` leaves all that it published."""
    table = settings.relay.table
    if not _polls(registry) or settings.relay.strategy == "polling":
        return
    with closing(polling_store(settings, "inorder relay reshard")) as store:
        if store.keeps_published():
            sides = settings.relay.polling.side_tables.beside(table)
            raise ConfigurationError(
                f"Table {table!r} holds rows that relay.strategy = 'polling' has published; "
                f"{settings.relay.strategy!r} would publish them again.",
                hint=(
                    f"Stop the relay, delete the rows up to the offset in {sides.offset} whose ids are neither in "
                    f"{sides.missing} nor in {sides.exceeded}, then run `inorder relay reshard` again."
                ),
            )


def _wait(settings: Settings) -> None:
    if settings.relay.delivery == "at-least-once":
        threading.Event().wait(NOTICE_SECONDS)
