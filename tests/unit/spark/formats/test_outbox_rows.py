"""The rows of an outbox as Spark sees them, on a file of SQLite."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql.types import LongType, StringType, StructField, StructType

import inorder
from inorder.model.errors import ConfigurationError
from inorder.model.message import OutboxRow
from inorder.outbox.formats import OutboxReader, columns, cut
from inorder.outbox.layouts import LAYOUTS, install_statements
from inorder.outbox.stores.table import IdRange, SqlWaitingRows
from inorder.spark.formats import OutboxSource


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with an outbox and three messages in it."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in install_statements("native", "sqlite", "outbox"):
            connection.execute(sa.text(statement))
        inorder.Outbox("outbox").publish_list(
            connection,
            [
                inorder.Message("orders", key=str(number), value={"id": number}, headers={"h": "x"})
                for number in (1, 2, 3)
            ],
        )
    return url


def read(reader: OutboxReader) -> list[list[int]]:
    return [[row[0] for row in reader.read(partition)] for partition in reader.partitions()]


def test_every_row_is_in_one_range(url: str) -> None:
    rows = SqlWaitingRows(url, "outbox", "native")
    assert rows.extent() == IdRange(1, 3)
    assert read(OutboxReader(rows)) == [[1, 2, 3]]
    assert read(OutboxReader(rows, 2)) == [[1, 2], [3]]


def test_an_empty_outbox_is_one_empty_partition(url: str, tmp_path: Path) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM outbox"))
    assert read(OutboxReader(SqlWaitingRows(url, "outbox", "native"))) == [[]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_can_be_looked_at(layout: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in install_statements(layout, "sqlite", "events"):
            connection.execute(sa.text(statement))
    rows = SqlWaitingRows(url, "events", layout)
    assert (rows.extent(), rows.rows(IdRange(1, 9))) == (None, [])


def test_a_row_is_shown_as_it_would_be_sent(url: str) -> None:
    rows = SqlWaitingRows(url, "outbox", "native").rows(IdRange(2, 2))
    [found] = map(columns, rows)
    assert found == (2, "orders", b"2", b'{"id":2}', [("h", b"x")], None, None, None)


def test_times_and_flaws_are_shown() -> None:
    row = OutboxRow(1, "", None, None, (), 4, 1_767_225_600_001, "topic is empty")
    at = datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    assert columns(row) == (1, "", None, None, [], 4, at, "topic is empty")


def test_a_table_that_is_not_there_is_named(url: str) -> None:
    with pytest.raises(ConfigurationError, match="'elsewhere' is not an outbox table of layout 'native'"):
        SqlWaitingRows(url, "elsewhere", "native").extent()


@pytest.mark.parametrize(
    ("extent", "ids", "ranges"), [((1, 1), 5, 1), ((1, 5), 5, 1), ((1, 6), 5, 2), ((7, 30), 1, 24)]
)
def test_ranges_meet_without_a_gap(extent: tuple[int, int], ids: int, ranges: int) -> None:
    found = list(cut(IdRange(*extent), ids))
    assert len(found) == ranges
    assert [number for each in found for number in range(each.first, each.last + 1)] == list(
        range(extent[0], extent[1] + 1)
    )


def test_a_stream_is_refused_with_the_command_that_does_it() -> None:
    with pytest.raises(ConfigurationError, match="is a relay, which must be fenced") as refused:
        OutboxSource({}).streamReader(StructType()).initialOffset()
    assert "`inorder relay run`" in refused.value.hint
    assert "`inorder pipeline run relay`" in refused.value.hint


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_a_range_has_at_least_one_id(text: str, url: str) -> None:
    source = OutboxSource({"url": url, "ids_per_partition": text})
    with pytest.raises(ConfigurationError, match=f"'ids_per_partition' is '{text}'"):
        source.reader(schema())


@pytest.mark.usefixtures("empty_place")
def test_another_schema_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="has a fixed schema"):
        OutboxSource({"url": url}).reader(StructType([StructField("id", LongType())]))


def schema() -> StructType:
    names = ("id", "topic", "key", "value", "headers", "partition", "timestamp", "flaw")
    return StructType([StructField(name, StringType()) for name in names])
