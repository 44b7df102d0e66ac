"""Nothing waits behind the end of a closed generation, nor in a topic that the mapping named before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from inorder.database.database import Database, open_database
from inorder.engines.mirror import mirrored
from inorder.engines.survey import backlog, behind
from inorder.model.partitioning import Extent, Place
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.status import pipeline_backlog, pipeline_lag, pipeline_progress, pipeline_status
from inorder.pipeline.stores.table import SqlTableStores
from inorder.topics.generations import Generation, TopicState
from inorder.topics.stores.generations import SqlPointers, SqlTopicGenerations
from tests.unit.pipeline.test_progress import EndingSource

MAPPING = TableMapping("upsert:messages", "a", "messages")
CLOSED = Generation(0, "a", 2, (40, 7))
STATE = TopicState("a", (CLOSED, Generation(1, "a.g1", 1)))


class CopiedSource(EndingSource):
    """Every partition has records up to its end: in generation 0 these are copies of generation 1."""

    def __init__(self, *, hidden: Mapping[Place, int] | None = None) -> None:
        held = {"a": {0: Extent(0, 90), 1: Extent(0, 60)}, "a.g1": {0: Extent(0, 20)}, "former": {0: Extent(0, 5)}}
        super().__init__(held, {("a", 0), ("a", 1)}, hidden=dict(hidden or {}))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """The pointers of a pipeline that has applied another topic before, then the first generation of this one."""
    url = f"sqlite:///{tmp_path / 'target.db'}"
    with closing(SqlTableStores(url, MAPPING)()) as store:
        store.install()
        store.begin("former", None, {0: 2})
        store.begin("a", None, {0: 40, 1: 7})
        store.begin("a.g1", None, {0: 20})
    with closing(open_database(url, "test")) as opened:
        assert SqlTopicGenerations(opened).replace(STATE)
        SqlPointers(opened).close_generation(CLOSED)
        yield opened


def test_copies_behind_the_end_of_a_drained_generation_are_no_lag_and_have_no_age(database: Database) -> None:
    source = CopiedSource(hidden={("a", 1): 3})
    assert pipeline_lag([MAPPING], database, source) == {("a", 0): 0, ("a", 1): 0, ("a.g1", 0): 0}
    found = pipeline_backlog([MAPPING], database, source)
    assert set(found.records.values()) == set(found.undecided.values()) == {0}
    assert found.oldest_seconds == {}
    status = pipeline_status([MAPPING], database, source)
    assert (status["behind"], status["undecided"], status["oldest_seconds"]) == (0, 0, None)


def test_a_topic_that_the_mapping_no_longer_names_is_left_out(database: Database) -> None:
    status = pipeline_status([MAPPING], database, CopiedSource())
    assert {each["topic"] for each in status["partitions"]} == {"a", "a.g1"}
    assert {topic for topic, _ in pipeline_progress([MAPPING], database).pointers} == {"a", "a.g1"}


def test_of_a_closed_generation_what_lies_before_its_end_waits(database: Database) -> None:
    database.execute("UPDATE inorder_pointer SET next_offset = 30 WHERE topic = 'a' AND next_offset = 40")
    found = pipeline_backlog([MAPPING], database, CopiedSource())
    assert found.records == {("a", 0): 10, ("a", 1): 0, ("a.g1", 0): 0}
    assert found.oldest_seconds.keys() == {("a", 0)}


def test_pointers_of_version_0_1_0_have_no_ends(database: Database) -> None:
    database.execute("ALTER TABLE inorder_pointer DROP COLUMN end_offset")
    assert pipeline_progress([MAPPING], database).ends == {}
    assert pipeline_lag([MAPPING], database, CopiedSource())["a", 0] == 50


def test_an_end_bounds_the_lag_whatever_is_written_behind_it() -> None:
    source, ends = CopiedSource(hidden={("a", 0): 5}), {("a", 0): 40, ("a", 1): 7}
    assert behind(source, ("a",), {("a", 0): 40, ("a", 1): 3}, ends) == {("a", 0): 0, ("a", 1): 4}
    assert source.starts == {}, "of a closed partition with offsets left the last one is a record"
    found = backlog(source, ("a",), {("a", 0): 40, ("a", 1): 3}, ends, clock=lambda: 10.0)
    assert found.undecided == {("a", 0): 0, ("a", 1): 0}
    assert found.oldest_seconds == {("a", 1): 7.0}


def test_other_tools_see_no_lag_of_a_drained_generation() -> None:
    pointers = {("a", 0): 40, ("a", 1): 3}
    assert mirrored(CopiedSource(), ("a",), pointers, {("a", 0): 40, ("a", 1): 7}) == {("a", 0): 90, ("a", 1): 3}
