"""A store has a name of its own, which distinguishes notices about it from those about other stores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from inorder.journal.stores.opening import open_journal_store
from tests.contract.journal_store.conftest import Store


@pytest.fixture(params=["postgres", "cassandra"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(f"{request.param}_journal")
    return found


def test_the_name_stays_when_the_tables_are_installed_again(store: Store) -> None:
    journal, _ = store
    name = journal.identity()
    assert name
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: journal.install(), range(2)))
    assert journal.identity() == name


def test_two_stores_have_two_names(store: Store, postgres_url: str) -> None:
    with closing(open_journal_store(postgres_url)) as other:
        other.install()
        assert other.identity() not in (None, store[0].identity())
