"""The database: reachable, rights, tables, indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from inorder import sql
from inorder.doctor.check import Check, fail, of_error, ok, unreachable, warn
from inorder.model.errors import InorderError
from inorder.settings import Settings
from inorder.settings.url import masked

CONNECT_SECONDS = 5
NOTIFY_SECONDS = 2.0
OLDEST_POSTGRES = 120_000

# The native layout's; a test compares them with its DDL.
OUTBOX_COLUMNS = frozenset({"id", "topic", "key", "value", "headers", "partition", "timestamp", "created_at"})
PIPELINE_TABLES = ("inorder_pointer", "inorder_dead_letter")

Ask = Callable[..., list[Mapping[str, Any]]]

_START = "Start the database, or correct database.url; `inorder up` starts one here."


def examine_database(settings: Settings) -> list[Check]:
    """What the relay and the pipeline need from the database."""
    found: list[Check] = []
    try:
        url = make_url(settings.database.require_url())
        checks = _postgres(url, settings) if url.get_backend_name() == "postgresql" else _other(url)
        # What was found before an error stays in the list, and is told.
        found.extend(checks)
    except InorderError as error:
        found.append(of_error("database", error))
    except psycopg.OperationalError as error:
        found.append(unreachable("database", f"{_shown(url)}: {_first_line(error)}", _START))
    except (psycopg.Error, SQLAlchemyError) as error:
        hint = "Check database.url and the rights of its user."
        found.append(fail("database", _first_line(error), hint))
    return found


def _postgres(url: URL, settings: Settings) -> Iterator[Check]:
    conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(
        conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS, row_factory=dict_row
    ) as connection:
        ask = _asking(connection)
        ask("limits")
        server = ask("server")[0]
        yield _server(url, server)
        yield _notifications(connection, ask)
        yield from _outbox(ask, settings.relay.table, server)
        yield from _pipeline(ask, settings.pipeline.upsert.table)


def _asking(connection: psycopg.Connection[dict[str, Any]]) -> Ask:
    statements = sql.load("inorder.doctor", "database.sql")

    def ask(name: str, table: str | None = None) -> list[Mapping[str, Any]]:
        cursor = connection.execute(statements[name].encode(), {"table": sql.quoted(table)} if table else None)
        return list(cursor.fetchall()) if cursor.description else []

    return ask


def _server(url: URL, server: Mapping[str, Any]) -> Check:
    detail = f"PostgreSQL {server['version']} at {_shown(url)} as {server['user']}"
    if server["number"] < OLDEST_POSTGRES:
        return fail("database", detail, "Use PostgreSQL 12 or newer.")
    if server["standby"]:
        return fail("database", f"{detail}, a read-only standby", "Point database.url at the primary.")
    return ok("database", detail)


def _notifications(connection: psycopg.Connection[dict[str, Any]], ask: Ask) -> Check:
    ask("listen")
    ask("notify")
    if any(connection.notifies(timeout=NOTIFY_SECONDS, stop_after=1)):
        return ok("database notifications", "LISTEN and NOTIFY work")
    return warn(
        "database notifications",
        "a NOTIFY did not come back",
        "A pooler in transaction mode loses them; the relay then polls. Connect it to the server directly.",
    )


def _outbox(ask: Ask, table: str, server: Mapping[str, Any]) -> Iterator[Check]:
    if not ask("table_exists", table)[0]["found"]:
        yield fail("outbox table", f"{table} does not exist", _how_to_make("native", server))
        return
    columns = _columns(ask, table)
    yield columns
    if columns.status == "fail":
        return
    yield _primary_key(ask, table)
    yield _identity(ask, table)
    yield _rights(ask, table, server["user"])
    yield _vacuum(ask, table, server["autovacuum"])


def _how_to_make(layout: str, server: Mapping[str, Any]) -> str:
    if server["may_create"]:
        return f"Run `inorder schema install --layout {layout}`."
    command = f"inorder schema sql --layout {layout}"
    return f"{server['user']} may not create tables: give the output of `{command}` to someone who may."


def _columns(ask: Ask, table: str) -> Check:
    missing = sorted(OUTBOX_COLUMNS - {row["name"] for row in ask("columns", table)})
    if missing:
        hint = "Rename the table and run `inorder schema install --layout native`."
        return fail("outbox table", f"{table} lacks {', '.join(missing)}", hint)
    return ok("outbox table", f"{table} has the native columns")


def _primary_key(ask: Ask, table: str) -> Check:
    found = [row["name"] for row in ask("primary_key", table)]
    if found == ["id"]:
        return ok("outbox index", "primary key on id")
    hint = f"Run ALTER TABLE {table} ADD PRIMARY KEY (id); without it each batch reads the whole table."
    return fail("outbox index", f"the primary key of {table} is {', '.join(found) or 'missing'}", hint)


def _identity(ask: Ask, table: str) -> Check:
    caches = [row["cache"] for row in ask("identity_cache", table)]
    if caches == [1]:
        return ok("outbox ids", "identity with CACHE 1")
    found = f"an identity with CACHE {caches[0]}" if caches else "no identity"
    hint = f"Run ALTER TABLE {table} ALTER COLUMN id SET CACHE 1; ids must follow the order of the transactions."
    return fail("outbox ids", f"{table}.id is {found}", hint)


def _rights(ask: Ask, table: str, user: str) -> Check:
    missing = [name.upper() for name, granted in ask("rights", table)[0].items() if not granted]
    if missing:
        rights = ", ".join(missing)
        return fail("outbox rights", f"{user} lacks {rights} on {table}", f"Run GRANT {rights} ON {table} TO {user}.")
    return ok("outbox rights", f"{user} may INSERT, SELECT and DELETE")


def _vacuum(ask: Ask, table: str, autovacuum: bool) -> Check:
    if autovacuum and not ask("vacuum_off", table)[0]["off"]:
        return ok("outbox vacuum", "autovacuum is on")
    hint = "Switch autovacuum on: dead rows of a queue slow it down within hours."
    return warn("outbox vacuum", f"autovacuum is off for {table}", hint)


def _pipeline(ask: Ask, target: str) -> Iterator[Check]:
    for table in (*PIPELINE_TABLES, target):
        if ask("table_exists", table)[0]["found"]:
            yield ok("pipeline table", f"{table} exists")
        else:
            hint = "Needed by the pipeline only: run `inorder schema install --layout table`."
            yield warn("pipeline table", f"{table} does not exist", hint)


def _other(url: URL) -> Iterator[Check]:
    engine = create_engine(url, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            version = ".".join(str(part) for part in connection.dialect.server_version_info or ())
            connection.execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        yield unreachable("database", f"{_shown(url)}: {_first_line(error)}", _START)
        return
    detail = f"{url.get_backend_name()} {version} at {_shown(url)}"
    yield warn("database", detail, "Relay and pipeline of this version need PostgreSQL; the outbox works here.")


def _shown(url: URL) -> str:
    # SQLAlchemy hides the password before the @ only; one in the query needs our own mask.
    return masked(url.render_as_string(hide_password=True))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
