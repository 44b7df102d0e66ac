"""Every table has its rights, and no role has more than its work needs."""

from __future__ import annotations

from typing import Any

import pytest

from inorder.model.errors import ConfigurationError
from inorder.operate.doctor import OWN_TABLES, PIPELINE_TABLES, needed_rights
from inorder.operate.roles import RIGHTS, ROLES, granted_layouts, granted_tables, roles_sql
from inorder.outbox.layouts import LAYOUTS
from inorder.settings import Settings

SETTINGS = Settings.load(None, pipeline={"upsert": {"topic": "orders", "table": "sales.orders"}})


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
@pytest.mark.parametrize("layout", [*LAYOUTS, "table", "projection"])
def test_every_table_of_an_installation_has_its_rights(layout: str, dialect: str) -> None:
    tables = list(granted_tables(SETTINGS, layout, dialect))
    assert len(tables) > 1
    assert all(table.rights for table in tables)
    assert all(table.rights.keys() <= set(ROLES) for table in tables)


def test_every_table_of_the_journal_has_its_rights() -> None:
    unused = [table.table for table in granted_tables(SETTINGS, "journal", "postgresql") if not table.rights]
    assert unused == ["locks"]


def test_the_tables_that_the_doctor_looks_for_have_rights() -> None:
    assert all("relay" in RIGHTS[table] for table in OWN_TABLES if table != "inorder_exceeded_action")
    assert all("pipeline" in RIGHTS[table] for table in PIPELINE_TABLES)


def test_publishers_only_insert_and_readers_only_select() -> None:
    assert RIGHTS["[outbox]"]["publisher"] == RIGHTS["[kept]"]["publisher"] == ("INSERT",)
    assert {rights["reader"] for rights in RIGHTS.values() if "reader" in rights} == {("SELECT",)}
    assert "reader" not in RIGHTS["[outbox]"]


def test_a_row_lock_of_the_relay_needs_update_on_postgresql() -> None:
    """Setting a row aside locks it, whatever the strategy."""
    drain, marks = (Settings.load(None, relay={"strategy": name}).relay for name in ("drain", "mark-purge"))
    assert needed_rights(drain, "postgresql") == needed_rights(marks, "postgresql")
    assert needed_rights(drain, "postgresql") == ("INSERT", "SELECT", "DELETE", "UPDATE")


def test_schemas_sequences_and_names_of_roles_are_quoted() -> None:
    text = roles_sql(SETTINGS, ["goharvest", "table"], "postgresql", "shop_")
    assert 'GRANT INSERT ON "outbox" TO "shop_publisher";' in text
    assert 'GRANT USAGE ON SCHEMA "sales" TO "shop_reader";' in text
    assert "pg_get_serial_sequence('\"outbox\"', 'id') || ' TO \"shop_publisher\"'" in text
    native = roles_sql(SETTINGS, ["native"], "postgresql")
    assert "GRANT USAGE ON SEQUENCE" not in native, "an identity needs no right to its sequence"
    with pytest.raises(ConfigurationError, match="not a table name"):
        roles_sql(SETTINGS, ["native"], "postgresql", "x; DROP TABLE outbox; --")


def test_a_relay_that_keeps_rows_may_create_their_partitions() -> None:
    keeps = Settings.load(None, relay={"retention_days": 3, "table": "shop.outbox"})
    assert 'GRANT CREATE ON SCHEMA "shop" TO "inorder_relay";' in roles_sql(keeps, ["native"], "postgresql")
    assert "CREATE ON" not in roles_sql(SETTINGS, ["native", "table", "journal"], "postgresql")


def test_the_layouts_are_those_of_the_settings_in_this_database() -> None:
    url = "postgresql+psycopg://localhost/x"
    both: dict[str, Any] = {"database": {"url": url}, "pipeline": {"upsert": {"topic": "a", "table": "b"}}}
    assert granted_layouts(Settings.load(None)) == ["native"]
    assert granted_layouts(Settings.load(None, journal={"snapshots": 3}, **both)) == ["native", "table", "journal"]
    elsewhere = Settings.load(None, journal={"store": "cassandra://localhost/journal"}, **both)
    assert granted_layouts(elsewhere) == ["native", "table"]


def test_sqlite_has_no_roles() -> None:
    with pytest.raises(ConfigurationError, match="no roles"):
        roles_sql(SETTINGS, ["native"], "sqlite")
