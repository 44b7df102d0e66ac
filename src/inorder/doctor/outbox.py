"""Verdicts on an outbox table that are the same in every database; what the table is like, others found out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Final

from inorder.doctor.check import Check, fail, ok, warn
from inorder.model.errors import InorderError
from inorder.outbox.layouts import layout, statements
from inorder.ports.registry import Setup
from inorder.relay.reshard import refuse_other
from inorder.settings import Settings
from inorder.settings.relay import RelaySettings
from inorder.stores.database import Dialect, Transaction, statements_of
from inorder.stores.registry import registered

REGISTRY = "inorder_relay"
OWN_TABLES = ("inorder_exceeded", "inorder_exceeded_action", "inorder_lease", "inorder_member", REGISTRY)
PIPELINE_TABLES = ("inorder_pointer", "inorder_dead_letter", "inorder_tombstone")

_COLUMN: Final = re.compile(r'^\s+["`]?(\w+)["`]? ', re.MULTILINE)


def expected_columns(layout_name: str, dialect: str) -> frozenset[str]:
    """The columns that the DDL of a layout makes."""
    ddl = statements(layout_name, dialect)["install"]
    return frozenset(_COLUMN.findall(ddl[ddl.index("(") : ddl.index("\n)")]))


def needed_columns(relay: RelaySettings, dialect: str) -> frozenset[str]:
    """What the relay cannot do without: only `mark-purge` marks."""
    marks = layout(relay.layout, dialect).leader_id
    spared = {marks} if marks and relay.strategy != "mark-purge" else set()
    return expected_columns(relay.layout, dialect) - spared


def missing_table(relay: RelaySettings, hint: str = "") -> Check:
    """There is no table of that name; `hint` where making it is not for this user."""
    install = f"Run `inorder schema install --layout {relay.layout}`."
    return fail("outbox table", f"{relay.table} does not exist", hint or install)


def columns(relay: RelaySettings, dialect: str, found: Collection[str]) -> Check:
    """Whether the table has what its layout says."""
    missing = sorted(needed_columns(relay, dialect) - set(found))
    if missing:
        detail = f"{relay.table} lacks {', '.join(missing)} of the layout {relay.layout}"
        return fail("outbox table", detail, _remedy(relay, dialect, missing))
    return ok("outbox table", f"{relay.table} has the {relay.layout} columns")


def _remedy(relay: RelaySettings, dialect: str, missing: list[str]) -> str:
    install = f"`inorder schema install --layout {relay.layout}`"
    added = statements(relay.layout, dialect).get("added", "").partition(" ")[0]
    if missing != [added]:
        return f"Set relay.layout to the layout that the table has, or rename the table and run {install}."
    if relay.layout == "debezium":
        return (
            f"Let Debezium finish and delete its rows, then run {install}: it adds the column, which orders the rows."
        )
    return f"Run {install}: it adds the column."


def index(relay: RelaySettings, dialect: str, *, is_there: bool) -> Check:
    """Whether rows are found by id."""
    id = layout(relay.layout, dialect).id
    if is_there:
        return ok("outbox index", f"unique index on {id}")
    hint = f"Run ALTER TABLE {relay.table} ADD UNIQUE ({id}); without it each batch reads the whole table."
    return fail("outbox index", f"{relay.table} has no unique index on {id} alone", hint)


def rights(relay: RelaySettings, user: str, missing: Collection[str]) -> Check:
    """Whether the user may do what the relay and publishers do; `missing` are rights that it lacks."""
    needed = needed_rights(relay)
    lacking = ", ".join(right for right in needed if right in missing)
    if lacking:
        hint = f"Run GRANT {lacking} ON {relay.table} TO {user}."
        return fail("outbox rights", f"{user} lacks {lacking} on {relay.table}", hint)
    return ok("outbox rights", f"{user} may {', '.join(needed[:-1])} and {needed[-1]}")


def needed_rights(relay: RelaySettings) -> tuple[str, ...]:
    """Marks and stamps are updates; the strategy `polling` leaves every row as it is."""
    if relay.strategy == "polling":
        return ("INSERT", "SELECT")
    return ("INSERT", "SELECT", "DELETE", *(("UPDATE",) if relay.strategy != "drain" else ()))


def registration(relay: RelaySettings, transaction: Transaction, dialect: Dialect, *, is_there: bool) -> Check:
    """Whether the settings are those that every instance of this table has agreed on."""
    found = registered(transaction, statements_of(dialect, "registry.sql")["read"], relay.table) if is_there else None
    wanted = Setup(relay.group, relay.strategy, relay.shards)
    if found is None:
        return ok("registration", f"none yet; the first relay that runs registers {wanted}")
    try:
        refuse_other(found, wanted)
    except InorderError as error:
        return fail("registration", error.message, error.hint)
    return ok("registration", f"{wanted}, as registered in {REGISTRY}")


def pipeline_tables(settings: Settings, has: Callable[[str], bool]) -> Iterator[Check]:
    """The tables of the job `upsert`, in whichever database."""
    for table in (*PIPELINE_TABLES, *(target.table for target in settings.pipeline.targets)):
        if has(table):
            yield ok("pipeline table", f"{table} exists")
        else:
            hint = "Needed by the pipeline only: run `inorder schema install --layout table`."
            yield warn("pipeline table", f"{table} does not exist", hint)
