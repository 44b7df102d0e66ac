"""What is purged by content is compared as it was read, and the database says who it is and which id was the last."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from inorder.model.errors import UnreachableError
from inorder.model.partitioning import Shard
from inorder.relay.drain import DrainClaims
from inorder.relay.marker import Marker, PublishedBatch, prove, split
from inorder.relay.purge_queue import purge_proven
from inorder.relay.stores.ports import Scan
from tests.contract.outbox_store.making import Place, SqlPlace


def test_rows_are_the_same_for_the_connection_that_purges(place: Place) -> None:
    place.write("a", "b", "c")
    store = place.store()
    read = store.read(Scan(above=0), 10).rows
    ids = [row.id for row in read]
    assert split(store.rows_to_purge([*ids, 10**6]).rows, dict(zip(ids, prove(read), strict=True))) == (ids, [])
    assert store.rows_to_purge([]).rows == []


def test_a_mark_does_not_change_what_a_row_is(markable: Place) -> None:
    markable.write("a", "b")
    store = markable.store()
    read = store.read(Scan(above=0), 10).rows
    marked = store.mark(uuid4(), 10).rows
    assert prove(marked) == prove(read) == prove(store.rows_to_purge([row.id for row in read]).rows)


def test_a_row_of_any_shard_is_found_by_its_id(place: Place) -> None:
    for key in range(6):
        place.write("a", key=f"k{key}")
    whole = place.store().read(Scan(above=0), 10).rows
    sharded = place.store(Shard(1, 3))
    assert sorted(row.id for row in sharded.rows_to_purge([row.id for row in whole]).rows) == [row.id for row in whole]


def test_only_rows_that_match_their_proof_are_purged(place: Place) -> None:
    place.write("a", "b", "c")
    store = place.store()
    rows = store.read(Scan(above=0), 10).rows
    published = PublishedBatch.of(rows)
    proofs = dict(zip(published.ids, published.proofs, strict=True)) | {rows[1].id: 7}
    assert purge_proven(store, published.ids, proofs) == (2, [rows[1].id])
    assert [row.id for row in store.read(Scan(above=0), 10).rows] == [rows[1].id]


def test_the_last_id_is_known_although_its_row_is_gone(place: Place) -> None:
    place.write("a", "b", "c")
    store = place.store()
    ids = [row.id for row in store.read(Scan(above=0), 10).rows]
    store.purge(ids)
    assert store.origin().last_id == ids[-1]


def test_a_server_has_one_name_for_all_who_ask(place: Place) -> None:
    first, second = place.store().origin().server, place.store().origin().server
    assert first == second
    assert (first is not None) == (place.dialect in ("postgres", "mysql"))


def test_ids_that_are_given_out_again_are_read(place: Place) -> None:
    """A floor above it would let later rows of a key overtake them."""
    claims = DrainClaims(place.store(), batch_size=10, clock=lambda: 0.0)
    found = claims.begin(Marker(floor=10**6, proofs=()))
    assert found.floor < 10**6
    assert claims.claim(frozenset).rows == []
    place.write("a", "b")
    assert place.values(claims.claim(frozenset).rows) == ["a", "b"]


def test_reads_end_with_the_session_that_they_began_with(sql_place: SqlPlace) -> None:
    """Another one may be on a server that gives ids out again; a purge that reconnects must not hide that."""
    place = sql_place
    place.write("a")
    store: Any = place.store()
    store.begin_reads()
    assert place.values(store.read(Scan(above=0), 10).rows) == ["a"]
    lost = store._reading if place.dialect == "sqlite" else store._purging  # there reads follow the purges
    lost.outdate()
    store.session()
    for _ in range(2):
        with pytest.raises(UnreachableError):
            store.read(Scan(above=0), 10)
    store.begin_reads()
    assert place.values(store.read(Scan(above=0), 10).rows) == ["a"]
