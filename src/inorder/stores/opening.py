"""From a URL to the database behind it."""

from __future__ import annotations

from inorder.outbox.layouts import family
from inorder.stores.database import Database, Dialect


def dialect_of(url: str) -> Dialect:
    """Which SQL the database of a SQLAlchemy URL speaks; one we do not know is refused."""
    scheme = url.partition("://")[0].partition("+")[0]
    return family(scheme)


def open_database(url: str, application_name: str) -> Database:
    """The database of a SQLAlchemy URL; it connects when it is first used, under this name where names are shown."""
    # Imported here, because the drivers are extras.
    match dialect_of(url):
        case "postgres":
            from inorder.stores.postgres.database import PostgresDatabase

            return PostgresDatabase(url, application_name)
        case "mysql":
            from inorder.stores.mysql.database import MySQLDatabase

            return MySQLDatabase(url, application_name)
        case "sqlite":
            from inorder.stores.sqlite.database import SQLiteDatabase

            return SQLiteDatabase(url, application_name)
