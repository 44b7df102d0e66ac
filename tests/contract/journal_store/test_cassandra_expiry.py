"""Expired journals in Cassandra: the index answers for the last days, and a scan now and then for all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from typing import Any

import pytest

from inorder.journal.stores.cassandra import EXPIRY_DAYS, RANGES, SCAN_DAYS, CassandraJournal
from inorder.journal.stores.cassandra_session import CassandraSession
from inorder.model.journal import Key
from tests.contract.journal_store.conftest import Store
from tests.contract.journal_store.replaying import START, Replicating
from tests.contract.journal_store.test_cassandra_kills import url_of

DAY = timedelta(days=1)


class CountingSession(CassandraSession):
    """Counts the statements that are prepared and executed at once, by the first words of each."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.sent: Counter[str] = Counter()

    @property
    def session(self) -> Any:
        return _Counting(super().session, self.sent)


class _Counting:
    def __init__(self, session: Any, sent: Counter[str]) -> None:
        self._session = session
        self._sent = sent

    def execute_async(self, statement: Any, bound: Any) -> Any:
        self._sent["scan" if "token(" in statement.query_string else "index"] += 1
        return self._session.execute_async(statement, bound)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class Expiring:
    """Journals that expire, and the passes over them."""

    def __init__(self, store: CassandraJournal, journal: Replicating) -> None:
        self.store = store
        self.journal = journal
        self.session = CountingSession(url_of((store, journal.replica)))  # type: ignore[arg-type]
        store._session.close()
        store._session = self.session

    def add(self, id: str, days: int) -> None:
        self.journal.append(1, expire_after=days * DAY, key=Key(id, self.journal.key.topic))
        self.journal.flush()

    def remove(self, *ids: str) -> None:
        for id in ids:
            self.journal.purge(key=Key(id, self.journal.key.topic))
        self.journal.flush()

    def on(self, day: int) -> tuple[set[str], dict[str, int]]:
        """The journals that a pass finds, and what it sends."""
        self.session.sent.clear()
        today: date = (START + day * DAY).date()
        found = list(self.store.expired(self.journal.key.topic, today))
        assert len(found) == len(set(found))
        return set(found), dict(self.session.sent)


SCAN, INDEX = {"scan": len(RANGES)}, {"index": EXPIRY_DAYS}


@pytest.fixture
def expiring(cassandra_journal: Store, unique: str) -> Iterator[Expiring]:
    with closing(CassandraJournal(url_of(cassandra_journal))) as store:
        yield Expiring(store, Replicating(cassandra_journal[1], store, Key("id", unique), 2))


def test_after_a_scan_a_pass_asks_the_index(expiring: Expiring) -> None:
    expiring.add("first", 1)
    expiring.add("later", 5)
    assert expiring.on(3) == ({"first"}, SCAN)
    expiring.remove("first")
    assert expiring.on(4) == (set(), INDEX)
    assert expiring.on(6) == ({"later"}, INDEX)
    assert expiring.on(6) == ({"later"}, INDEX)
    assert expiring.on(3 + SCAN_DAYS) == ({"later"}, SCAN)


def test_days_on_which_no_pass_ran_are_made_up_for(expiring: Expiring) -> None:
    assert expiring.on(1) == (set(), SCAN)
    expiring.add("long ago", 2)
    expiring.add("lately", 99)
    # It is looked for again until it is gone: a pass may have left it.
    assert expiring.on(100) == ({"long ago", "lately"}, SCAN)
    assert expiring.on(100) == ({"long ago", "lately"}, SCAN)
    expiring.remove("long ago")
    assert expiring.on(101) == ({"lately"}, SCAN)
    assert expiring.on(102) == ({"lately"}, INDEX)


def test_a_pass_that_ends_early_is_no_scan(expiring: Expiring) -> None:
    expiring.add("first", 1)
    expiring.add("second", 1)
    found = expiring.store.expired(expiring.journal.key.topic, (START + 3 * DAY).date())
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert expiring.on(3) == ({"first", "second"}, SCAN)
