"""Every layout is complete in every dialect, and says what it can do."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple

import pytest

from inorder.database.sql import quoted_table
from inorder.model.errors import ConfigurationError
from inorder.model.names import USUAL_TABLES, SideTables
from inorder.outbox.layouts import LAYOUTS, install_statements, layout, lock_table

DIALECTS = ("postgresql", "mysql", "sqlite")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_its_fragments_in_every_dialect(name: str, dialect: str) -> None:
    found = layout(name, dialect)
    assert found.columns.startswith(found.id), "the id comes first"
    assert found.topic
    assert found.key
    assert found.written_at
    fragments = (found.id, found.columns, found.topic, found.key, found.written_at)
    assert not any("{" in fragment or ";" in fragment for fragment in fragments)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_which_layouts_cannot_be_marked(dialect: str) -> None:
    assert [name for name in LAYOUTS if layout(name, dialect).leader_id is None] == ["debezium", "deimos", "trendyol"]


def test_only_our_own_writers_on_postgres_wake_a_relay() -> None:
    waking = [(name, dialect) for name in LAYOUTS for dialect in DIALECTS if layout(name, dialect).wakes_us]
    assert waking == [("native", "postgresql"), ("deimos", "postgresql")]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_statement_names_the_table_it_was_given(name: str, dialect: str) -> None:
    first, *_ = install_statements(name, dialect, "box")
    assert first.startswith(f"CREATE TABLE IF NOT EXISTS {quoted_table(dialect, 'box')}")


@pytest.mark.parametrize("name", LAYOUTS)
def test_installing_twice_changes_nothing(name: str) -> None:
    with sqlite3.connect(":memory:") as connection:
        for statement in install_statements(name, "sqlite", "outbox") * 2:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("table", "locks"), [("messages", "kafka_topic_info"), ("app.messages", "app.kafka_topic_info")]
)
def test_the_locks_of_the_deimos_layout_are_beside_its_messages(dialect: str, table: str, locks: str) -> None:
    made = "\n".join(install_statements("deimos", dialect, table))
    assert f"CREATE TABLE IF NOT EXISTS {quoted_table(dialect, locks)} (" in made
    assert lock_table(table) == locks


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("table", "sides", "expected"),
    [
        ("events", USUAL_TABLES, ("missing_outbox_events", "exceeded_outbox_events", "outbox_offsets")),
        ("app.events", USUAL_TABLES, ("app.missing_outbox_events", "app.exceeded_outbox_events", "app.outbox_offsets")),
        ("app.events", SideTables("a", "b.c", "d"), ("app.a", "b.c", "app.d")),
    ],
)
def test_the_tables_of_the_trendyol_layout_are_beside_its_events(
    dialect: str, table: str, sides: SideTables, expected: tuple[str, ...]
) -> None:
    made = "\n".join(install_statements("trendyol", dialect, table, sides))
    assert astuple(sides.beside(table)) == expected
    for name in expected:
        assert f"CREATE TABLE IF NOT EXISTS {quoted_table(dialect, name)} (" in made


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_the_exceeded_events_get_a_column_that_the_original_lacks(dialect: str) -> None:
    added = [each for each in install_statements("trendyol", dialect, "events") if "ADD COLUMN" in each]
    assert len(added) == (0 if dialect == "sqlite" else 1)
    assert all("exceeded_outbox_events" in each and "reason" in each for each in added)


def test_an_unknown_layout_or_database_is_refused_with_what_is_known() -> None:
    with pytest.raises(ConfigurationError, match="'columns' is not a layout") as refusal:
        layout("columns", "postgresql")
    assert "native, goharvest, debezium, deimos, trendyol" in (refusal.value.hint or "")
    with pytest.raises(ConfigurationError, match="'oracle'"):
        layout("native", "oracle")
