"""A plan is read from the statements that an installation runs: every one of them is understood."""

from __future__ import annotations

import pytest

from inorder.database.schema_plan import Catalogue, plan_changes, read_change
from inorder.journal.stores.postgres import journal_tables
from inorder.operate.schema import configured_layouts, schema_statements
from inorder.settings import Settings

LAYOUTS = ("native", "goharvest", "debezium", "deimos", "trendyol", "table")
NOT_DDL = ("INSERT", "PREPARE", "EXECUTE", "DEALLOCATE")
EMPTY = Catalogue(lambda _: (), lambda _: ())


def statements_of(layout: str, dialect: str) -> list[str]:
    return schema_statements(Settings.load(None), layout, dialect)


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_statement_of_an_installation_is_understood(layout: str, dialect: str) -> None:
    statements = statements_of(layout, dialect)
    unread = [each for each in statements if read_change(each) is None]
    assert [each for each in unread if not each.startswith(NOT_DDL)] == []
    planned = plan_changes(statements, EMPTY)
    assert {change.kind for change in planned} <= {"table", "index"}, "new tables have all columns"
    assert all(change.statement in statements for change in planned)
    created = [change.name for change in planned if change.kind == "table"]
    assert len(created) == len(set(created)) == sum(each.startswith("CREATE TABLE") for each in set(statements))


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (
            "postgresql",
            {
                "ALTER TABLE inorder_pointer ADD COLUMN IF NOT EXISTS topic_id text",
                "ADD COLUMN IF NOT EXISTS end_offset bigint",
                "unknown_fields",
            },
        ),
        (
            "mysql",
            {
                "ALTER TABLE inorder_pointer ADD COLUMN topic_id VARCHAR(64), ADD COLUMN leader_epoch INT,",
                "ALTER TABLE inorder_pointer ADD COLUMN unknown_fields TEXT",
            },
        ),
        (
            "sqlite",
            {
                "ALTER TABLE inorder_pointer ADD COLUMN topic_id TEXT",
                "ALTER TABLE inorder_pointer ADD COLUMN unknown_fields TEXT",
            },
        ),
    ],
)
def test_a_pointer_table_of_version_0_1_0_gets_its_columns(dialect: str, expected: set[str]) -> None:
    indexes = [change.name for change in plan_changes(statements_of("table", dialect), EMPTY) if change.kind == "index"]
    old = Catalogue(lambda _: ("pipeline", "next_offset"), lambda _: indexes)
    planned = plan_changes(statements_of("table", dialect), old)
    assert {(change.kind, change.table) for change in planned} == {("columns", "inorder_pointer")}
    text = "\n".join(change.statement for change in planned)
    assert all(each in text for each in expected)
    up_to_date = Catalogue(lambda _: [*(change.name for change in planned), "pipeline"], lambda _: indexes)
    assert plan_changes(statements_of("table", dialect), up_to_date) == []


def test_a_journal_store_of_an_earlier_version_gets_table_columns_and_index() -> None:
    there = {"snapshot": {"id"}, "journal_topic": set[str]()}
    old = Catalogue(lambda table: there.get(table, {"id"}), lambda _: {"metajournal_created_date"})
    planned = plan_changes(journal_tables(), old)
    assert [(change.kind, change.name) for change in planned] == [
        ("index", "metajournal_expire_on"),
        ("table", "journal_topic"),
        ("columns", "offset"),
    ]


def test_the_layouts_of_the_settings_are_planned() -> None:
    url = {"url": "postgresql+psycopg://localhost/x"}
    assert configured_layouts(Settings.load(None)) == []
    assert configured_layouts(Settings.load(None, database=url)) == ["native"]
    everything = Settings.load(
        None, database=url, pipeline={"upsert": {"topic": "a", "table": "b"}}, journal={"snapshots": 3}
    )
    assert configured_layouts(everything) == ["native", "table", "journal"]


def test_every_alter_that_mysql_chooses_is_run_also_where_several_mappings_share_a_table() -> None:
    tables = [{"topic": name, "table": name} for name in ("a", "b")]
    settings = Settings.load(None, pipeline={"tables": tables})
    statements = schema_statements(settings, "table", "mysql")
    chosen = [each for each in statements if each.startswith("SET @")]
    assert len(chosen) == len(set(chosen)) == statements.count("EXECUTE inorder_install") > 1
    assert sum(each.startswith("CREATE TABLE IF NOT EXISTS inorder_pointer") for each in statements) == 1
