"""Empty databases of the session's PostgreSQL, emptied after a test and given to the next one.

CREATE DATABASE copies 7 MB, most of what a short test with PostgreSQL would take. Dropping what a test has created and
renaming the database takes a few milliseconds, and to the next test it is the same: no schema but an empty `public`, no
settings of its own, no other session, and a name that was never used.
"""

from __future__ import annotations

from collections import deque
from typing import Any, LiteralString

import psycopg
from psycopg import Connection
from psycopg.errors import ObjectInUse
from psycopg.sql import SQL, Identifier
from sqlalchemy.engine import make_url

from inorder.embedded import Postgres

# RENAME waits until they have ended.
_END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
_DROP_SCHEMAS = """
DO $$ DECLARE
    name text;
BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
END $$;
CREATE SCHEMA public AUTHORIZATION pg_database_owner;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""
_IS_LIKE_NEW = """
SELECT datacl IS NULL
   AND NOT EXISTS (SELECT FROM pg_publication) AND NOT EXISTS (SELECT FROM pg_event_trigger)
   AND NOT EXISTS (SELECT FROM pg_largeobject_metadata) AND NOT EXISTS (SELECT FROM pg_default_acl)
   AND NOT EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase = pg_database.oid)
   AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE database = current_database())
FROM pg_database WHERE datname = current_database()
"""


_SPARE = 2
"""The one given back last is not taken at once: RENAME would wait for the end of the session that emptied it."""


class SpareDatabases:
    """The databases that no test of this worker uses."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._admin = self._connect("postgres")
        self._spare: deque[str] = deque()

    def take(self, name: str) -> str:
        """An empty database with this name; returns its URL."""
        if len(self._spare) < _SPARE:
            return self._server.create_database(name)
        self._alter("ALTER DATABASE {} RENAME TO {}", self._spare.popleft(), name)
        return self._server.url_of(name)

    def give_back(self, name: str) -> None:
        """Empties it, or drops it if the test changed what this module does not undo."""
        self._admin.execute(_END_SESSIONS, (name,))
        self._alter("ALTER DATABASE {} RESET ALL", name)
        # Before the rest, so that a process of the test cannot connect again.
        spare = f"spare_{name}"
        try:
            self._alter("ALTER DATABASE {} RENAME TO {}", name, spare)
        except ObjectInUse:  # a process of the test connects again and again
            self._server.drop_database(name)
            return
        with self._connect(spare) as connection:
            connection.execute(_DROP_SCHEMAS)
            is_like_new = connection.execute(_IS_LIKE_NEW).fetchone() == (True,)
        if is_like_new:
            self._spare.append(spare)
        else:
            self._server.drop_database(spare)

    def close(self) -> None:
        """Drops the spare databases."""
        self._admin.close()
        for name in self._spare:
            self._server.drop_database(name)

    def _alter(self, statement: LiteralString, *names: str) -> None:
        self._admin.execute(SQL(statement).format(*map(Identifier, names)))

    def _connect(self, database: str) -> Connection[Any]:
        url = make_url(self._server.url_of(database)).set(drivername="postgresql")
        return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)
