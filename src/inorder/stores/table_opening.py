"""From a URL to the stores of a target table."""

from __future__ import annotations

from inorder.pipeline.mapping import TableMapping
from inorder.ports.table_store import TableStores
from inorder.stores.database import Dialect
from inorder.stores.opening import dialect_of
from inorder.stores.table_sql import TableSql


def table_stores(url: str, mapping: TableMapping) -> TableStores:
    """Opens stores of a mapping in the database of a SQLAlchemy URL; drivers that are not used are not imported."""
    match dialect_of(url):
        case "postgres":
            from inorder.stores.postgres.table import PostgresTableStores

            return PostgresTableStores(url, mapping)
        case "mysql":
            from inorder.stores.mysql.table import MySQLTableStores

            return MySQLTableStores(url, mapping)
        case "sqlite":
            from inorder.stores.sqlite.table import SQLiteTableStores

            return SQLiteTableStores(url, mapping)


def table_sql(dialect: Dialect, mapping: TableMapping) -> TableSql:
    """The statements of a mapping, for which no driver is needed."""
    match dialect:
        case "postgres":
            from inorder.stores.postgres.table_sql import PostgresTableSql

            return PostgresTableSql(mapping)
        case "mysql":
            from inorder.stores.mysql.table_sql import MySQLTableSql

            return MySQLTableSql(mapping)
        case "sqlite":
            from inorder.stores.sqlite.table_sql import SQLiteTableSql

            return SQLiteTableSql(mapping)
