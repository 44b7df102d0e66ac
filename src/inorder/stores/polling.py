"""Offset, missing and exceeded events in any database, as the strategy `polling` uses them."""

from __future__ import annotations

from inorder.model.errors import ConfigurationError, FencedError
from inorder.outbox.layouts.trendyol.tables import USUAL_TABLES, SideTables
from inorder.ports.exceeded_store import Key
from inorder.ports.polling_store import MissingEvent, PollingState, Settlement
from inorder.stores.database import Database, Transaction
from inorder.stores.moment import written_at
from inorder.stores.outbox_table import as_needed
from inorder.stores.polling_tables import LAYOUT, EventTables

HINT = (
    "`inorder schema sql --layout trendyol` prints the tables, `inorder schema install --layout trendyol` makes them "
    "and adds what they lack."
)


class SqlPollingStore:
    """A `PollingStore` on one connection."""

    def __init__(self, database: Database, table: str, sides: SideTables = USUAL_TABLES) -> None:
        self._database = database
        self._tables = EventTables(database.dialect, table, sides)

    def check(self) -> None:
        """Reads no row of the tables but the one of the offset."""
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
        """What the one row says."""
        return self._only(self._tables.offsets(self._database))

    def missing(self, above: int, limit: int) -> list[MissingEvent]:
        """A page of them."""
        found = self._tables.execute(self._database, "missing", above=above, limit=limit)
        return [MissingEvent(id, count, bool(thrown), written_at(missed)) for id, count, thrown, missed in found.rows]

    def parked(self) -> dict[Key, tuple[int, ...]]:
        """By a join of the exceeded events with the rows."""
        return self._tables.parked(self._database)

    def settle(self, settlement: Settlement) -> None:
        """One statement where only the offset moves, which is most often the case."""
        if not _has_ids(settlement) and settlement.from_offset != settlement.to_offset:
            bounds = {"from": settlement.from_offset, "to": settlement.to_offset}
            if self._tables.execute(self._database, "move", **bounds).count == 0:
                self._refuse_unless_settled(self.offset(), settlement)
            return
        with self._database.transaction() as transaction:
            if self._owns(transaction, settlement):
                self._write(transaction, settlement)

    def state(self) -> PollingState:
        """Counts; with a long way to go that takes a while."""
        found = self._tables.execute(self._database, "state").rows[0]
        offset, newest, missing, exceeded, oldest, behind = found
        return PollingState(
            self._only([] if offset is None else [offset]), newest, missing, exceeded, written_at(oldest), behind
        )

    def keeps_published(self) -> bool:
        """Whether rows are there that were published: another strategy would publish them again."""
        return bool(self._tables.execute(self._database, "published").rows)

    def close(self) -> None:
        """Gives the connection back."""
        self._database.close()

    def _owns(self, transaction: Transaction, settlement: Settlement) -> bool:
        """Takes the row of the offset; False where this settlement was written before, `FencedError` where another."""
        bounds = {"from": settlement.from_offset, "to": settlement.to_offset}
        if settlement.from_offset != settlement.to_offset:
            if self._tables.execute(transaction, "move", **bounds).count > 0:
                return True
            self._refuse_unless_settled(self._only(self._tables.offsets(transaction)), settlement)
            return False
        self._refuse_unless_settled(self._only(self._tables.offsets(transaction, hold=True)), settlement)
        return True

    def _refuse_unless_settled(self, found: int, settlement: Settlement) -> None:
        if found != settlement.to_offset:
            raise FencedError(
                f"The offset in {self._tables.sides.offset!r} is {found} and not {settlement.from_offset}: another "
                "instance moved it.",
                hint="Where nobody did so on purpose, look for a second relay with another relay.group.",
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
