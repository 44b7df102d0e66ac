"""Records that used up their attempts: the relay moves them here, operators list, retry or discard them.

The table keeps what would have been sent, for reading, and the whole outbox row as it was (`Originals`), for putting it
back: every column under its name, as the database prints it; `{"hex": …}` if it is binary, null if it is null. Every
type can be printed as text and read from it without loss. SQLite has values instead of types, so there numbers stay
numbers, and text that is not UTF-8 is `{"text": …}` in hex.

The value may be as large as a packet of the server allows, so it never passes through us: a server copies it into the
column `value` and from there back into the outbox, and the whole row has `{"field": "value"}` in its place. SQLite has
no packets, and keeps it as every other column.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, Protocol

from inorder.database.database import (
    Database,
    Dialect,
    InstallingDatabase,
    Result,
    Transaction,
    UndecodableText,
    moment,
    statements_of,
    written_at,
)
from inorder.database.sql import quoted_table
from inorder.model.errors import PermanentError
from inorder.model.message import to_text
from inorder.model.partitioning import Shard, shard_of
from inorder.outbox.layouts import Layout, layout
from inorder.outbox.layouts.rows import decode_rows
from inorder.relay.stores.outbox_store import WHOLE
from inorder.relay.stores.ports import ExceededStore, Exceeding, Key

Action = Literal["retry", "discard"]
Whereabouts = Literal["waiting", "refused again", "discarded", "arrived"]
"""Where a row is that was put back: in the outbox, among the exceeded rows again, given up after that, or in Kafka."""


@dataclass(frozen=True, slots=True)
class ExceededRow:
    """One row that used up its attempts, with what would have been sent as far as it could be read."""

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
    """The whole row of the outbox table, as `Originals` keeps it; None if an older version moved the row."""

    @property
    def returns_renumbered(self) -> bool:
        """Whether a retry gives the row a new id: nothing waits for the old one, so the relay would not look for it."""
        return self.original is not None and not self.parks


@dataclass(frozen=True, slots=True)
class ExceededFilter:
    """Selects exceeded rows; None matches everything."""

    id: int | None = None
    topic: str | None = None
    key: bytes | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class ExceededGroup:
    """Exceeded rows of one topic that have the same code."""

    code: str
    topic: str
    count: int
    oldest: datetime | None
    """When the first of them was set aside."""


@dataclass(frozen=True, slots=True)
class ExceededSizes:
    """How much is exceeded at the moment."""

    rows: int
    keys: Mapping[str, int]
    """How many keys of each topic wait for such a row, if the policy of the topic is `park`."""


class ExceededAdmin(ExceededStore, Protocol):
    """Exceeded rows as operators use them."""

    def rows(self, wanted: ExceededFilter) -> list[ExceededRow]:
        """The selected rows, oldest first."""

    def page(self, wanted: ExceededFilter, above: int, most: int) -> list[ExceededRow]:
        """The first of the selected rows above an id; their values may be left out."""

    def count(self, wanted: ExceededFilter, most: int) -> int:
        """How many rows are selected, counted up to a bound."""

    def groups(self, wanted: ExceededFilter) -> list[ExceededGroup]:
        """The selected rows by code and topic, the largest group first."""

    def sizes(self) -> ExceededSizes:
        """How many rows there are, and how many keys wait for them."""

    def settle(self, wanted: ExceededFilter, action: Action, reason: str) -> list[ExceededRow]:
        """Retries or discards the selected rows, all or none, and records the reason; returns them."""

    def whereabouts(self, ids: Sequence[int]) -> dict[int, Whereabouts]:
        """Where rows are that were put back under their ids; the outbox must lose a row when it is published."""


class SqlExceededStore:
    """An `ExceededAdmin` in the database of the outbox; creates its tables at the first call."""

    def __init__(self, database: Database, table: str, layout_name: str = "native", *, shard: Shard = WHOLE) -> None:
        """`parked` names the keys of `shard`; operators have the rows of all shards."""
        self._database = InstallingDatabase(database, exceeded_tables(database.dialect))
        self._table = table
        self._shard = shard
        self._statements = statements_of("inorder.relay", database.dialect, "exceeded.sql")
        self._layout = layout(layout_name, database.dialect)
        self._originals = Originals(database.dialect, table, self._layout)
        self._identifiers = {
            "table": quoted_table(database.dialect, table),
            "id": self._layout.id,
            "columns": self._layout.columns,
            "written_at": self._layout.written_at,
            **{name: quoted_table(database.dialect, name) for name in ("key", "value", "partition", "timestamp")},
        }
        self._identifiers["listed"] = self._statements["listed"]
        self._identifiers["matching"] = self._statements.render("matching", key=self._identifiers["key"])

    def exceed(self, exceeding: Exceeding) -> None:
        """In one transaction, so that the row is in exactly one of the two tables."""
        with self._database.transaction() as transaction:
            found = self._execute(transaction, "find", {"id": exceeding.row_id}).rows
            if found:
                written_at, *columns = found[0]
                original = self._originals.read(transaction, exceeding.row_id)
                kept = self._fields(exceeding, columns) | {"created_at": written_at, "original": original}
                if self._originals.moves_values:
                    self._keep(transaction, kept | {"value": None})
                    self._originals.move_value(transaction, exceeding.row_id)
                else:
                    self._keep(transaction, kept)
                self._execute(transaction, "take_out", kept)

    def parked(self) -> dict[Key, tuple[int, ...]]:
        rows = self._execute(self._database, "parked", {"outbox": self._table}).rows
        found: defaultdict[Key, tuple[int, ...]] = defaultdict(tuple)
        for topic, key, id in rows:
            if shard_of(topic, key, id, self._shard.count) == self._shard.index:
                found[topic, key] += (id,)
        return dict(found)

    def rows(self, wanted: ExceededFilter) -> list[ExceededRow]:
        return self._matching(self._database, wanted)

    def page(self, wanted: ExceededFilter, above: int, most: int) -> list[ExceededRow]:
        bounds = {"above": above, "most": most, "outbox": self._table}
        found = self._execute(self._database, "page", bounds | filter_parameters(wanted))
        return [_row(row) for row in found.rows]

    def count(self, wanted: ExceededFilter, most: int) -> int:
        bound = {"outbox": self._table, "most": most, **filter_parameters(wanted)}
        return int(self._execute(self._database, "count", bound).rows[0][0])

    def groups(self, wanted: ExceededFilter) -> list[ExceededGroup]:
        found = self._execute(self._database, "groups", {"outbox": self._table, **filter_parameters(wanted)})
        return [ExceededGroup(code, topic, count, written_at(oldest)) for code, topic, count, oldest in found.rows]

    def sizes(self) -> ExceededSizes:
        found = self._execute(self._database, "sizes", {"outbox": self._table}).rows
        return ExceededSizes(sum(rows for _, rows, _ in found), {topic: keys for topic, _, keys in found if keys})

    def settle(self, wanted: ExceededFilter, action: Action, reason: str) -> list[ExceededRow]:
        with self._database.transaction() as transaction:
            held = self._hold(transaction, self._matching(transaction, wanted))
            if held and action == "retry":
                columns = self._originals.columns(transaction)
                for row in held:
                    self._put_back(transaction, row, columns)
            settled = {"outbox": self._table, "ids": json.dumps([row.id for row in held])}
            self._execute(transaction, "note_actions", settled | {"action": action, "reason": reason})
            self._execute(transaction, "take", settled)
            return held

    def whereabouts(self, ids: Sequence[int]) -> dict[int, Whereabouts]:
        found = self._execute(self._database, "whereabouts", {"outbox": self._table, "ids": json.dumps(list(ids))})
        return locate(found.rows, ids)

    def close(self) -> None:
        self._database.close()

    def _fields(self, exceeding: Exceeding, columns: list[Any]) -> dict[str, Any]:
        (row,) = decode_rows(self._layout.decode, [columns])
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
        # Ids restart if the table was created again. The older row is data as well.
        if self._execute(transaction, "is_kept", kept).rows:
            raise PermanentError(
                f"Row {kept['id']} of {self._table!r} is exceeded, but inorder_exceeded has another row of that id.",
                hint=f"Settle that row first: `inorder exceeded show {kept['id']}`, then retry or discard it.",
            )
        self._execute(transaction, "keep", kept)

    def _matching(self, where: Transaction | InstallingDatabase, wanted: ExceededFilter) -> list[ExceededRow]:
        found = self._execute(where, "list", {"outbox": self._table, **filter_parameters(wanted)})
        return [_row(row) for row in found.rows]

    def _hold(self, transaction: Transaction, rows: list[ExceededRow]) -> list[ExceededRow]:
        """Locks the rows; returns them without those that another operator settled first."""

        def hold(some: list[ExceededRow]) -> int:
            ids = json.dumps([row.id for row in some])
            return self._execute(transaction, "hold", {"outbox": self._table, "ids": ids}).count

        return rows if hold(rows) == len(rows) else [row for row in rows if hold([row])]

    def _put_back(self, transaction: Transaction, row: ExceededRow, columns: Sequence[TableColumn]) -> None:
        """Under its old id, so that it precedes everything of its key that waited for it.

        If nothing waited, the relay does not expect the old id and would find it only at its next sweep: so a new id.
        """
        if row.original is not None:
            # Without its mark: the leader that set it may still lead, and would assume that it has the row in hand.
            left_out = [self._layout.leader_id or "", *((self._layout.id,) if row.returns_renumbered else ())]
            self._originals.put_back(transaction, row.id, row.original, columns, without=left_out)
        else:
            self._execute(transaction, "put_back_fields", asdict(row))

    def _execute(self, where: Transaction | InstallingDatabase, name: str, parameters: Mapping[str, Any]) -> Result:
        return where.execute(self._statements.render(name, **self._identifiers), parameters)


_LATEST_FIRST: Final[tuple[Whereabouts, ...]] = ("waiting", "refused again", "discarded")
"""A row that was discarded and is seen elsewhere is another one of the same id."""


def locate(found: Iterable[Sequence[Any]], ids: Iterable[int]) -> dict[int, Whereabouts]:
    """Where each row is by where it was found; one that is nowhere has left the outbox, so it was published."""
    places: dict[int, set[str]] = {}
    for place, id in found:
        places.setdefault(id, set()).add(place)
    return {id: next((place for place in _LATEST_FIRST if place in places.get(id, ())), "arrived") for id in ids}


def filter_parameters(wanted: ExceededFilter) -> dict[str, Any]:
    """The parameters of a filter, with `any_…` true for each field that matches everything."""
    fields = asdict(wanted)
    return fields | {f"any_{name}": value is None for name, value in fields.items()}


def exceeded_tables(dialect: Dialect) -> list[str]:
    """The DDL of the exceeded tables."""
    return statements_of("inorder.relay", dialect, "exceeded.sql").starting_with("install")


def _row(row: tuple[Any, ...]) -> ExceededRow:
    stored = ExceededRow(*row)
    return replace(
        stored,
        created_at=written_at(stored.created_at),
        parks=bool(stored.parks),
        exceeded_at=moment(stored.exceeded_at),
    )


_MOVED: Final = {"field": "value"}
"""In the place of a column's content: it is the value of the exceeded row."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: str
    is_binary: bool


class Originals:
    """Reads and writes whole rows of one table as text; the table may have more columns than its layout."""

    def __init__(self, dialect: Dialect, table: str, layout: Layout) -> None:
        self._quote = "`" if dialect == "mysql" else '"'
        self._statements = statements_of("inorder.relay", dialect, "original.sql")
        self._table = table
        self._identifiers = {"table": quoted_table(dialect, table), "id": layout.id}
        self._value = layout.value
        self.moves_values = "move_value" in self._statements

    def read(self, transaction: Transaction, id: int) -> str:
        """The row of this id, which must exist, without a value that is moved; it is locked from now on."""
        columns = [column for column in self.columns(transaction) if not self._is_moved(column)]
        selected = ", ".join(self._read(column) for column in columns)
        statement = self._statements.render("read", columns=selected, **self._identifiers)
        (row,) = transaction.execute(statement, {"id": id}).rows
        names = [column.name for column in columns]
        found = dict(zip(names, map(_encode, row), strict=True))
        if self.moves_values:
            found[self._value] = _MOVED
        return json.dumps(found, ensure_ascii=False)

    def move_value(self, transaction: Transaction, id: int) -> None:
        """Copies the value of the row into the exceeded row of the same id."""
        [column] = filter(self._is_moved, self.columns(transaction))
        name = "value_of_binary" if column.is_binary else "value_of_other"
        value = self._statements.render(name, column=self._identifier(column.name))
        statement = self._statements.render("move_value", value=value, **self._identifiers)
        transaction.execute(statement, {"outbox": self._table, "id": id})

    def put_back(
        self,
        transaction: Transaction,
        id: int,
        original: str,
        present: Sequence[TableColumn],
        *,
        without: Collection[str] = (),
    ) -> None:
        """Inserts the row as it was, without some columns; columns that were dropped since are left out."""
        stored = json.loads(original)
        names = stored.keys() - set(without)
        columns = [column for column in present if column.name in names]
        values = {f"value{place}": _decode(stored[column.name]) for place, column in enumerate(columns)}
        bound = [self._bound(column, name, values[name]) for column, name in zip(columns, values, strict=True)]
        statement = self._statements.render(
            "put_back",
            columns=", ".join(self._identifier(column.name) for column in columns),
            values=", ".join(bound),
            **self._identifiers,
        )
        parameters = {name: value for name, value in values.items() if value != _MOVED}
        transaction.execute(statement, parameters | {"exceeded_outbox": self._table, "exceeded_id": id})

    def _is_moved(self, column: TableColumn) -> bool:
        return self.moves_values and column.name == self._value

    def columns(self, transaction: Transaction) -> list[TableColumn]:
        """The columns that the table has now."""
        schema, _, name = self._table.rpartition(".")
        parameters = {"table": self._identifiers["table"], "schema": schema or None, "name": name}
        return [TableColumn(*row) for row in transaction.execute(self._statements["columns"], parameters).rows]

    def _read(self, column: TableColumn) -> str:
        name = "read_binary" if column.is_binary else "read_other"
        return self._statements.render(name, column=self._identifier(column.name))

    def _bound(self, column: TableColumn, parameter: str, value: object) -> str:
        if value == _MOVED:
            name = "bind_value_binary" if column.is_binary else "bind_value_other"
        else:
            name = "bind_undecodable" if isinstance(value, UndecodableText) else "bind"
        return self._statements.render(name, value=f"%({parameter})s", type=column.type)

    def _identifier(self, name: str) -> str:
        """A column's name, quoted; `%` is escaped because it begins a parameter."""
        escaped = name.replace(self._quote, self._quote * 2).replace("%", "%%")
        return f"{self._quote}{escaped}{self._quote}"


def _encode(value: Any) -> Any:
    match value:
        case UndecodableText():
            return {"text": value.hex()}
        case bytes():
            return {"hex": value.hex()}
        case _:
            return value


def _decode(value: Any) -> Any:
    match value:
        case {"text": text}:
            return UndecodableText(bytes.fromhex(text))
        case {"hex": binary}:
            return bytes.fromhex(binary)
        case _:
            return value
