"""The table of data keys does the same in every database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from inorder.journal.keys import KeyStore, StoredSecret
from inorder.model.journal import Key, PartitionOffset
from tests.selection import few

KEY, OTHER = Key("person-1", "journal"), Key("Person-1", "journal")


@pytest.fixture(params=few(["sqlite", "postgres_url", "mariadb_url"], "sqlite", "postgres_url"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyStore]:
    is_file = request.param == "sqlite"
    url: str = f"sqlite:///{tmp_path / 'keys.db'}" if is_file else request.getfixturevalue(request.param)
    with closing(KeyStore(url)) as store:
        yield store


def at(offset: int, partition: int = 0) -> PartitionOffset:
    return PartitionOffset(partition, offset)


def made(store: KeyStore, life: UUID | None, seen: PartitionOffset, key: Key = KEY) -> UUID:
    id = uuid4()
    store.insert(key, id, id.bytes, life, seen)
    return id


def left(store: KeyStore, *ids: UUID) -> list[bool]:
    """Which of the keys are not destroyed."""
    found = [store.read(KEY, id) for id in ids]
    assert None not in found
    return [each != StoredSecret(None) for each in found]


def test_a_key_is_found_by_its_journal_and_id_and_by_the_life_that_it_gets(store: KeyStore) -> None:
    life, id = uuid4(), made(store, None, at(5))
    assert store.read(KEY, id) == StoredSecret(id.bytes)
    assert (store.read(OTHER, id), store.read(KEY, uuid4()), store.of_life(KEY, life)) == (None, None, None)
    assert (store.without_life(KEY, at(6)), store.without_life(KEY, at(5))) == ({id: 5}, {})
    store.adopt(KEY, id, life, at(7))
    assert (store.of_life(KEY, life), store.of_life(OTHER, life)) == ((id, id.bytes), None)
    store.adopt(KEY, id, uuid4(), at(9))
    assert (store.of_life(KEY, life), store.without_life(KEY, at(99))) == ((id, id.bytes), {})
    store.destroy(KEY, id)
    store.destroy(KEY, id)
    assert (store.read(KEY, id), store.of_life(KEY, life)) == (StoredSecret(None), None)


def test_the_keys_of_a_life_and_of_lives_before_an_offset_are_destroyed(store: KeyStore) -> None:
    one, two, three = uuid4(), uuid4(), uuid4()
    ids = [
        *(made(store, one, at(5)), made(store, two, at(9)), made(store, three, at(20)), made(store, None, at(1))),
        made(store, two, at(3, 1)),
    ]
    foreign = made(store, one, at(5), OTHER)
    store.destroy_lives(KEY, None, None)
    assert left(store, *ids) == [True] * 5
    store.destroy_lives(KEY, None, at(10), spared=two)
    assert left(store, *ids) == [False, True, True, True, True]
    store.destroy_lives(KEY, two, at(10))
    assert left(store, *ids) == [False, False, True, True, False]
    assert store.read(OTHER, foreign) == StoredSecret(foreign.bytes)
