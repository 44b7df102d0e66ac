"""Offset, missing and exceeded events of the trendyol layout, in any database, for the strategy `polling`.

`SqlPollingStore` is what the relay uses, `PollingExceededStore` what operators use: their rows never leave the table.
`EventTables` has the statements that both run inside their transactions.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from inorder.database.database import (
    Database,
    Dialect,
    InstallingDatabase,
    Result,
    Transaction,
    statements_of,
    written_at,
)
from inorder.database.sql import quoted_table
from inorder.model.errors import ConfigurationError, FencedError
from inorder.model.message import to_text
from inorder.model.names import USUAL_TABLES, SideTables
from inorder.outbox.layouts import layout
from inorder.outbox.layouts.rows import decode_rows
from inorder.outbox.stores.table import as_needed
from inorder.relay.stores.exceeded import (
    Action,
    ExceededFilter,
    ExceededGroup,
    ExceededRow,
    ExceededSizes,
    Whereabouts,
    exceeded_tables,
    filter_parameters,
    locate,
)
from inorder.relay.stores.ports import Exceeding, Key, MissingEvent, OffsetSetBackError, PollingState, Settlement

HINT = (
    "`inorder schema sql --layout trendyol` prints the tables, `inorder schema install --layout trendyol` creates them "
    "and adds missing columns."
)


class SqlPollingStore:
    """A `PollingStore` on one connection."""

    def __init__(self, database: Database, table: str, sides: SideTables = USUAL_TABLES) -> None:
        self._database = database
        self._tables = EventTables(database.dialect, table, sides)

    def check(self) -> None:
        """Reads no rows except the offset."""
        tables = self._tables
        for name, table in (
            ("check_events", tables.events),
            ("check_missing", tables.sides.missing),
            ("check_exceeded", tables.sides.exceeded),
            ("offset", tables.sides.offset),
        ):
            with as_needed(table, LAYOUT, HINT):
                tables.execute(self._database, name)
        self.offset()

    def offset(self) -> int:
        return self._only(self._tables.offsets(self._database))

    def missing(self, above: int, limit: int) -> list[MissingEvent]:
        found = self._tables.execute(self._database, "missing", above=above, limit=limit)
        return [MissingEvent(id, count, bool(thrown), written_at(missed)) for id, count, thrown, missed in found.rows]

    def parked(self) -> dict[Key, tuple[int, ...]]:
        """Joins the exceeded events with the rows."""
        return self._tables.parked(self._database)

    def settle(self, settlement: Settlement) -> None:
        """One statement if only the offset moves, which is the usual case."""
        if not _has_ids(settlement) and settlement.from_offset != settlement.to_offset:
            bounds = {"from": settlement.from_offset, "to": settlement.to_offset}
            if self._tables.execute(self._database, "move", **bounds).count == 0:
                self._refuse_unless_settled(self.offset(), settlement)
            return
        with self._database.transaction() as transaction:
            if self._owns(transaction, settlement):
                self._write(transaction, settlement)

    def state(self) -> PollingState:
        """Counts all rows above the offset, which takes a while if there are many."""
        found = self._tables.execute(self._database, "state").rows[0]
        offset, newest, missing, exceeded, oldest, behind = found
        return PollingState(
            self._only([] if offset is None else [offset]), newest, missing, exceeded, written_at(oldest), behind
        )

    def keeps_published(self) -> bool:
        """Whether the table has published rows: another strategy would publish them again."""
        return bool(self._tables.execute(self._database, "published").rows)

    def close(self) -> None:
        self._database.close()

    def _owns(self, transaction: Transaction, settlement: Settlement) -> bool:
        """Locks the offset; False if this settlement was written before, `FencedError` if another was."""
        bounds = {"from": settlement.from_offset, "to": settlement.to_offset}
        if settlement.from_offset != settlement.to_offset:
            if self._tables.execute(transaction, "move", **bounds).count > 0:
                return True
            self._refuse_unless_settled(self._only(self._tables.offsets(transaction)), settlement)
            return False
        self._refuse_unless_settled(self._only(self._tables.offsets(transaction, hold=True)), settlement)
        return True

    def _refuse_unless_settled(self, found: int, settlement: Settlement) -> None:
        if found < settlement.from_offset:
            raise OffsetSetBackError(
                f"The offset in {self._tables.sides.offset!r} is {found} and not {settlement.from_offset}: it was set "
                "back, or restored."
            )
        if found != settlement.to_offset:
            raise FencedError(
                f"The offset in {self._tables.sides.offset!r} is {found} and not {settlement.from_offset}: another "
                "instance moved it.",
                hint="Unless that was intended, look for a second relay with another relay.group.",
            )

    def _write(self, transaction: Transaction, settlement: Settlement) -> None:
        tables = self._tables
        tables.miss(transaction, settlement.missed)
        tables.with_ids(transaction, "fail", settlement.failed)
        tables.with_ids(transaction, "wait", settlement.waited)
        tables.with_ids(transaction, "leave_missing", settlement.delivered)
        tables.with_ids(transaction, "leave_exceeded", settlement.delivered)
        tables.exceed(transaction, settlement.exceeded)

    def _only(self, offsets: list[int]) -> int:
        if len(offsets) != 1:
            found = "no row" if not offsets else "more than one row"
            raise ConfigurationError(f"Table {self._tables.sides.offset!r} has {found}; it must have one.", hint=HINT)
        return offsets[0]


def _has_ids(settlement: Settlement) -> bool:
    lists = (settlement.missed, settlement.failed, settlement.waited, settlement.delivered, settlement.exceeded)
    return any(lists)


LAYOUT = "trendyol"

_IDS_A_STATEMENT = 10_000
"""200 kB at most: far below what servers accept in one statement."""

_FRAGMENTS = ("now", "offset_column", "among", "ids", "reasons", "code_of")
_CONDITIONS = ("gone", "matching")
"""Parts of statements that have identifiers of their own."""

Where = Transaction | Database | InstallingDatabase


class EventTables:
    """The statements of one set of tables; the caller has the transaction."""

    def __init__(self, dialect: Dialect, table: str, sides: SideTables) -> None:
        self.events = table
        self.sides = sides.beside(table)
        self.layout = layout(LAYOUT, dialect)
        self._dialect = dialect
        self._statements = _render(dialect, table, self.sides)

    def execute(self, where: Where, name: str, **parameters: Any) -> Result:
        return where.execute(self._statements[name], parameters)

    def offsets(self, where: Where, *, hold: bool = False) -> list[int]:
        """The offset, of which there should be one; with `hold` it is locked until the transaction ends."""
        found = self.execute(where, "hold" if hold else "offset").rows
        return [offset for (offset,) in found if offset is not None]

    def miss(self, where: Transaction, events: Sequence[MissingEvent]) -> None:
        """Records ids as missing, equal ones in one statement; an id that is there already stays as it is."""
        alike: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)
        for event in events:
            alike[event.retry_count, event.exception_thrown].append(event.id)
        for (count, thrown), ids in alike.items():
            self.with_ids(where, "miss", ids, retry_count=count, exception_thrown=thrown)

    def exceed(self, where: Transaction, given_up: Sequence[tuple[int, str]]) -> None:
        """Moves ids from missing to exceeded; those that are not missing are ignored."""
        for some in _cut(given_up):
            ids, reasons = [id for id, _ in some], [reason for _, reason in some]
            listed = self._bind_list(ids) | {"reasons": reasons, "json": _json(some)}
            self.execute(where, "forget_exceeded", **listed)
            self.execute(where, "exceed", **listed)
            self.execute(where, "leave_missing", **listed)

    def with_ids(self, where: Transaction, name: str, ids: Sequence[int], **more: Any) -> None:
        """Runs a statement for a list of ids, ten thousand at a time."""
        for some in _cut(ids):
            self.execute(where, name, **self._bind_list(some), **more)

    def whereabouts(self, where: Where, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
        """Which of some events are missing, exceeded, or were discarded."""
        return self.execute(where, "whereabouts", **self._bind_list(ids), outbox=self.events).rows

    def parked(self, where: Where) -> dict[Key, tuple[int, ...]]:
        """The keys of exceeded events whose rows are visible, with the ids of these."""
        found: defaultdict[Key, tuple[int, ...]] = defaultdict(tuple)
        for topic, key, id in self.execute(where, "parked").rows:
            found[topic, key] += (id,)
        return dict(found)

    def _bind_list(self, ids: Sequence[int]) -> dict[str, Any]:
        """A list as the dialect accepts it; the driver of MySQL renders a tuple with parentheses."""
        match self._dialect:
            case "postgres":
                return {"ids": list(ids)}
            case "mysql":
                return {"ids": tuple(ids), "json": _json(ids)}
            case "sqlite":
                return {"ids": _json(ids)}


def _render(dialect: Dialect, table: str, sides: SideTables) -> Mapping[str, str]:
    statements, found = statements_of("inorder.relay", dialect, "polling.sql"), layout(LAYOUT, dialect)
    names = {side: quoted_table(dialect, name) for side, name in asdict(sides).items()}
    parts = {name: statements[name] for name in _FRAGMENTS}
    columns = {"id": found.id, "columns": found.columns, "topic": found.topic, "key": found.key}
    identifiers = {"table": quoted_table(dialect, table), "written_at": found.written_at, **columns, **names, **parts}
    identifiers |= {name: statements.render(name, **identifiers) for name in _CONDITIONS}
    return {
        name: statements.render(name, **identifiers)
        for name in statements
        if name not in _FRAGMENTS and name not in _CONDITIONS
    }


def _cut(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _IDS_A_STATEMENT):
        yield items[start : start + _IDS_A_STATEMENT]


def _json(items: Sequence[Any]) -> str:
    return orjson.dumps(list(items)).decode()


def _bound(wanted: ExceededFilter) -> dict[str, Any]:
    parameters = filter_parameters(wanted)
    return parameters if wanted.code is None else parameters | {"code": f"{wanted.code}: %"}


_CODED: Final = re.compile(r"(?P<code>[A-Z]+-\d+): ")

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class PollingExceededStore:
    """An `ExceededAdmin` on the tables of the strategy `polling`; actions are recorded as for every strategy."""

    def __init__(self, database: Database, table: str, sides: SideTables = USUAL_TABLES) -> None:
        self._database = InstallingDatabase(database, exceeded_tables(database.dialect))
        self._tables = EventTables(database.dialect, table, sides)
        key = {"key": quoted_table(database.dialect, "key")}
        self._note = statements_of("inorder.relay", database.dialect, "exceeded.sql").render("note_action", **key)

    def exceed(self, exceeding: Exceeding) -> None:
        """Records a row as exceeded, whether it was missing or not; it stays in its table."""
        with self._database.transaction() as transaction:
            self._tables.offsets(transaction, hold=True)
            self._tables.miss(transaction, [MissingEvent(exceeding.row_id, exceeding.attempts, exception_thrown=True)])
            self._tables.exceed(transaction, [(exceeding.row_id, f"{exceeding.code}: {exceeding.reason}")])

    def parked(self) -> dict[Key, tuple[int, ...]]:
        """The keys of exceeded events; the policy of their topic decides whether they wait."""
        return self._tables.parked(self._database)

    def rows(self, wanted: ExceededFilter) -> list[ExceededRow]:
        return self._matching(self._database, wanted)

    def page(self, wanted: ExceededFilter, above: int, most: int) -> list[ExceededRow]:
        found = self._tables.execute(self._database, "page", above=above, most=most, **_bound(wanted))
        return [self._row(*row) for row in found.rows]

    def count(self, wanted: ExceededFilter, most: int) -> int:
        """Exactly, as by the groups: the original's tables have no key to count by."""
        return min(most, sum(each.count for each in self.groups(wanted)))

    def groups(self, wanted: ExceededFilter) -> list[ExceededGroup]:
        """Reasons that the original wrote have no code."""
        found: dict[tuple[str, str], ExceededGroup] = {}
        for text, topic, count, oldest in self._tables.execute(self._database, "groups", **_bound(wanted)).rows:
            code = text if text and _CODED.match(f"{text}: ") else ""
            one = ExceededGroup(code, topic or "", count, written_at(oldest))
            before = found.get((one.code, one.topic))
            found[one.code, one.topic] = one if before is None else replace(before, count=before.count + count)
        return list(found.values())

    def sizes(self) -> ExceededSizes:
        """Without a join over all events: the table keeps what was published."""
        [(rows,)] = self._tables.execute(self._database, "exceeded_count").rows
        return ExceededSizes(rows, Counter(topic for topic, _ in self.parked()))

    def settle(self, wanted: ExceededFilter, action: Action, reason: str) -> list[ExceededRow]:
        """Makes the selected events missing again, or deletes them, all in one transaction, and records the reason."""
        with self._database.transaction() as transaction:
            # The relay and other operators wait for the same row, so that no one else takes what is found now.
            self._tables.offsets(transaction, hold=True)
            taken = self._matching(transaction, wanted)
            ids = [row.id for row in taken]
            self._tables.with_ids(transaction, "leave_exceeded", ids)
            if action == "retry":
                self._tables.miss(transaction, [MissingEvent(id) for id in ids])
            for row in taken:
                noted = {"outbox": self._tables.events, "id": row.id, "topic": row.topic, "key": row.key}
                transaction.execute(self._note, noted | {"action": action, "reason": reason})
            return taken

    def whereabouts(self, ids: Sequence[int]) -> dict[int, Whereabouts]:
        """By the missing events: a retried one is missing until it is published."""
        rows = [row for some in _cut(ids) for row in self._tables.whereabouts(self._database, some)]
        return locate(rows, ids)

    def close(self) -> None:
        self._database.close()

    def _matching(self, where: Transaction | InstallingDatabase, wanted: ExceededFilter) -> list[ExceededRow]:
        return [self._row(*found) for found in self._tables.execute(where, "list", **_bound(wanted)).rows]

    def _row(self, id: int, retries: int, gone_at: Any, reason: str | None, created: Any, *columns: Any) -> ExceededRow:
        # An event without a row is only an id: its row was never visible.
        event = None if columns[0] is None else decode_rows(self._tables.layout.decode, [columns])[0]
        coded = _CODED.match(reason or "")
        return ExceededRow(
            id=id,
            topic=event.topic if event else "",
            key=event.key if event else None,
            value=event.value if event else None,
            headers=to_text(event.headers) if event else None,
            partition=None,
            timestamp=None,
            created_at=written_at(created),
            attempts=retries,
            code=coded["code"] if coded else "",
            reason=(reason or "")[coded.end() if coded else 0 :],
            parks=reason is not None and event is not None and event.key is not None,
            exceeded_at=written_at(gone_at) or _LONG_AGO,
            original=None,
        )
