"""The tables of a layout are made under the names that its relay looks for."""

from __future__ import annotations

from typing import Any

import pytest

from inorder.model.errors import ConfigurationError
from inorder.operate.schema import schema_sql
from inorder.settings import Settings


@pytest.mark.parametrize(
    ("relay", "layout", "table"),
    [
        ({}, "native", "outbox"),
        ({}, "deimos", "kafka_messages"),
        ({}, "trendyol", "outbox_events"),
        ({"layout": "trendyol"}, "trendyol", "outbox_events"),
        ({"table": "box"}, "trendyol", "box"),
        ({"layout": "trendyol", "table": "app.box"}, "trendyol", 'app"."box'),
    ],
)
def test_where_no_table_is_set_the_layout_names_it(relay: dict[str, Any], layout: str, table: str) -> None:
    made = schema_sql(Settings.load(relay=relay), layout, "postgresql")
    assert made.startswith(f'CREATE TABLE IF NOT EXISTS "{table}" (')


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_the_tables_beside_the_events_have_the_names_of_the_settings(dialect: str) -> None:
    polling = {"missing_table": "waiting", "exceeded_table": "other.given_up", "offset_table": "place"}
    relay = {"layout": "trendyol", "strategy": "polling", "table": "app.events", "polling": polling}
    quote = "`" if dialect == "mysql" else '"'
    made = schema_sql(Settings.load(relay=relay), "trendyol", dialect).replace(quote, "")
    for name in ("app.events", "app.waiting", "other.given_up", "app.place"):
        assert f"CREATE TABLE IF NOT EXISTS {name} (" in made


class TestJournal:
    """The layout journal is the store's, wherever that is."""

    @pytest.mark.parametrize(
        ("settings", "dialect", "words"),
        [
            ({}, None, "CREATE TABLE IF NOT EXISTS metajournal (\n    topic        text "),
            ({"database": {"url": "postgresql+psycopg://host/db"}}, None, "headers        jsonb"),
            ({"journal": {"store": "cassandra://host/mine"}}, None, 'CREATE TABLE IF NOT EXISTS "mine".metajournal ('),
            ({"journal": {"store": "cassandra://host/mine?replicas=3"}}, "cassandra", "'replication_factor': 3"),
            ({"journal": {"store": "cassandra://host/mine"}}, "postgresql", "headers        jsonb"),
            ({}, "cassandra", 'CREATE TABLE IF NOT EXISTS "journal".metajournal ('),
        ],
    )
    def test_the_ddl_is_that_of_the_store_or_of_what_was_asked_for(
        self, settings: dict[str, Any], dialect: str | None, words: str
    ) -> None:
        assert words in schema_sql(Settings.load(**settings), "journal", dialect)

    def test_a_database_that_cannot_hold_journals_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="Journals cannot be kept in a mysql database"):
            schema_sql(Settings.load(), "journal", "mysql")


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_the_tables_of_projections_are_printed_for_migrations(dialect: str) -> None:
    made = schema_sql(Settings.load(), "projection", dialect)
    assert made.count("CREATE TABLE IF NOT EXISTS inorder_projection") == 2
