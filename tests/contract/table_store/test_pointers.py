"""Pointers know which topic they belong to and where a closed generation ends, in every database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from inorder.engines.slice_work import NO_EPOCHS, PartitionReader, Pointer
from inorder.model.errors import ConfigurationError, OtherTopicError, TransientError
from inorder.model.partitioning import Extent, Place
from inorder.pipeline.job import TableTarget, UpsertWork
from inorder.pipeline.reset import PipelineReset
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.status import waiting_partitions
from inorder.pipeline.stores.table import SqlTableStores
from inorder.topics.generations import Generation
from inorder.topics.stores.generations import SqlPointers, SqlTopicGenerations
from tests.conftest import Eventually
from tests.contract.table_store import places
from tests.contract.table_store.places import MAPPING, Sql
from tests.fakes.table_store import message, slice_of

OLD_TABLE = """
CREATE TABLE inorder_pointer (
    pipeline VARCHAR(255) NOT NULL, topic VARCHAR(249) NOT NULL, {partition} INTEGER NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0, next_offset BIGINT NOT NULL,
    records_applied BIGINT NOT NULL DEFAULT 0, records_identical BIGINT NOT NULL DEFAULT 0,
    records_stale BIGINT NOT NULL DEFAULT 0, records_ignored BIGINT NOT NULL DEFAULT 0,
    records_rejected BIGINT NOT NULL DEFAULT 0, updated_at VARCHAR(40),
    PRIMARY KEY (pipeline, topic, {partition})
)
"""
OLD_INSERT = "INSERT INTO inorder_pointer (pipeline, topic, {partition}, next_offset) VALUES ('demo', 'upsert', 1, 0)"


def test_every_partition_gets_a_pointer_at_its_first_record_and_the_id_of_its_topic(database: places.Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a"))))
    begun = dict(store.begin("upsert", "one", {0: 0, 1: 7, 2: 0}))
    assert begun == {0: Pointer(1, 0, "one"), 1: Pointer(7, 0, "one"), 2: Pointer(0, 0, "one")}
    assert store.begin("upsert", "two", {0: 0, 1: 0, 2: 0, 3: 4}) == begun | {3: Pointer(4, 0, "two")}
    assert store.pointers("upsert") == begun | {3: Pointer(4, 0, "two")}
    assert store.begin("orders", None, {0: 3}) == {0: Pointer(3)}
    assert store.begin("orders", "new", {0: 9}) == {0: Pointer(3, 0, "new")}


def test_a_slice_of_another_topic_of_the_same_name_is_refused(database: places.Place) -> None:
    store = database.open()
    store.begin("upsert", "one", {0: 0})
    found = replace(slice_of((0, message(1, data="a"))), topic_id="two")
    with pytest.raises(OtherTopicError, match="id one were applied, and it now has id two"):
        apply_slice(store, MAPPING, found)
    assert database.rows() == {}
    apply_slice(store, MAPPING, replace(found, topic_id=None))
    assert database.rows() == {1: (None, "a", 0)}


def test_nothing_behind_the_end_of_a_generation_is_applied_by_a_worker_that_does_not_know_it(sql: Sql) -> None:
    store = sql.open()
    store.begin("upsert", "one", {0: 0, 1: 0, 2: 0})
    SqlPointers(sql.looking).close_generation(Generation(0, "upsert", 2, (2, 5)))
    assert {number: one.end for number, one in store.pointers("upsert").items()} == {0: 2, 1: 5, 2: 0}
    records = [(offset, message(offset, data="a")) for offset in range(4)]
    outcome = apply_slice(store, MAPPING, slice_of(*records))
    assert (outcome.read, outcome.applied, outcome.next_offset) == (2, 2, 2)
    assert apply_slice(store, MAPPING, slice_of(*records[2:]), 2).read == 0
    assert apply_slice(store, MAPPING, slice_of(*records, partition=2)).next_offset == 0
    assert set(sql.rows()) == {0, 1}


def test_a_leader_epoch_counts_while_the_pointer_is_where_it_was_written(sql: Sql) -> None:
    store = sql.open()
    apply_slice(store, MAPPING, replace(slice_of((0, message(1, data="a"))), leader_epoch=7))
    assert store.pointers("upsert") == {0: Pointer(1, leader_epoch=7)}
    sql.look("UPDATE inorder_pointer SET next_offset = 2")  # as version 0.1.0 does
    assert store.pointers("upsert") == {0: Pointer(2)}
    apply_slice(store, MAPPING, slice_of((2, message(1, data="b"))))
    assert store.pointers("upsert") == {0: Pointer(3)}


def test_the_table_of_version_0_1_0_gets_the_columns_and_its_rows_are_adopted(sql: Sql) -> None:
    sql.look(OLD_TABLE)
    sql.look("INSERT INTO inorder_pointer (pipeline, topic, {partition}, next_offset) VALUES ('demo', 'upsert', 0, 5)")
    SqlPointers(sql.looking).close_generation(Generation(0, "upsert", 1, (9,)))  # no place for it yet, and no error
    store = sql.open()
    store.install()
    assert store.pointers("upsert") == {0: Pointer(5)}
    sql.look(OLD_INSERT)  # an instance of 0.1.0 goes on beside it
    assert store.begin("upsert", "one", {0: 0, 1: 0}) == {0: Pointer(5, 0, "one"), 1: Pointer(0, 0, "one")}


# Reset.


@dataclass
class Topic:
    """A cluster with one topic."""

    id: str | None
    held: dict[int, Extent] = field(default_factory=dict)

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        return self.held if topic == "upsert" else None

    def partitions(self, topic: str) -> int | None:
        raise AssertionError(topic)

    def topic_id(self, topic: str) -> str | None:
        return self.id if topic == "upsert" else None

    def open(
        self,
        starts: Mapping[Place, int | None],
        *,
        headers: bool = False,
        reports_ends: bool = False,
        epochs: Mapping[Place, int] = NO_EPOCHS,
    ) -> PartitionReader:
        raise AssertionError(f"a reset reads no records: {starts} {headers} {reports_ends} {epochs}")


def resetting(sql: Sql, topic: Topic) -> PipelineReset:
    work = UpsertWork((TableTarget(MAPPING, SqlTableStores(sql.url, MAPPING)),))
    return PipelineReset(work, sql.looking, SqlTopicGenerations(sql.looking), topic)


def test_a_recreated_topic_begins_the_next_generation_and_keeps_its_dead_letters(sql: Sql) -> None:
    store = sql.open()
    store.begin("upsert", "one", {0: 0, 1: 0})
    apply_slice(store, MAPPING, slice_of((0, message(1, data="old")), (1, b"?"), (2, message(2, data="old"))))
    reset = resetting(sql, Topic("two", {0: Extent(0, 9), 2: Extent(4, 9)}))
    planned = reset.run("upsert", dry_run=True)
    assert store.pointers("upsert")[0] == Pointer(3, 0, "one")
    assert reset.run("upsert") == planned
    assert store.pointers("upsert") == {0: Pointer(0, 1, "two"), 2: Pointer(4, 1, "two")}
    assert reset.run("upsert") == []
    outcome = apply_slice(store, MAPPING, replace(slice_of((0, message(1, data="new")), (1, b"!")), topic_id="two"))
    assert (outcome.applied, outcome.stale, outcome.rejected) == (1, 0, 1)
    assert sql.look("SELECT topic, generation FROM inorder_dead_letter ORDER BY 1") == [("upsert", 1), ("upsert@0", 0)]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["row", "tombstone"])
def test_pointers_that_are_lost_after_a_reset_begin_again_in_its_generation(sql: Sql, is_deleted: bool) -> None:
    store = sql.open()
    store.begin("upsert", "one", {0: 0})
    apply_slice(store, MAPPING, slice_of((0, message(1, data="old"))))
    resetting(sql, Topic("two", {0: Extent(0, 9)})).run("upsert")
    last = replace(slice_of((0, None if is_deleted else message(1, data="new"))), keys=[b"1"])
    assert apply_slice(store, MAPPING, last).applied == 1
    sql.lose_pointers()
    assert store.begin("upsert", "two", {0: 0, 1: 0}) == {0: Pointer(0, 1, "two"), 1: Pointer(0, 1, "two")}
    outcome = apply_slice(store, MAPPING, slice_of((1, message(1, data="newest"))))
    assert (outcome.applied, outcome.stale) == (1, 0)
    assert sql.rows() == {1: (None, "newest", 1)}


def test_a_pointer_that_moves_meanwhile_is_not_overwritten(sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sql.open()
    store.begin("upsert", "one", {0: 0})
    reset = resetting(sql, Topic("two", {0: Extent(0, 9)}))
    write = reset._write

    def moved_first(*args: object) -> None:
        apply_slice(store, MAPPING, slice_of((0, message(1, data="a"))))
        write(*args)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(reset, "_write", moved_first)
    with pytest.raises(TransientError, match=r"upsert\[0\] moved meanwhile"):
        reset.run("upsert")
    assert store.pointers("upsert") == {0: Pointer(1, 0, "one")}


def test_a_topic_of_no_table_is_refused(sql: Sql) -> None:
    sql.open()
    with pytest.raises(ConfigurationError, match="No table of the job upsert reads topic 'orders'"):
        resetting(sql, Topic(None)).run("orders")


def test_why_a_partition_waits_is_shown_until_its_next_slice(sql: Sql, eventually: Eventually) -> None:
    store = sql.open()
    store.begin("upsert", "one", {0: 0, 1: 0})

    def waiting() -> list[tuple[str, int, str]]:
        found = waiting_partitions(sql.looking, [MAPPING.pipeline])
        assert all(each["since"] for each in found)
        return [(each["topic"], each["partition"], each["reason"]) for each in found]

    def note(reason: str) -> bool:
        store.note_waiting("upsert", 1, reason)
        return waiting() == [("upsert", 1, reason)]

    assert waiting() == []
    eventually(lambda: note("a trigger raises"))  # SQLite's clock has milliseconds
    since = sql.look("SELECT waiting_since FROM inorder_pointer WHERE {partition} = 1")
    assert note("it raises still")
    assert sql.look("SELECT waiting_since FROM inorder_pointer WHERE {partition} = 1") == since
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a")), partition=1))
    assert waiting() == []
