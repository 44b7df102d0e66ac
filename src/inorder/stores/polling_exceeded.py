"""Exceeded events of the trendyol layout: how people look at them and let them go. Their rows never left the table."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from inorder.model.headers import to_text
from inorder.outbox.layouts import quoted_table
from inorder.outbox.layouts.trendyol.tables import USUAL_TABLES, SideTables
from inorder.ports.exceeded_store import Exceeding, Key
from inorder.ports.polling_store import MissingEvent
from inorder.stores.database import Database, Installed, Transaction, statements_of
from inorder.stores.exceeded import Action, ExceededRow, Filter, anything_of, install_statements
from inorder.stores.moment import written_at
from inorder.stores.polling_tables import EventTables

_CODED: Final = re.compile(r"(?P<code>[A-Z]+-\d+): ")

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class PollingExceededStore:
    """An `ExceededStore` on the tables of the strategy `polling`; what people do is noted where it always is."""

    def __init__(self, database: Database, table: str, sides: SideTables = USUAL_TABLES) -> None:
        self._database = Installed(database, install_statements(database.dialect))
        self._tables = EventTables(database.dialect, table, sides)
        key = {"key": quoted_table(database.dialect, "key")}
        self._note = statements_of(database.dialect, "exceeded.sql").render("note_action", **key)

    def exceed(self, exceeding: Exceeding) -> None:
        """Gives a row up, whether it was missing or not; it stays in its table."""
        with self._database.transaction() as transaction:
            self._tables.offsets(transaction, hold=True)
            self._tables.miss(transaction, [MissingEvent(exceeding.row_id, exceeding.attempts, exception_thrown=True)])
            self._tables.exceed(transaction, [(exceeding.row_id, f"{exceeding.code}: {exceeding.reason}")])

    def parked(self) -> dict[Key, tuple[int, ...]]:
        """The keys of exceeded events; the policy of their topic decides whether they wait."""
        return self._tables.parked(self._database)

    def rows(self, wanted: Filter) -> list[ExceededRow]:
        """The exceeded events that are meant, oldest first."""
        return self._matching(self._database, wanted)

    def settle(self, wanted: Filter, action: Action, reason: str) -> list[ExceededRow]:
        """Makes the events that are meant missing again, or forgets them, all in one transaction, and notes why."""
        with self._database.transaction() as transaction:
            # The relay and other people wait for the same row, so nobody else takes what is found now.
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

    def close(self) -> None:
        """Gives the connection back."""
        self._database.close()

    def _matching(self, where: Transaction | Installed, wanted: Filter) -> list[ExceededRow]:
        asked = anything_of(wanted)
        if wanted.code is not None:
            asked["code"] = f"{wanted.code}: %"
        return [self._row(*found) for found in self._tables.execute(where, "list", **asked).rows]

    def _row(self, id: int, retries: int, gone_at: Any, reason: str | None, created: Any, *columns: Any) -> ExceededRow:
        # Without a row there is nothing but the id: it was never seen.
        event = None if columns[0] is None else self._tables.layout.decode(columns)
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
