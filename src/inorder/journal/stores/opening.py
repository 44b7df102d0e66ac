"""From a URL to the store of journals behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from typing import Protocol

from inorder.database.database import open_database
from inorder.database.schema_plan import SchemaChange, catalogue_of, install_missing, plan_changes
from inorder.journal.audit.findings import JournalRows
from inorder.journal.replication.store_port import JournalReplica, Quarantine
from inorder.journal.snapshots import SnapshotStore
from inorder.journal.stores.ports import EventualJournal, JournalFilter, ListedJournal, TopicIncarnation
from inorder.journal.topic_identity import ResettableStore
from inorder.model.errors import ConfigurationError


class ExpiryIndex(Protocol):
    """What the job `expire` needs of a store."""

    def expired(self, topic: str, before: date) -> Iterator[str]:
        """The ids of the journals of a topic whose `expire_on` is before a day, each once, in any order."""


class JournalStore(EventualJournal, ExpiryIndex, Protocol):
    """A store that can make its own tables, and knows which journals have expired."""

    def install(self) -> list[str]:
        """Creates what does not exist; returns the statements that were run."""

    def journals(self, topic: str, where: JournalFilter) -> Iterator[ListedJournal]:
        """The journals of a topic that have a head and fit, in any order; page by page."""

    def identity(self) -> str | None:
        """The random name that `install` gave to this store; None where an older version has made it.

        Not made from the address, since readers and replicators may reach one store by different ones.
        """

    def incarnation(self, topic: str) -> TopicIncarnation | None:
        """Which topic of that name its rows belong to; None where that is not recorded."""


def open_journal_store(url: str) -> JournalStore:
    """The store of a URL; it connects when it is first used."""
    # Imported here, because the drivers are extras.
    match _kind(url):
        case "cassandra":
            from inorder.journal.stores.cassandra import CassandraJournal

            return CassandraJournal(url)
        case _:
            from inorder.journal.stores.postgres import PostgresJournal

            return PostgresJournal(url)


def open_snapshot_store(url: str) -> SnapshotStore:
    """The snapshots in the store of a URL; it connects when it is first used."""
    match _kind(url):
        case "cassandra":
            from inorder.journal.stores.cassandra import CassandraSnapshots

            return CassandraSnapshots(url)
        case _:
            from inorder.journal.stores.postgres import PostgresSnapshots

            return PostgresSnapshots(url)


class ReplicaStore(JournalReplica, Quarantine, ResettableStore, Protocol):
    """The write side of a store, with its quarantine."""


@dataclass(frozen=True, slots=True)
class JournalReplicas:
    """Opens the write side of a store in whichever process calls it."""

    url: str = field(repr=False)
    """Not shown, as it may hold a password."""

    def __call__(self) -> ReplicaStore:
        match _kind(self.url):
            case "cassandra":
                from inorder.journal.stores.cassandra_replica import CassandraReplica

                return CassandraReplica(self.url)
            case _:
                from inorder.journal.stores.postgres_replica import PostgresReplica

                return PostgresReplica(self.url)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Opens the rows of a store for an audit, in whichever process calls it."""

    url: str = field(repr=False)
    """Not shown, as it may hold a password."""

    def __call__(self) -> JournalRows:
        match _kind(self.url):
            case "cassandra":
                from inorder.journal.stores.cassandra import CassandraJournalRows

                return CassandraJournalRows(self.url)
            case _:
                from inorder.journal.stores.postgres import PostgresJournalRows

                return PostgresJournalRows(self.url)


def journal_statements(url: str) -> list[str]:
    """The DDL of a fresh store, for printing; no connection is made."""
    match _kind(url):
        case "cassandra":
            from inorder.journal.stores.cassandra_session import CassandraSession, statements

            return statements(CassandraSession(url))
        case _:
            from inorder.journal.stores.postgres import journal_tables

            return journal_tables()


def plan_journal_store(url: str) -> list[SchemaChange]:
    """What `install` would change in the store of a URL."""
    match _kind(url):
        case "cassandra":
            from inorder.journal.stores.cassandra_session import CassandraSession, plan

            with closing(CassandraSession(url)) as session:
                return plan(session)
        case _:
            from inorder.journal.stores.postgres import journal_tables

            with closing(open_database(url, "inorder")) as database:
                return plan_changes(journal_tables(), catalogue_of(database))


def prepare_journal_store(url: str, store: JournalStore) -> None:
    """Creates what is missing in a store, and runs no DDL where nothing is."""
    if _kind(url) == "cassandra":
        store.install()  # it looks first
        return
    from inorder.journal.stores.postgres import journal_tables

    with closing(open_database(url, "inorder")) as database:
        install_missing(database, journal_tables(), "inorder schema install --layout journal")


def _kind(url: str) -> str:
    kind = url.partition(":")[0].partition("+")[0]
    if kind not in ("postgresql", "cassandra"):
        raise ConfigurationError(
            f"Journals cannot be kept in a {kind} database.",
            hint="Set journal.store to a postgresql+psycopg:// or cassandra:// URL.",
        )
    return kind
