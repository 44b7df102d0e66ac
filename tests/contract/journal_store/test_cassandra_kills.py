"""Cassandra has no transactions: a replicator that dies between any two writes leaves what the next one completes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from inorder.engines.slice_work import Slice
from inorder.journal.replication.actions import SliceSource, group_by_journal, replicate_journal
from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.replication.store_port import JournalReplica
from inorder.journal.stores.cassandra_clock import PartitionClocks
from inorder.journal.stores.cassandra_replica import CassandraReplica
from inorder.journal.stores.cassandra_session import CassandraSession
from inorder.model.errors import TransientError
from inorder.model.journal import Key
from tests.contract.journal_store.conftest import Store
from tests.contract.journal_store.replaying import Replicating, slice_of


class DyingSession(CassandraSession):
    """A session that ends after so many statements."""

    left = 0

    @property
    def session(self) -> Any:
        return _Counted(super().session, self)

    def execute(self, name: str, *bound: Any, serial: bool = False) -> Any:
        if name in ("insert_offset", "move_offset", "begin_offset", "raise_offset"):
            self.take()
        return super().execute(name, *bound, serial=serial)

    def take(self) -> None:
        if not self.left:
            raise TransientError("Killed.")
        self.left -= 1


class _Counted:
    def __init__(self, session: Any, owner: DyingSession) -> None:
        self._session = session
        self._owner = owner

    def execute_async(self, *given: Any) -> Any:
        self._owner.take()
        return self._session.execute_async(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.fixture(params=["cassandra_journal", pytest.param("first_cassandra_journal", marks=pytest.mark.full)])
def written_to(request: pytest.FixtureRequest) -> Store:
    store: Store = request.getfixturevalue(request.param)
    return store


@pytest.fixture
def dying(written_to: Store) -> Iterator[CassandraReplica]:
    replica = CassandraReplica("")
    replica._session = DyingSession(url_of(written_to))
    replica._clocks = PartitionClocks(replica._session)
    with closing(replica):
        yield replica


def url_of(store: Store) -> str:
    session: CassandraSession = store[1]._session  # type: ignore[union-attr]  # it is Cassandra's
    return f"cassandra://{session._hosts[0]}:{session._port}/{session.keyspace.strip(chr(34))}"


def written(journal: Replicating) -> list[tuple[int, Any]]:
    """A journal that is appended to, shortened, purged and started again."""
    journal.append(1, 2, 3)
    journal.delete(1)
    journal.append(4)
    journal.purge()
    journal.append(1, 2)
    journal.append(3)
    journal.delete(1)
    records, journal._waiting = journal._waiting, []
    return records


@pytest.mark.parametrize(("whole", "step"), [(True, 1), (False, 6)], ids=["in one slice", "an action a slice"])
def test_a_replicator_killed_after_any_statement_is_completed_by_the_next(
    written_to: Store, dying: CassandraReplica, unique: str, whole: bool, step: int
) -> None:
    store, replica = written_to
    session = dying._session
    assert isinstance(session, DyingSession)
    for kill in range(0, 100, step):
        journal = Replicating(replica, store, Key("id", f"{unique}.{kill}"), 2)
        records = written(journal)
        chunks = [records] if whole else [[each] for each in records]
        session.left = kill
        was_killed = not _replicates(dying, [slice_of(journal.key.topic, 0, chunk) for chunk in chunks])
        # The next one cuts the log in other places.
        _replicates(replica, [slice_of(journal.key.topic, 0, records[at : at + 3]) for at in range(0, 7, 3)])
        assert (journal.seen(), journal.pointer(), store.offset(journal.key.topic, 0)) == ([2, 3], (6, 3), 6)
        if not was_killed:
            assert kill > 5
            return
    pytest.fail("There is no end to it.")


def _replicates(replica: JournalReplica, slices: list[Slice]) -> bool:
    worker = ReplicateWorker(replica, 2)
    try:
        for batch in slices:
            worker.apply(batch, expected=0)
    except TransientError:
        return False
    return True


def test_a_late_append_does_not_revive_a_purged_journal(written_to: Store, unique: str) -> None:
    store, replica = written_to
    journal = Replicating(replica, store, Key("id", unique), 2)
    journal.append(1, 2)
    journal.purge()
    records, journal._waiting = journal._waiting, []
    alone = group_by_journal(slice_of(unique, 0, records[:1]), -1).journals[journal.key]
    late = replicate_journal(SliceSource(unique, 0, 2), journal.key, None, alone).change
    # Another one applies both meanwhile; the purge makes the append void, so that it is never written.
    assert _replicates(replica, [slice_of(unique, 0, records)])
    with replica.slice(unique, 0) as writing:
        writing.lock_offset()
        writing.carry_out([late])
    assert (journal.seen(), journal.pointer()) == ([], None)
