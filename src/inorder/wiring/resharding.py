"""Changing what is registered of a relay, from the settings."""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial

from inorder.model.shard import Shard
from inorder.ports.registry import Registration
from inorder.relay.reshard import Resharding
from inorder.settings import Settings
from inorder.stores.opening import open_database
from inorder.stores.registry import SqlRegistry
from inorder.wiring.databases import exceeded_store, outbox_store
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
        change = Resharding(registry, exceeded, partial(shard_log, settings), store.purge)
        return change.run(setup_of(settings), restored=restored, wait=partial(_wait, settings))


def _wait(settings: Settings) -> None:
    if settings.relay.delivery == "at-least-once":
        threading.Event().wait(NOTICE_SECONDS)
