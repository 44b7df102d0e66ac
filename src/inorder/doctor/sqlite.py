"""An SQLite file: there, writable, the outbox table and its ids; opened for reading only."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from inorder import sql
from inorder.doctor import outbox
from inorder.doctor.check import Check, fail, ok, unreachable
from inorder.outbox.layouts import layout
from inorder.settings import Settings
from inorder.settings.relay import RelaySettings
from inorder.stores.database import CursorTransaction
from inorder.stores.sqlite.connect import path_of
from inorder.stores.sqlite.errors import our_errors

BUSY_SECONDS = 5.0

_STATEMENTS = sql.load("inorder.doctor", "sqlite.sql")


class SQLite:
    """Asks the named questions of `sqlite.sql`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.transaction = CursorTransaction(connection.cursor(), sql.named)

    def ask(self, name: str, **bound: object) -> list[tuple[Any, ...]]:
        """The rows of the answer."""
        return self.transaction.execute(_STATEMENTS[name], bound).rows


def examine_sqlite(shown: str, settings: Settings) -> Iterator[Check]:
    """What outbox, relay and pipeline need."""
    path = path_of(settings.database.require_url())
    place = Path(path.removeprefix("file:"))
    if not place.is_file():
        hint = "Correct database.url, or run `inorder schema install`, which makes the file."
        yield unreachable("database", f"{shown}: there is no such file", hint)
        return
    with our_errors(), closing(_opened(place)) as connection:
        questions = SQLite(connection)
        yield _file(f"SQLite {questions.ask('version')[0][0]} at {shown}", place)
        yield from _outbox(questions, settings.relay)
        yield from outbox.pipeline_tables(settings, lambda table: bool(questions.ask("table", table=table)))


def _opened(place: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)


def _file(detail: str, place: Path) -> Check:
    """Writers make files beside it, so the folder counts too."""
    for each in (place, place.absolute().parent):
        if not os.access(each, os.W_OK):
            return fail("database", f"{detail}: {each} is not writable", "Let this user write the file and its folder.")
    return ok("database", detail)


def _outbox(questions: SQLite, relay: RelaySettings) -> Iterator[Check]:
    name = relay.table.rpartition(".")[2]
    made = questions.ask("table", table=name)
    if not made:
        yield outbox.missing_table(relay)
        return
    found = dict(questions.ask("columns", table=name))
    columns = outbox.columns(relay, "sqlite", found)
    yield columns
    if columns.status == "fail":
        return
    id = layout(relay.layout, "sqlite").id
    yield outbox.index(relay, "sqlite", is_there=found[id] == 1)
    yield _ids(relay, id, is_numbered="AUTOINCREMENT" in made[0][0].upper())
    is_there = bool(questions.ask("table", table=outbox.REGISTRY))
    yield outbox.registration(relay, questions.transaction, "sqlite", is_there=is_there)


def _ids(relay: RelaySettings, id: str, *, is_numbered: bool) -> Check:
    if is_numbered:
        return ok("outbox ids", "AUTOINCREMENT")
    hint = f"Make the table anew: rename it and run `inorder schema install --layout {relay.layout}`."
    return fail("outbox ids", f"{relay.table}.{id} is not AUTOINCREMENT, so ids of deleted rows are given again", hint)
