"""What a reset writes, case by case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from inorder.database.database import Database, open_database
from inorder.engines.slice_work import Pointer, SliceWork
from inorder.model.errors import ConfigurationError, OtherTopicError
from inorder.model.partitioning import Extent
from inorder.pipeline.job import GenerationGate, TableTarget, UpsertWork
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.reset import HeldTopic, PipelineReset, plan_reset
from inorder.pipeline.stores.table import SqlTableStores
from inorder.topics.generations import Generation, TopicState
from inorder.topics.stores.generations import SqlPointers, SqlTopicGenerations
from tests.unit.pipeline.old_letters import MemorySource

MAPPING = TableMapping("upsert:messages", "a", "messages")
HELD = HeldTopic("one", {0: Extent(5, 9), 1: Extent(0, 4)})
FITS = {0: Pointer(6, 2, "one"), 1: Pointer(4, 2, "one")}


@pytest.mark.parametrize(
    ("pointers", "newest", "planned"),
    [
        (FITS, 2, {}),
        ({}, None, {}),
        # Retention: the same generation, at the first record.
        (FITS | {0: Pointer(3, 2, "one")}, 2, {0: Pointer(5, 2, "one")}),
        # Truncated: offsets were given twice, so all that the partition holds is newer.
        (FITS | {1: Pointer(7, 2, "one")}, 2, {1: Pointer(0, 3, "one")}),
        # Re-created, though every pointer is within the topic; and one that an older version wrote.
        ({0: Pointer(6, 2, "two"), 1: Pointer(4, 2)}, 2, {0: Pointer(5, 3, "one"), 1: Pointer(0, 3, "one")}),
        # With fewer partitions.
        (FITS | {7: Pointer(4, 2, "one")}, 2, {0: Pointer(5, 3, "one"), 1: Pointer(0, 3, "one"), 7: None}),
        # Another name: the pipeline has pointers of other topics only.
        ({}, 4, {0: Pointer(5, 5, "one"), 1: Pointer(0, 5, "one")}),
    ],
)
def test_a_reset_writes_what_the_topic_calls_for(
    pointers: dict[int, Pointer], newest: int | None, planned: dict[int, Pointer | None]
) -> None:
    assert plan_reset(pointers, HELD, newest) == planned


def test_a_topic_that_is_named_again_is_newer_than_the_one_that_was_applied_meanwhile() -> None:
    assert plan_reset(FITS, HELD, 3, foreign=3) == {0: Pointer(5, 4, "one"), 1: Pointer(0, 4, "one")}
    assert plan_reset(FITS, HELD, 2, foreign=1) == {}


@pytest.fixture
def renamed(tmp_path: Path) -> Iterator[Database]:
    """The pointers of a table whose mapping named `a`, then `b`, and was reset for that."""
    with closing(SqlTableStores(f"sqlite:///{tmp_path / 'target.db'}", MAPPING)()) as store:
        store.install()
        store.begin("a", None, {0: 9})
        store.begin("b", None, {0: 4})
    with closing(open_database(f"sqlite:///{tmp_path / 'target.db'}", "test")) as opened:
        opened.execute("UPDATE inorder_pointer SET generation = 1 WHERE topic = 'b'")
        yield opened


def gate_of(database: Database, topic: str) -> SliceWork | None:
    mapping = replace(MAPPING, topic=topic)
    target = TableTarget(mapping, SqlTableStores("sqlite:///unused.db", mapping))
    return GenerationGate(SqlTopicGenerations(database), SqlPointers(database)).reading(UpsertWork((target,)))


def test_a_former_topic_that_a_mapping_names_again_is_refused(renamed: Database) -> None:
    assert gate_of(renamed, "b") is not None
    with pytest.raises(OtherTopicError, match="has applied topic 'b' and now reads 'a'"):
        gate_of(renamed, "a")
    renamed.execute("UPDATE inorder_pointer SET generation = 2 WHERE topic = 'a'")
    assert gate_of(renamed, "a") is not None


def test_all_of_a_topic_is_applied_again_where_that_is_asked_for() -> None:
    assert plan_reset(FITS, HELD, 2, from_first=True) == {0: Pointer(5, 3, "one"), 1: Pointer(0, 3, "one")}


@pytest.mark.parametrize("held", [None, HeldTopic("two", {0: Extent(0, 1)})])
def test_a_closed_generation_that_is_gone_counts_as_read(held: HeldTopic | None) -> None:
    assert plan_reset(FITS, held, 2, ends=(9, 4)) == {0: Pointer(9, 2, "one", 9), 1: Pointer(4, 2, "one", 4)}
    assert plan_reset(FITS, HELD, 2, ends=(9, 4)) == {}


def test_a_closed_generation_is_applied_again_up_to_its_end_where_that_is_asked_for() -> None:
    # Copies lie behind the ends; partition 2 was added later and holds nothing of it.
    held = HeldTopic("one", {0: Extent(5, 30), 1: Extent(0, 4), 2: Extent(0, 8)})
    again = {0: Pointer(5, 3, "one", 9), 1: Pointer(0, 3, "one", 4), 2: Pointer(0, 3, "one", 0)}
    assert plan_reset(FITS, held, 2, ends=(9, 4), from_first=True) == again


def test_a_closed_generation_of_another_name_is_applied_and_not_skipped() -> None:
    assert plan_reset({}, HELD, 2, ends=(9, 4)) == {0: Pointer(5, 3, "one", 9), 1: Pointer(0, 3, "one", 4)}
    assert plan_reset(FITS, HELD, 3, ends=(9, 4), foreign=3) == {
        0: Pointer(5, 4, "one", 9),
        1: Pointer(0, 4, "one", 4),
    }


def test_partitions_that_do_not_reach_the_end_of_their_generation_count_as_read() -> None:
    held = HeldTopic("one", {0: Extent(5, 9)})
    assert plan_reset({}, held, 2, ends=(12, 4)) == {0: Pointer(12, 3, "one", 12), 1: Pointer(4, 3, "one", 4)}


class Cluster(MemorySource):
    """Two Kafka topics of one partition."""

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        return {"a": {0: Extent(0, 9)}, "a.g1": {0: Extent(0, 5)}}.get(topic)

    def topic_id(self, topic: str) -> str | None:
        return topic


def test_a_generation_behind_which_later_ones_were_applied_is_not_applied_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'target.db'}"
    with closing(SqlTableStores(url, MAPPING)()) as store:
        store.install()
        store.begin("a", None, {0: 4})
    with closing(open_database(url, "test")) as database:
        generations = (Generation(0, "a", 1, (9,)), Generation(1, "a.g1", 1))
        assert SqlTopicGenerations(database).replace(TopicState("a", generations))
        SqlPointers(database).begin(MAPPING.pipeline, generations[1])
        work = UpsertWork((TableTarget(MAPPING, SqlTableStores(url, MAPPING)),))
        reset = PipelineReset(work, database, SqlTopicGenerations(database), Cluster())
        with pytest.raises(ConfigurationError, match=r"'a\.g1', a later generation, was applied"):
            reset.run("a", from_first=True)
        assert reset.run("a") == []
        database.execute("DELETE FROM inorder_pointer WHERE topic = 'a.g1'")
        [changed] = reset.run("a", from_first=True)
        assert (changed.topic, changed.after) == ("a", Pointer(0, 1, "a", 9))
        database.execute("UPDATE inorder_pointer SET next_offset = 9")
        [changed] = reset.run("a", from_first=True)
        assert (changed.topic, changed.after) == ("a.g1", Pointer(0, 2, "a.g1"))
