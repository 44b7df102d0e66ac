"""No store returns more bytes than it was asked for: the first rows that fit, at least one, and the ids of the rest."""

from __future__ import annotations

from uuid import uuid4

import pytest

from inorder.model.partitioning import Shard
from inorder.relay.drain import DrainClaims
from inorder.relay.mark_purge import MarkPurgeClaims
from inorder.relay.marker import Marker
from inorder.relay.scan import bytes_of
from inorder.relay.stores.ports import LAST_ID, Page, Scan
from inorder.relay.term import Claims
from tests.contract.outbox_store.making import Place, SqlPlace
from tests.contract.outbox_store.test_shards import COUNT, all_ids, keys_of, write_alternating

LARGE = 5000
MOST = 12_500
"""Room for two large rows, with all that belongs to them."""


def write_large(place: Place, count: int) -> list[int]:
    place.write(*(f"{number}" * LARGE for number in range(count)))
    return all_ids(place)


def ids_of(page: Page) -> list[int]:
    return [row.id for row in page.rows]


def test_a_read_ends_before_the_row_that_would_be_too_much(place: Place) -> None:
    ids, store = write_large(place, 4), place.store()
    page = store.read(Scan(0, max_bytes=MOST), 9)
    assert (ids_of(page), list(page.rest), page.is_full) == (ids[:2], ids[2:], True)
    assert ids[1] <= page.top < ids[2]
    assert place.values(page.rows) == ["0" * LARGE, "1" * LARGE]
    assert ids_of(store.read(Scan(ids[1], max_bytes=MOST), 9)) == ids[2:]


def test_a_row_that_is_larger_than_all_may_be_is_read_alone(place: Place) -> None:
    ids, store = write_large(place, 2), place.store()
    page = store.read(Scan(0, max_bytes=1), 9)
    assert (ids_of(page), list(page.rest)) == (ids[:1], ids[1:])
    assert place.values(page.rows) == ["0" * LARGE]


def test_small_rows_between_large_ones_keep_their_place(place: Place) -> None:
    place.write("x" * LARGE, "a", "y" * LARGE, "b", "z" * LARGE)
    ids, store = all_ids(place), place.store()
    page = store.read(Scan(0, max_bytes=MOST), 9)
    assert place.values(page.rows) == ["x" * LARGE, "a", "y" * LARGE, "b"]
    assert list(page.rest) == ids[4:]


def test_missing_rows_that_appeared_are_read_first(place: Place) -> None:
    ids, store = write_large(place, 4), place.store()
    page = store.read(Scan(ids[2], probes=(ids[0], ids[1]), max_bytes=MOST), 5)
    assert (ids_of(page), list(page.rest)) == (ids[:2], ids[3:])
    page = store.read(Scan(LAST_ID, probes=tuple(ids), max_bytes=MOST), 1)
    assert (ids_of(page), list(page.rest)) == (ids[:2], ids[2:])


def test_rows_in_hand_are_named_and_not_read(place: Place) -> None:
    ids, store = write_large(place, 4), place.store()
    page = store.read(Scan(0, walk=True, held=frozenset({*ids[:2], 10**6}), max_bytes=MOST), 9)
    assert ids_of(page) == ids
    assert [bytes_of(row) > 0 for row in page.rows] == [False, False, True, True]
    assert place.values(page.rows[2:]) == ["2" * LARGE, "3" * LARGE]
    assert (page.is_full, page.top) == (False, ids[-1])


@pytest.mark.parametrize("walk", [False, True])
def test_a_shard_counts_its_own_rows_only(place: Place, walk: bool) -> None:
    keys = [keys_of(index, 2, place.topic()) for index in range(COUNT)]
    for turn in zip(*keys, strict=True):
        for key in turn:
            place.insert("writer", "x" * LARGE, key=key)
    place.end("writer")
    ids, store = all_ids(place), place.store(Shard(1, COUNT))
    page = store.read(Scan(0, walk=walk, max_bytes=MOST), 100)
    assert (ids_of(page), page.rest) == ([ids[1], ids[4]], ())
    assert list(page.others) == [id for id in ids if id not in (ids[1], ids[4])]
    page = store.read(Scan(0, walk=walk, max_bytes=LARGE), 100)
    assert (ids_of(page), list(page.rest), page.is_full) == ([ids[1]], [ids[4]], True)
    assert ids[1] <= page.top < ids[4]
    held = store.read(Scan(0, walk=True, held=frozenset({ids[1]}), max_bytes=LARGE), 100)
    assert [bytes_of(row) > 0 for row in held.rows] == [False, True]


@pytest.mark.parametrize("shard", [Shard(), Shard(0, COUNT)])
def test_pages_one_after_the_other_have_every_row_once(place: Place, shard: Shard) -> None:
    write_alternating(place, 4)
    store, found, above = place.store(shard), list[int](), 0
    while True:
        page = store.read(Scan(above, max_bytes=1), 100)
        found += ids_of(page)
        assert len(page.rows) <= 1
        if not page.is_full:
            break
        above = page.top
    assert found == [row.id for row in place.store(shard).read(Scan(0), 100).rows]


def test_a_mark_claims_all_and_returns_what_fits(markable: Place) -> None:
    ids, store, leader = write_large(markable, 5), markable.store(), uuid4()
    page = store.mark(leader, 4, max_bytes=MOST)
    assert (ids_of(page), list(page.rest), page.is_full, page.top) == (ids[:2], ids[2:4], True, ids[3])
    assert ids_of(store.mark(leader, 9)) == ids[4:], "the rest is marked too"
    page = store.mark_again(leader, ids[2:], MOST)
    assert (ids_of(page), list(page.rest)) == (ids[2:4], ids[4:])
    assert markable.values(page.rows) == ["2" * LARGE, "3" * LARGE]


def test_what_is_read_to_be_purged_is_bounded_too(place: Place) -> None:
    ids, store = write_large(place, 4), place.store()
    page = store.rows_to_purge([*ids, 10**6], MOST)
    assert (ids_of(page), list(page.rest)) == (ids[:2], ids[2:])


def test_a_row_without_anything_in_it_is_small(native: SqlPlace) -> None:
    native.run("INSERT INTO outbox (topic) VALUES ('t')")
    [row] = native.store().read(Scan(0, max_bytes=100), 10).rows
    assert (row.topic, row.key, row.value, row.headers, row.flaw) == ("t", None, None, (), "")


@pytest.mark.parametrize("column", ["key", "value", "headers"])
def test_every_column_counts(native: SqlPlace, column: str) -> None:
    """Three rows in which one column is large."""
    quote = "`" if native.dialect == "mysql" else '"'
    text = "[]" + " " * LARGE
    for _ in range(3):
        native.run(f"INSERT INTO outbox (topic, {quote}{column}{quote}) VALUES ('t', '{text}')")
    page = native.store().read(Scan(0, max_bytes=MOST), 10)
    assert (len(page.rows), len(page.rest)) == (2, 1)


FILLS = {
    "postgres": "SELECT 't', 'k', CAST(repeat('x', {size}) AS bytea) FROM generate_series(1, {rows})",
    "mysql": "SELECT 't', 'k', REPEAT('x', {size}) FROM seq_1_to_{rows}",
    "sqlite": (
        "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {rows})"
        " SELECT 't', 'k', zeroblob({size}) FROM number"
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_term_claims_a_backlog_of_large_rows_in_parts(native: SqlPlace, strategy: str) -> None:
    """500 rows of 300 kB, of which PostgreSQL stores a hundredth: its compressed values count as what they become."""
    assert native.dialect is not None
    quote = "`" if native.dialect == "mysql" else '"'
    columns = f"topic, {quote}key{quote}, {quote}value{quote}"
    native.run(f"INSERT INTO outbox ({columns}) {FILLS[native.dialect].format(size=300_000, rows=500)}")
    store, most = native.store(), 16 * 1024 * 1024
    claims: Claims = (
        DrainClaims(store, batch_size=10_000, clock=lambda: 0.0, batch_bytes=most)
        if strategy == "drain"
        else MarkPurgeClaims(store, uuid4(), 500, batch_bytes=most)
    )
    claims.begin(Marker())
    found, batches = list[int](), list[int]()

    def in_hand() -> frozenset[int]:
        return frozenset(found)

    while rows := claims.claim(in_hand).rows:
        batches.append(sum(map(bytes_of, rows)))
        found += [row.id for row in rows]
    assert found == sorted(set(found))
    assert len(found) == 500
    assert max(batches) <= most
    assert sum(batches) >= 500 * 300_000
