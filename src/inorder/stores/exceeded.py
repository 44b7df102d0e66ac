"""Exceeded rows in the database: how the relay sets them aside, and how people look at them and let them go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal, Protocol

from inorder.model.errors import PermanentError
from inorder.model.headers import to_text
from inorder.outbox.layouts import layout, quoted_table
from inorder.ports.exceeded_store import ExceededStore, Exceeding, Key
from inorder.stores.database import Database, Dialect, Installed, Result, Transaction, statements_of
from inorder.stores.moment import moment, written_at
from inorder.stores.originals import Originals

Action = Literal["retry", "discard"]


@dataclass(frozen=True, slots=True)
class ExceededRow:
    """One row that used up its attempts; what would have been sent is here as far as it could be read."""

    id: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: str | None
    partition: int | None
    timestamp: int | None
    created_at: datetime | None
    attempts: int
    code: str
    reason: str
    parks: bool
    exceeded_at: datetime
    original: str | None
    """The whole row of the outbox table, as `Originals` keeps it; None where an older version set the row aside."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which exceeded rows are meant; None matches everything."""

    id: int | None = None
    topic: str | None = None
    key: bytes | None = None
    code: str | None = None


class SettledByPeople(ExceededStore, Protocol):
    """Exceeded rows that people look at and let go."""

    def rows(self, wanted: Filter) -> list[ExceededRow]:
        """Those that are meant, oldest first."""

    def settle(self, wanted: Filter, action: Action, reason: str) -> list[ExceededRow]:
        """Retries or discards those that are meant, all or none, and notes why; returns them."""


class SqlExceededStore:
    """An `ExceededStore` in the database of the outbox; makes its tables at the first call."""

    def __init__(self, database: Database, table: str, layout_name: str = "native") -> None:
        self._database = Installed(database, install_statements(database.dialect))
        self._table = table
        self._statements = statements_of(database.dialect, "exceeded.sql")
        self._layout = layout(layout_name, database.dialect)
        self._originals = Originals(database.dialect, table, self._layout.id)
        self._identifiers = {
            "table": quoted_table(database.dialect, table),
            "id": self._layout.id,
            "columns": self._layout.columns,
            "written_at": self._layout.written_at,
            **{name: quoted_table(database.dialect, name) for name in ("key", "value", "partition", "timestamp")},
        }

    def exceed(self, exceeding: Exceeding) -> None:
        """One transaction: the row is in one of the two tables, whatever happens."""
        with self._database.transaction() as transaction:
            found = self._execute(transaction, "find", {"id": exceeding.row_id}).rows
            if found:
                written_at, *columns = found[0]
                original = self._originals.read(transaction, exceeding.row_id)
                kept = self._kept(exceeding, columns) | {"created_at": written_at, "original": original}
                self._keep(transaction, kept)
                self._execute(transaction, "take_out", kept)

    def parked(self) -> dict[Key, tuple[int, ...]]:
        """The parked keys, with the ids of their exceeded rows."""
        rows = self._execute(self._database, "parked", {"outbox": self._table}).rows
        found: defaultdict[Key, tuple[int, ...]] = defaultdict(tuple)
        for topic, key, id in rows:
            found[topic, key] += (id,)
        return dict(found)

    def rows(self, wanted: Filter) -> list[ExceededRow]:
        """The exceeded rows that are meant, oldest first."""
        return self._matching(self._database, wanted)

    def settle(self, wanted: Filter, action: Action, reason: str) -> list[ExceededRow]:
        """Retries or discards the rows that are meant, all in one transaction, and notes why; returns them."""
        with self._database.transaction() as transaction:
            taken = [row for row in self._matching(transaction, wanted) if self._take(transaction, row)]
            for row in taken:
                if action == "retry":
                    self._put_back(transaction, row)
                noted = {"outbox": self._table, "id": row.id, "topic": row.topic, "key": row.key}
                self._execute(transaction, "note_action", noted | {"action": action, "reason": reason})
            return taken

    def close(self) -> None:
        """Gives the connection back."""
        self._database.close()

    def _kept(self, exceeding: Exceeding, columns: list[Any]) -> dict[str, Any]:
        row = self._layout.decode(columns)
        return {
            "outbox": self._table,
            "id": row.id,
            "topic": row.topic,
            "key": row.key,
            "value": row.value,
            "headers": to_text(row.headers),
            "partition": row.partition,
            "timestamp": row.timestamp_ms,
            "attempts": exceeding.attempts,
            "code": exceeding.code,
            "reason": exceeding.reason,
            "parks": exceeding.parks,
        }

    def _keep(self, transaction: Transaction, kept: dict[str, Any]) -> None:
        # Ids begin anew where somebody made the table anew. The older row is somebody's data as well.
        if self._execute(transaction, "is_kept", kept).rows:
            raise PermanentError(
                f"Row {kept['id']} of {self._table!r} is to be set aside, but another row of that id already is.",
                hint=f"Settle that one first: `inorder exceeded show {kept['id']}`, then retry or discard it.",
            )
        self._execute(transaction, "keep", kept)

    def _matching(self, where: Transaction | Installed, wanted: Filter) -> list[ExceededRow]:
        found = self._execute(where, "list", {"outbox": self._table, **anything_of(wanted)})
        return [_row(row) for row in found.rows]

    def _take(self, transaction: Transaction, row: ExceededRow) -> bool:
        """Removes it; whoever comes second finds none."""
        return self._execute(transaction, "take", {"outbox": self._table, "id": row.id}).count == 1

    def _put_back(self, transaction: Transaction, row: ExceededRow) -> None:
        """Under its old id, so that it stands before everything of its key that waited for it.

        Where nothing waited the relay does not expect the id, and would see it at its next sweep only: a new one.
        """
        if row.original is not None:
            # Without its mark: whoever set it may still be leader, and would take the row for one that it has in hand.
            left_out = [self._layout.leader_id or "", *(() if row.parks else (self._layout.id,))]
            self._originals.put_back(transaction, row.original, without=left_out)
        else:
            self._execute(transaction, "put_back_fields", asdict(row))

    def _execute(self, where: Transaction | Installed, name: str, parameters: Mapping[str, Any]) -> Result:
        return where.execute(self._statements.render(name, **self._identifiers), parameters)


def anything_of(wanted: Filter) -> dict[str, Any]:
    """What is asked for, with `any_…` true where nothing is."""
    asked = asdict(wanted)
    return asked | {f"any_{name}": value is None for name, value in asked.items()}


def install_statements(dialect: Dialect) -> list[str]:
    """The DDL of the exceeded tables."""
    return statements_of(dialect, "exceeded.sql").starting_with("install")


def _row(row: tuple[Any, ...]) -> ExceededRow:
    stored = ExceededRow(*row)
    return replace(
        stored,
        created_at=written_at(stored.created_at),
        parks=bool(stored.parks),
        exceeded_at=moment(stored.exceeded_at),
    )
