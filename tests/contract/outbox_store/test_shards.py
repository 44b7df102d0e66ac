"""Stores of several shards divide the rows of a table, agree with the rule in Python, and name what is not theirs."""

from __future__ import annotations

import random

import psycopg
import pytest

from inorder.model.message import OutboxRow
from inorder.model.partitioning import Shard, shard_of
from inorder.relay.stores.ports import OTHERS_WINDOW, Scan
from tests.contract.outbox_store.making import TOPICS, Place, SqlPlace

COUNT = 3


def keys_of(index: int, wanted: int, topic: str) -> list[str]:
    """Keys that belong to one shard."""
    found = (str(number) for number in range(1000) if shard_of(topic, str(number).encode(), 0, COUNT) == index)
    return [key for key, _ in zip(found, range(wanted), strict=False)]


def write_alternating(place: Place, each: int) -> list[list[str]]:
    """Rows of all shards in turn; the value of each is its key."""
    keys = [keys_of(index, each, place.topic()) for index in range(COUNT)]
    for turn in zip(*keys, strict=True):
        for key in turn:
            place.insert("writer", key, key=key)
    place.end("writer")
    return keys


def all_ids(place: Place) -> list[int]:
    return [row.id for row in place.store().read(Scan(0), 1000).rows]


def test_every_row_belongs_to_one_shard_and_all_of_a_key_to_the_same(place: Place) -> None:
    keys = write_alternating(place, 4)
    pages = [place.store(Shard(index, COUNT)).read(Scan(0), 100) for index in range(COUNT)]
    assert [place.values(page.rows) for page in pages] == keys
    for page in pages:
        assert sorted([*page.others, *(row.id for row in page.rows)]) == all_ids(place)


def test_reading_on_meets_rows_of_any_shard_up_to_the_limit(place: Place) -> None:
    keys = write_alternating(place, 4)
    ids = all_ids(place)
    page = place.store(Shard(1, COUNT)).read(Scan(0), 5)
    assert place.values(page.rows) == keys[1][:2]
    assert page.is_full
    assert page.top == ids[4]
    assert list(page.others) == [ids[0], ids[2], ids[3]]


def test_reading_on_to_the_end_is_not_full(place: Place) -> None:
    write_alternating(place, 2)
    ids = all_ids(place)
    page = place.store(Shard(1, COUNT)).read(Scan(ids[3]), 5)
    assert not page.is_full
    assert page.top == ids[-1]
    assert [row.id for row in page.rows] == [ids[4]]
    beyond = place.store(Shard(1, COUNT)).read(Scan(ids[-1]), 5)
    assert (beyond.rows, beyond.is_full, beyond.top, list(beyond.others)) == ([], False, 0, [])


def test_probes_tell_rows_of_ours_from_rows_of_others(place: Place) -> None:
    write_alternating(place, 2)
    ids = all_ids(place)
    page = place.store(Shard(0, COUNT)).read(Scan(ids[4], probes=(ids[0], ids[1], ids[-1] + 1)), 1)
    assert [row.id for row in page.rows] == [ids[0]]
    assert list(page.others) == [ids[1], ids[5]]
    assert page.is_full
    assert page.top == ids[5]


def test_a_walk_is_not_crowded_out_by_other_shards(place: Place) -> None:
    keys = write_alternating(place, 4)
    ids = all_ids(place)
    store = place.store(Shard(2, COUNT))
    page = store.read(Scan(0, walk=True), 2)
    assert place.values(page.rows) == keys[2][:2]
    assert page.is_full
    assert page.top == ids[5]
    assert list(page.others) == [id for position, id in enumerate(ids) if position % COUNT != 2]
    assert page.others_to == OTHERS_WINDOW


def test_a_walk_to_the_end_tells_the_largest_id_of_the_table(place: Place) -> None:
    write_alternating(place, 2)
    ids = all_ids(place)
    store = place.store(Shard(0, COUNT))
    page = store.read(Scan(0, walk=True), 3)
    assert not page.is_full
    assert page.top == ids[-1], "though that row is not ours"
    beyond = store.read(Scan(ids[-1], walk=True), 3)
    assert (beyond.rows, beyond.top, list(beyond.others)) == ([], ids[-1], [])
    place.store().purge(ids)
    assert store.read(Scan(0, walk=True), 3).top == 0


def test_a_walk_names_others_only_within_its_window(on_postgres: SqlPlace) -> None:
    on_postgres.run("ALTER TABLE outbox ALTER COLUMN id SET MAXVALUE 1000000")
    write_alternating(on_postgres, 1)
    on_postgres.run(f"ALTER TABLE outbox ALTER COLUMN id RESTART WITH {OTHERS_WINDOW + 1}")
    write_alternating(on_postgres, 1)
    ids = all_ids(on_postgres)
    page = on_postgres.store(Shard(2, COUNT)).read(Scan(0, walk=True), 10)
    assert [row.id for row in page.rows] == [ids[2], ids[5]]
    assert list(page.others) == ids[:2]
    assert page.top == ids[-1]


@pytest.mark.parametrize("count", [2, 7, 16])
def test_the_database_agrees_with_python_on_any_row(on_postgres: SqlPlace, count: int) -> None:
    chance = random.Random(count)
    for _ in range(150):
        key = None if chance.random() < 0.3 else chance.randbytes(chance.randrange(0, 40))
        topic = "".join(chance.choices("abcXYZ019._-äß€\N{SNOWMAN}", k=chance.randrange(1, 30)))
        on_postgres.writer("test").execute("INSERT INTO outbox (topic, key) VALUES (%s, %s)", (topic, key))
    on_postgres.end("test")
    rows: list[OutboxRow] = on_postgres.store().read(Scan(0), 1000).rows
    for index in range(count):
        found = on_postgres.store(Shard(index, count)).read(Scan(0), 1000).rows
        assert found == [row for row in rows if shard_of(row.topic, row.key, row.id, count) == index]


def test_rows_without_a_topic_belong_to_one_shard_too(any_on_postgres: SqlPlace) -> None:
    """A row that no shard takes for its own would wait for ever."""
    column = TOPICS[any_on_postgres.layout]
    any_on_postgres.run(f"ALTER TABLE outbox ALTER COLUMN {column} DROP NOT NULL")
    for number in range(10):
        any_on_postgres.insert("writer", "x", key=str(number))
    any_on_postgres.end("writer")
    any_on_postgres.run(f"UPDATE outbox SET {column} = NULL")
    pages = [any_on_postgres.store(Shard(index, COUNT)).read(Scan(0), 100) for index in range(COUNT)]
    rows = [row for page in pages for row in page.rows]
    assert len(rows) == 10
    assert {row.flaw for row in rows} == {f"{column} is null"}
    for index, page in enumerate(pages):
        assert {shard_of("", row.key, row.id, COUNT) for row in page.rows} <= {index}


def test_one_snapshot_shows_rows_and_others_of_the_same_moment(on_postgres: SqlPlace) -> None:
    """Rows of two shards that one transaction wrote appear together, or not at all."""
    mine, other = (keys_of(index, 1, "t")[0] for index in range(2))
    store = on_postgres.store(Shard(0, COUNT))
    for number in range(20):
        writer: psycopg.Connection[tuple[object, ...]] = on_postgres.writer("writer")
        on_postgres.insert("writer", "x", key=mine)
        on_postgres.insert("writer", "x", key=other)
        page = store.read(Scan(0, walk=number % 2 == 0), 100)
        assert len(page.rows) == len(page.others) == number
        writer.commit()
