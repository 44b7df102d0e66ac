"""Which columns fit the fields that a mapping does not name; nothing is added without being chosen."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inorder.database.database import Database, open_database
from inorder.engines.slice_work import Reading
from inorder.model.errors import ConfigurationError
from inorder.model.partitioning import Extent
from inorder.pipeline.growth import apply_columns, narrowest_type, plan_columns
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.stores.table import SqlTableStores
from inorder.topics.generations import Generation
from inorder.topics.stores.generations import SqlPointers
from tests.fakes.table_store import message, slice_of
from tests.unit.pipeline.old_letters import MemorySource
from tests.unit.pipeline.test_progress import EndingSource

MAPPING = TableMapping("demo", "upsert", "messages")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None], "boolean"),
        ([1, 2**40], "bigint"),
        ([1, 2.5], "double"),
        (["2026-01-31", ""], "date"),
        (["2026-01-31T12:00:00Z"], "timestamp"),
        (["8c1ed3cf-1b1b-4b1b-8b1b-1b1b1b1b1b1b"], "uuid"),
        (["2026-01-31", "soon"], "text"),
        ([1, "one"], "json"),
        ([{"a": 1}], "json"),
        ([None, ""], None),
        ([], None),
    ],
)
def test_the_narrowest_type_that_fits_all_values_is_suggested(values: list[Any], kind: str | None) -> None:
    assert narrowest_type(values) == kind


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'target.db'}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """A table that has had a record with two fields more than its mapping."""
    with closing(SqlTableStores(url, MAPPING)()) as store:
        store.install()
        apply_slice(store, MAPPING, slice_of((0, message(1, data="a", colour="red", **{"no column": 1}))))
    with closing(open_database(url, "test")) as opened:
        yield opened


def columns(url: str) -> list[str]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return [name for _, name, *_ in connection.execute("PRAGMA table_info(messages)")]


def test_a_plan_shows_what_could_be_added_and_adds_nothing(database: Database, url: str) -> None:
    before = columns(url)
    source = MemorySource()
    source.records, source.end = [(0, b"1", message(1, data="a", colour="red"))], 1
    found = {column.field: column for column in plan_columns(MAPPING, database, source)}
    assert found["colour"].statement == 'ALTER TABLE "messages" ADD COLUMN "colour" TEXT'
    assert (found["colour"].records, found["colour"].type) == (1, "text")
    assert (found["no column"].type, found["no column"].statement) == (None, None)
    assert columns(url) == before


class SwitchedSource(EndingSource):
    """The last records of the first generation do not have the field, those of the next one do."""

    def read(self, most: int, seconds: float) -> Reading:
        assert most
        assert seconds
        values = {"upsert": message(1, data="a"), "upsert.g1": message(1, colour="red")}
        slices = [slice_of((0, values[topic]), topic=topic, partition=number) for topic, number in self.starts]
        return Reading(slices, frozenset(self.starts))


def test_the_types_are_those_of_the_generation_that_is_read(database: Database) -> None:
    SqlPointers(database).begin(MAPPING.pipeline, Generation(1, "upsert.g1", 1))
    source = SwitchedSource({"upsert": {0: Extent(0, 1)}, "upsert.g1": {0: Extent(0, 1)}})
    found = {column.field: column.type for column in plan_columns(MAPPING, database, source)}
    assert found == {"colour": "text", "no column": None}


def test_only_chosen_columns_are_added_and_the_wider_mapping_fills_them(database: Database, url: str) -> None:
    before = columns(url)
    assert [one.field for one in apply_columns(MAPPING, database, {"colour": "text"}, dry_run=True)] == ["colour"]
    assert columns(url) == before
    apply_columns(MAPPING, database, {"colour": "text"})
    assert columns(url) == [*before, "colour"]
    assert apply_columns(MAPPING, database, {"colour": "text"}) == []
    wider = TableMapping("demo", "upsert", "messages", fields=(*MAPPING.fields, ("colour", "text")))
    with closing(SqlTableStores(url, wider)()) as store:
        store.install()
        apply_slice(store, wider, slice_of((1, message(1, colour="blue"))))
    assert database.execute("SELECT data, colour FROM messages").rows == [("a", "blue")]


@pytest.mark.parametrize(
    "chosen", [{"no column": "text"}, {"colour": "words"}, {"data": "text"}, {"updated_at": "text"}]
)
def test_what_a_mapping_could_not_name_is_refused(database: Database, url: str, chosen: dict[str, str]) -> None:
    before = columns(url)
    with pytest.raises(ConfigurationError):
        apply_columns(MAPPING, database, {"size": "bigint", **chosen})
    assert columns(url) == before
