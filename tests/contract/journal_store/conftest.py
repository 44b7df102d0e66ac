"""The stores that journals can be replicated to, each with its reader and its writer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from inorder.embedded import Cassandra, Postgres
from inorder.journal.stores.cassandra import CassandraJournal
from inorder.journal.stores.cassandra_replica import CassandraReplica
from inorder.journal.stores.cassandra_session import TABLES, CassandraSession
from inorder.journal.stores.postgres import PostgresJournal
from inorder.journal.stores.postgres_replica import PostgresReplica
from inorder.model.journal import Key
from tests.contract.journal_store.replaying import Replicating
from tests.selection import few

NewReplicating = Callable[..., Replicating]
Store = tuple[CassandraJournal | PostgresJournal, CassandraReplica | PostgresReplica]


@pytest.fixture(scope="session")
def postgres_journal(postgres: Postgres) -> Iterator[Store]:
    """A database with the journal's tables; tests keep apart by their topics."""
    name = f"journal{uuid.uuid4().hex[:8]}"
    url = postgres.create_database(name)
    with closing(PostgresJournal(url, page=3)) as store, closing(PostgresReplica(url)) as replica:
        store.install()
        store.install()
        yield store, replica
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def cassandra_journal(cassandra: Cassandra) -> Iterator[Store]:
    """A keyspace with the journal's tables."""
    url = f"{cassandra.url}/journal{uuid.uuid4().hex[:8]}"
    with closing(CassandraJournal(url)) as store, closing(CassandraReplica(url)) as replica:
        store.install()
        store.install()
        yield store, replica


@pytest.fixture(scope="session")
def first_cassandra_journal(cassandra: Cassandra) -> Iterator[Store]:
    """A keyspace as our first version has made it, without the table `clock`."""
    url = f"{cassandra.url}/first{uuid.uuid4().hex[:8]}"
    session = CassandraSession(url)
    with closing(session):
        session.execute_ddl(session.rendered("create_keyspace"))
        for name in TABLES:
            if name != "create_clock":
                session.execute_ddl(session.rendered(name))
    with closing(CassandraJournal(url)) as store, closing(CassandraReplica(url)) as replica:
        store.install()
        yield store, replica


@pytest.fixture(params=["postgres", "cassandra"])
def new_replicating(request: pytest.FixtureRequest, unique: str) -> NewReplicating:
    store, replica = request.getfixturevalue(f"{request.param}_journal")

    def make(segment_size: int = 10_000, id: str = "id") -> Replicating:
        return Replicating(replica, store, Key(id, unique), segment_size)

    return make


@pytest.fixture(params=few([2, 10_000, 2**31 - 1], 2), ids=lambda size: f"segments of {size}")
def journal(request: pytest.FixtureRequest, new_replicating: NewReplicating) -> Replicating:
    return new_replicating(request.param)
