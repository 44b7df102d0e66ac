"""PostgreSQL: reachable, notifications, the outbox table and its ids, rights, the pipeline's tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy.engine import URL

from inorder import sql
from inorder.doctor import outbox
from inorder.doctor.check import Check, fail, ok, warn
from inorder.outbox.layouts import Layout, layout
from inorder.settings import Settings
from inorder.settings.relay import RelaySettings
from inorder.stores.database import CursorTransaction
from inorder.stores.postgres.sqlstate import our_errors

CONNECT_SECONDS = 5
NOTIFY_SECONDS = 2.0
OLDEST = 120_000


@dataclass(frozen=True, slots=True)
class Server:
    """Who answers, and whether it takes writes."""

    version: str
    number: int
    autovacuum: bool
    standby: bool
    user: str
    schema: str
    may_create: bool


class Postgres:
    """Asks the named questions of `postgres.sql`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.transaction = CursorTransaction(connection.cursor())
        self._statements = sql.load("inorder.doctor", "postgres.sql")

    def ask(self, name: str, **bound: object) -> list[tuple[Any, ...]]:
        """The rows of the answer."""
        return self.transaction.execute(self._statements[name], bound).rows

    def has(self, table: str) -> bool:
        """Whether a table is there."""
        return bool(self.ask("table_exists", table=sql.quoted(table))[0][0])


def examine_postgres(url: URL, shown: str, settings: Settings) -> Iterator[Check]:
    """What outbox, relay and pipeline need."""
    conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with our_errors(), psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
        database = Postgres(connection)
        database.ask("limits")
        server = Server(*database.ask("server")[0])
        yield _server(shown, server)
        yield _notifications(database, settings.relay)
        yield from _outbox(database, settings.relay, server)
        yield from outbox.pipeline_tables(settings, database.has)


def _server(shown: str, server: Server) -> Check:
    detail = f"PostgreSQL {server.version} at {shown} as {server.user}"
    if server.number < OLDEST:
        return fail("database", detail, "Use PostgreSQL 12 or newer.")
    if server.standby:
        return fail("database", f"{detail}, a read-only standby", "Point database.url at the primary.")
    return ok("database", detail)


def _notifications(database: Postgres, relay: RelaySettings) -> Check:
    if not layout(relay.layout, "postgresql").wakes_us:
        detail = f"not used: writers of the layout {relay.layout} send none, and the relay looks for itself"
        return ok("database notifications", detail)
    database.ask("listen")
    database.ask("notify")
    if any(database.connection.notifies(timeout=NOTIFY_SECONDS, stop_after=1)):
        return ok("database notifications", "LISTEN and NOTIFY work")
    return warn(
        "database notifications",
        "a NOTIFY did not come back",
        "A pooler in transaction mode loses them; the relay then polls. Connect it to the server directly.",
    )


def _outbox(database: Postgres, relay: RelaySettings, server: Server) -> Iterator[Check]:
    if not database.has(relay.table):
        yield outbox.missing_table(relay, _how_to_make(relay, server))
        return
    quoted, found = sql.quoted(relay.table), layout(relay.layout, "postgresql")
    columns = outbox.columns(relay, "postgresql", [name for (name,) in database.ask("columns", table=quoted)])
    yield columns
    if columns.status == "fail":
        return
    is_there = database.ask("index", table=quoted, column=found.id)[0][0]
    yield outbox.index(relay, "postgresql", is_there=is_there)
    yield _ids(database, relay.table, found)
    lacking = database.ask("lacking", table=quoted, rights=list(outbox.needed_rights(relay)))
    yield outbox.rights(relay, server.user, [right for (right,) in lacking])
    yield _vacuum(database, relay.table, server)
    yield outbox.registration(relay, database.transaction, "postgres", is_there=database.has(outbox.REGISTRY))
    yield _own_tables(database, server)


def _how_to_make(relay: RelaySettings, server: Server) -> str:
    if server.may_create:
        return ""
    command = f"inorder schema sql --layout {relay.layout}"
    return f"{server.user} may not create tables: give the output of `{command}` to someone who may."


def _ids(database: Postgres, table: str, layout: Layout) -> Check:
    """Whether ids follow the order of the transactions, as the relay's scan takes them to."""
    found = database.ask("sequence", table=sql.quoted(table), column=layout.id)
    if not found:
        hint = f"Make it an identity, or let its sequence belong to it: ALTER SEQUENCE … OWNED BY {table}.{layout.id}."
        return fail("outbox ids", f"{table}.{layout.id} has no sequence of its own", hint)
    name, cache, is_identity = found[0]
    detail = f"{'identity' if is_identity else 'sequence'} with CACHE {cache}"
    if cache == 1:
        return ok("outbox ids", detail)
    hint = f"Run ALTER SEQUENCE {name} CACHE 1; ids must follow the order of the transactions."
    return fail("outbox ids", f"{table}.{layout.id} has {detail}", hint)


def _vacuum(database: Postgres, table: str, server: Server) -> Check:
    if server.autovacuum and not database.ask("vacuum_off", table=sql.quoted(table))[0][0]:
        return ok("outbox vacuum", "autovacuum is on")
    hint = "Switch autovacuum on: dead rows of a queue slow it down within hours."
    return warn("outbox vacuum", f"autovacuum is off for {table}", hint)


def _own_tables(database: Postgres, server: Server) -> Check:
    """The relay makes what it misses, if it may."""
    missing = [table for table in outbox.OWN_TABLES if not database.has(table)]
    if not missing:
        return ok("relay tables", "all are there")
    if server.may_create:
        return ok("relay tables", f"{server.user} may make them")
    grant = f"GRANT CREATE ON SCHEMA {server.schema} TO {server.user}"
    hint = f"Run `inorder schema install` as a user who may, or {grant}."
    return fail("relay tables", f"{', '.join(missing)} missing, and {server.user} may not create tables", hint)
