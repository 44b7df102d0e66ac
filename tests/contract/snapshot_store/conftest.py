"""The stores that snapshots can be kept in, each with its journals and its replicator."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from inorder.embedded import Cassandra, Postgres
from inorder.journal.replication.store_port import JournalReplica
from inorder.journal.snapshots import SnapshotStore
from inorder.journal.stores.cassandra import CassandraJournal, CassandraSnapshots
from inorder.journal.stores.cassandra_replica import CassandraReplica
from inorder.journal.stores.ports import EventualJournal
from inorder.journal.stores.postgres import PostgresJournal, PostgresSnapshots
from inorder.journal.stores.postgres_replica import PostgresReplica
from tests.contract.snapshot_store.stored import Stored
from tests.fakes.replica import MemoryReplica
from tests.selection import few

Store = tuple[EventualJournal, JournalReplica, SnapshotStore]
NewStored = Callable[..., Stored]


@pytest.fixture(scope="session")
def memory_snapshots() -> Store:
    replica = MemoryReplica()
    return replica, replica, replica.snapshots


@pytest.fixture(scope="session")
def postgres_snapshots_url(postgres: Postgres) -> Iterator[str]:
    """A database with the journal's tables; tests keep apart by their topics."""
    name = f"snapshots{uuid.uuid4().hex[:8]}"
    url = postgres.create_database(name)
    with closing(PostgresJournal(url)) as store:
        store.install()
    yield url
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def postgres_snapshots(postgres_snapshots_url: str) -> Iterator[Store]:
    url = postgres_snapshots_url
    store, replica, snapshots = PostgresJournal(url), PostgresReplica(url), PostgresSnapshots(url)
    with closing(store), closing(replica), closing(snapshots):
        yield store, replica, snapshots


@pytest.fixture(scope="session")
def cassandra_snapshots_url(cassandra: Cassandra) -> str:
    """A keyspace with the journal's tables."""
    url = f"{cassandra.url}/snapshots{uuid.uuid4().hex[:8]}"
    with closing(CassandraJournal(url)) as store:
        store.install()
    return url


@pytest.fixture(scope="session")
def cassandra_snapshots(cassandra_snapshots_url: str) -> Iterator[Store]:
    url = cassandra_snapshots_url
    store, replica, snapshots = CassandraJournal(url), CassandraReplica(url), CassandraSnapshots(url)
    with closing(store), closing(replica), closing(snapshots):
        yield store, replica, snapshots


@pytest.fixture(params=few(["memory", "postgres", "cassandra"], "memory", "postgres"))
def new_stored(request: pytest.FixtureRequest, unique: str) -> NewStored:
    store, replica, snapshots = request.getfixturevalue(f"{request.param}_snapshots")
    return lambda segment_size=2: Stored(store, replica, snapshots, unique, segment_size)


@pytest.fixture
def stored(new_stored: NewStored) -> Stored:
    return new_stored()
