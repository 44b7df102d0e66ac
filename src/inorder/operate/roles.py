"""Least rights: what each role needs on each table, as GRANTs for `inorder schema sql --roles`.

The tables are those of the DDL that an installation runs (`schema.py`), so a table that is added there without a row
here is an error. A row lock (`FOR UPDATE`) needs UPDATE on PostgreSQL; that is why the relay has it also where it
changes no row. No role owns or creates a table, with one exception: a relay with `relay.retention_days` creates and
drops the daily partitions of its archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from inorder.database.database import statements_of
from inorder.database.schema_plan import read_change
from inorder.database.sql import Family, Statements, family, quoted_table
from inorder.model.errors import ConfigurationError
from inorder.operate.schema import JOURNAL, configured_layouts, layout_statements, outbox_table
from inorder.outbox.layouts import LAYOUTS, layout, lock_table
from inorder.settings import Settings
from inorder.settings.relay import RelaySettings

PREFIX: Final = "inorder_"
"""Of the names of roles."""

# S is SELECT, I INSERT, U UPDATE, D DELETE. Tables in brackets have their names from the settings (`_kinds`).
_TABLE: Final = """
table                       publisher  relay  pipeline  reader  operator
[outbox]                    I          SUD    -         -       SIUD
[kept]                      I          S      -         -       SI
[locks]                     -          SIU    -         -       S
[missing]                   -          SIUD   -         -       SIUD
[exceeded]                  -          SID    -         -       SID
[offset]                    -          SU     -         -       SU
inorder_exceeded            -          SIU    -         -       SIUD
inorder_exceeded_action     -          -      -         -       SI
inorder_lease               -          SIU    -         -       S
inorder_member              -          SIUD   -         -       S
inorder_relay               -          SI     -         -       SIU
inorder_outbox              -          SI     -         -       SI
inorder_topic               -          S      S         -       SIU
inorder_topic_copy          -          -      SIU       -       SIU
inorder_pause               -          S      S         -       SIUD
inorder_action              -          -      -         -       SIU
[target]                    -          -      SIUD      S       SIUD
inorder_pointer             -          -      SIU       -       SIUD
inorder_dead_letter         -          -      SI        -       SIUD
inorder_dead_letter_action  -          -      -         -       SIU
inorder_tombstone           -          -      SIUD      -       SIUD
inorder_tombstone_mark      -          -      SIU       -       SIU
inorder_projection          -          -      SIUD      -       SUD
inorder_projection_journal  -          -      SIUD      -       SD
journal                     S          -      SID       S       SIUD
metajournal                 S          -      SIUD      S       SIUD
pointer2                    S          -      SIU       S       SIUD
journal_topic               S          -      SIU       S       SIU
setting                     S          -      S         S       S
locks                       -          -      -         -       -
snapshot                    SIUD       -      SD        S       SUD
quarantine                  S          -      SID       S       SID
"""
_WORDS: Final = {"S": "SELECT", "I": "INSERT", "U": "UPDATE", "D": "DELETE"}


Rights = Mapping[str, tuple[str, ...]]
"""By role."""


def _read(text: str) -> tuple[tuple[str, ...], dict[str, Rights]]:
    (_, *roles), *rows = map(str.split, text.strip().splitlines())
    return tuple(roles), {
        table: {
            role: tuple(_WORDS[each] for each in cell) for role, cell in zip(roles, cells, strict=True) if cell != "-"
        }
        for table, *cells in rows
    }


ROLES, RIGHTS = _read(_TABLE)


def outbox_rights(relay: RelaySettings, dialect: str) -> Rights:
    """The rights on the outbox table; the strategy `polling` leaves every row as it is."""
    found = dict(RIGHTS["[kept]" if relay.strategy == "polling" else "[outbox]"])
    if relay.strategy == "drain" and family(dialect) != "postgres":
        found["relay"] = ("SELECT", "DELETE")  # there DELETE suffices for a row lock
    return found


@dataclass(frozen=True, slots=True)
class GrantedTable:
    """A table as its DDL names it, the rights on it, and those on the sequence that numbers its rows."""

    table: str
    rights: Rights
    column: str
    sequence_rights: Mapping[str, str]


def granted_layouts(settings: Settings) -> list[str]:
    """The layouts that the settings name, without a journal's store that is another database."""
    store = settings.journal.store
    is_here = store is None or store == settings.database.url
    configured = [each for each in configured_layouts(settings) if each != JOURNAL or is_here]
    return list(dict.fromkeys([str(settings.relay.layout), *configured]))


def granted_tables(settings: Settings, layout: str, dialect: str) -> Iterator[GrantedTable]:
    """The tables that an installation of the layout creates."""
    kinds = _kinds(settings, layout)
    for change in filter(None, map(read_change, layout_statements(settings, layout, dialect))):
        if change.kind == "table":
            name = change.table.replace('"', "").replace("`", "")
            kind = kinds.get(name, name)
            rights = outbox_rights(settings.relay, dialect) if kind == "[outbox]" else RIGHTS[kind]
            # The sequence of an identity needs no right of writers.
            is_serial = "BIGSERIAL" in change.statement
            numbered = {role: "USAGE" for role in rights if is_serial and "INSERT" in rights[role]}
            if kind == "[outbox]":
                numbered["relay"] = "SELECT"  # a backup that was restored is noticed by the last id
            yield GrantedTable(change.table, rights, _column(layout, dialect, kind), numbered)


def _kinds(settings: Settings, layout: str) -> dict[str, str]:
    """Which tables the settings name, by name."""
    if layout not in LAYOUTS:
        return {each.table: "[target]" for each in settings.pipeline.targets if each.target is None}
    table = outbox_table(settings, layout)
    sides = asdict(settings.relay.polling.side_tables.beside(table))
    return {table: "[outbox]", lock_table(table): "[locks]", **{name: f"[{side}]" for side, name in sides.items()}}


def _column(layout_name: str, dialect: str, kind: str) -> str:
    return layout(layout_name, dialect).id if kind == "[outbox]" else "id"


def roles_sql(settings: Settings, layouts: Iterable[str], dialect: str, prefix: str = PREFIX) -> str:
    """The GRANTs for the tables of some layouts, by role; they may be run again."""
    spoken = family(dialect)
    if spoken == "sqlite":
        raise ConfigurationError("SQLite has no roles.", hint="Use --dialect postgresql or --dialect mysql.")
    tables = [table for each in layouts for table in granted_tables(settings, each, dialect)]
    names = {
        role: quoted_table(dialect, f"{prefix}{role}") for role in ROLES if any(role in each.rights for each in tables)
    }
    keeps = settings.relay.retention_days is not None
    granting = _Granting(spoken, statements_of("inorder.operate", spoken, "roles.sql"))
    printed = [f"-- Rights of {', '.join(names.values())}: create these roles first."]
    for role, name in names.items():
        owned = [each for each in tables if role in each.rights]
        printed += ["", f"-- {role}", *granting.in_schemas("USAGE", owned, name)]
        for each in owned:
            printed += granting.on_table(each, role, name)
        if role == "relay":
            printed += granting.of_relay(owned, name, creates=keeps)
    return "\n".join(printed)


@dataclass(frozen=True, slots=True)
class _Granting:
    """The statements of a dialect."""

    dialect: Family
    statements: Statements

    def in_schemas(self, right: str, tables: Iterable[GrantedTable], role: str) -> list[str]:
        """A schema must be opened before its tables; MySQL has none."""
        if self.dialect != "postgres":
            return []
        schemas = dict.fromkeys(each.table.rpartition(".")[0] for each in tables)
        return [
            self._render("in_schema" if schema else "in_current_schema", right=right, schema=schema, role=role)
            for schema in schemas
        ]

    def on_table(self, table: GrantedTable, role: str, name: str) -> Iterator[str]:
        yield self._render("on_table", rights=", ".join(table.rights[role]), table=table.table, role=name)
        if self.dialect == "postgres" and role in table.sequence_rights:
            right = table.sequence_rights[role]
            yield self._render("on_sequence", right=right, table=table.table, column=table.column, role=name)

    def of_relay(self, tables: Iterable[GrantedTable], role: str, *, creates: bool) -> list[str]:
        """What is not of a table; `creates` where it keeps rows in an archive of its own."""
        if self.dialect == "mysql":
            return [self._render("on_locks", role=role)]
        return self.in_schemas("CREATE", list(tables)[:1], role) if creates else []

    def _render(self, statement: str, **names: str) -> str:
        return f"{self.statements.render(statement, **names)};"
