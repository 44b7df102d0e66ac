"""How often a slice waits for Cassandra: the number of round trips one after the other, whatever each of them takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from inorder.journal.stores.cassandra_clock import PartitionClocks
from inorder.journal.stores.cassandra_replica import CassandraReplica
from inorder.journal.stores.cassandra_session import CassandraSession
from inorder.model.journal import Key
from tests.contract.journal_store.conftest import Store
from tests.contract.journal_store.replaying import Replicating, slice_of
from tests.contract.journal_store.test_cassandra_kills import url_of


class CountingSession(CassandraSession):
    """Counts waits: requests that are sent before the first of them is waited for are one round."""

    rounds = 0
    is_sent = False

    @property
    def session(self) -> Any:
        return _Counted(super().session, self)

    def wait(self) -> None:
        self.rounds += self.is_sent
        self.is_sent = False


class _Counted:
    def __init__(self, session: Any, owner: CountingSession) -> None:
        self._session = session
        self._owner = owner

    def execute(self, *given: Any, **named: Any) -> Any:
        self._owner.is_sent = True
        self._owner.wait()
        return self._session.execute(*given, **named)

    def execute_async(self, *given: Any) -> Any:
        self._owner.is_sent = True
        return _Future(self._session.execute_async(*given), self._owner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class _Future:
    def __init__(self, future: Any, owner: CountingSession) -> None:
        self._future = future
        self._owner = owner

    def result(self) -> Any:
        self._owner.wait()
        return self._future.result()


class Counting:
    """A replicator of some journals whose waits are counted."""

    def __init__(self, store: Store, topic: str) -> None:
        self.session = CountingSession(url_of(store))
        self.replica = CassandraReplica("")
        self.replica._session = self.session
        self.replica._clocks = PartitionClocks(self.session)
        self.journal = Replicating(self.replica, store[0], Key("id", topic), 100)
        self.keys = [Key(f"id-{number}", topic) for number in range(25)]

    def rounds(self) -> int:
        """Those that the waiting records take as one slice."""
        before = self.session.rounds
        self.journal.flush()
        return self.session.rounds - before

    def append(self, number: int) -> None:
        for key in self.keys:
            self.journal.append(number, key=key)


@pytest.fixture
def counting(cassandra_journal: Store, unique: str) -> Iterator[Counting]:
    made = Counting(cassandra_journal, unique)
    with closing(made.replica):
        for number in (1, 2):
            made.append(number)
            made.journal.flush()
        yield made


def test_appends_to_known_journals_wait_three_times_however_many_there_are(counting: Counting) -> None:
    for number in (3, 4, 5):
        counting.append(number)
        assert counting.rounds() == 3
    assert [counting.journal.seen(key=key) for key in counting.keys] == [[1, 2, 3, 4, 5]] * 25


def test_what_readers_would_see_waits_for_the_offset_first(counting: Counting) -> None:
    counting.journal.delete(1, key=counting.keys[0])
    assert counting.rounds() == 4  # the offset, the head, the rows, the offset
    counting.append(3)
    counting.journal.purge(key=counting.keys[1])
    # The offset, the journal's snapshots and events among others', and the steps of the purge.
    assert counting.rounds() <= 7
    assert counting.journal.seen(key=counting.keys[0]) == [2, 3]
    assert counting.journal.seen(key=counting.keys[1]) == []


def test_records_that_write_nothing_wait_for_the_offset_and_move_it(counting: Counting) -> None:
    counting.journal.foreign()
    assert counting.rounds() == 2


def test_many_events_of_a_journal_are_one_round(counting: Counting) -> None:
    counting.journal.append(*range(3, 1003), key=counting.keys[0])
    counting.journal.append(1003, payload="x" * 100_000, key=counting.keys[0])
    assert counting.rounds() == 3
    assert counting.journal.seen(key=counting.keys[0]) == list(range(1, 1004))


def test_heads_that_are_not_known_are_one_round_more(counting: Counting) -> None:
    counting.journal.append(1, key=Key("new", counting.journal.key.topic))
    assert counting.rounds() <= 5  # two segments of heads are read


def test_one_whose_expectation_is_wrong_repeats_the_slice_and_changes_nothing(
    counting: Counting, cassandra_journal: Store
) -> None:
    journal = counting.journal
    journal.purge(key=counting.keys[0])
    journal.append(1, key=counting.keys[0])
    records, journal._waiting = journal._waiting, []
    rival = Replicating(cassandra_journal[1], journal.store, journal.key, 100)
    rival.replicate(slice_of(journal.key.topic, 0, records[:1]))
    journal.replicate(slice_of(journal.key.topic, 0, records))
    assert journal.seen(key=counting.keys[0]) == [1]
    journal.append(2, key=counting.keys[0])
    assert counting.rounds() == 4  # its head was missing, so it is read
    journal.append(3, key=counting.keys[0])
    assert counting.rounds() == 3
    assert journal.seen(key=counting.keys[0]) == [1, 2, 3]
