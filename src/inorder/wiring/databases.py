"""The database of the outbox, whichever it is."""

from __future__ import annotations

from typing import Protocol

from inorder.model.errors import ConfigurationError
from inorder.model.shard import Shard
from inorder.outbox.layouts import layout
from inorder.ports.mark_store import MarkStore
from inorder.ports.outbox_store import OutboxStore
from inorder.settings import Settings
from inorder.stores.exceeded import SettledByPeople, SqlExceededStore
from inorder.stores.opening import dialect_of, open_database
from inorder.stores.polling import SqlPollingStore
from inorder.stores.polling_exceeded import PollingExceededStore
from inorder.stores.read_only import ScannedElsewhere


class ClaimStore(OutboxStore, MarkStore, Protocol):
    """A store that serves every strategy."""


def outbox_store(settings: Settings, shard: Shard, *, url: str | None = None) -> ClaimStore:
    """The store of one shard. Drivers of databases that are not used are not imported."""
    url, relay = url or settings.database.require_url(), settings.relay
    match dialect_of(url):
        case "postgres":
            from inorder.stores.postgres.outbox import PostgresOutboxStore

            keeps = relay.retention_days is not None
            return PostgresOutboxStore(url, relay.table, layout=relay.layout, shard=shard, archive=keeps)
        case "mysql":
            from inorder.stores.mysql.outbox import MySQLOutboxStore

            return MySQLOutboxStore(url, relay.table, layout=relay.layout, shard=shard)
        case "sqlite":
            from inorder.stores.sqlite.outbox import SQLiteOutboxStore

            return SQLiteOutboxStore(url, relay.table, layout=relay.layout, shard=shard)


def scanned_store(settings: Settings) -> OutboxStore:
    """What the strategy `polling` scans: a replica where there is one, but for what only the primary knows."""
    primary = outbox_store(settings, Shard())
    if settings.database.read_only_url is None:
        return primary
    return ScannedElsewhere(primary, outbox_store(settings, Shard(), url=settings.database.reading_url()))


def polling_store(settings: Settings, application_name: str) -> SqlPollingStore:
    """Offset, missing and exceeded events, which are always in the primary."""
    database = open_database(settings.database.require_url(), application_name)
    return SqlPollingStore(database, settings.relay.table, settings.relay.polling.side_tables)


def exceeded_store(settings: Settings, application_name: str) -> SettledByPeople:
    """The exceeded rows of the outbox; the strategy `polling` leaves them in their table."""
    database = open_database(settings.database.require_url(), application_name)
    if settings.relay.strategy == "polling":
        return PollingExceededStore(database, settings.relay.table, settings.relay.polling.side_tables)
    return SqlExceededStore(database, settings.relay.table, settings.relay.layout)


def can_wake(settings: Settings) -> bool:
    """Whether publishers can wake a sleeping relay."""
    return layout(settings.relay.layout, dialect_of(settings.database.require_url())).wakes_us


def postgres_url(settings: Settings, what: str) -> str:
    """The URL, for parts that know PostgreSQL only."""
    url = settings.database.require_url()
    require_postgres(dialect_of(url), what)
    return url


def require_postgres(dialect: str, what: str) -> None:
    """Refuses other databases."""
    if not dialect.startswith("postgres"):
        raise ConfigurationError(
            f"{what} of this version need PostgreSQL, not {dialect!r}.",
            hint="Set database.url to postgresql+psycopg://user@host/db.",
        )
