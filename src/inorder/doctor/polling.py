"""What the strategy `polling` needs beside its events: three tables, one offset, and a replica where one is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from inorder.doctor.check import Check, of_error, ok
from inorder.model.errors import InorderError
from inorder.settings import Settings
from inorder.stores.opening import open_database
from inorder.stores.outbox_table import require_outbox_table
from inorder.stores.polling import SqlPollingStore


def examine_polling(settings: Settings) -> Iterator[Check]:
    """Nothing where another strategy is set."""
    if settings.relay.strategy != "polling":
        return
    yield _found("polling tables", _tables, settings)
    if settings.database.read_only_url is not None:
        yield _found("read-only database", _replica, settings)


def _found(name: str, look: Callable[[Settings], str], settings: Settings) -> Check:
    try:
        return ok(name, look(settings))
    except InorderError as error:
        return of_error(name, error)


def _tables(settings: Settings) -> str:
    relay = settings.relay
    database = open_database(settings.database.require_url(), "inorder doctor")
    with closing(SqlPollingStore(database, relay.table, relay.polling.side_tables)) as store:
        store.check()
        return f"all are there, and the offset is {store.offset()}"


def _replica(settings: Settings) -> str:
    relay = settings.relay
    with closing(open_database(settings.database.reading_url(), "inorder doctor")) as database:
        require_outbox_table(database, relay.table, relay.layout)
    return f"{relay.table} is read there"
