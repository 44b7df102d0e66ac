"""The tables of the trendyol layout: what is done to them inside a transaction, by the relay and by people alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from inorder.outbox.layouts import layout, quoted_table
from inorder.outbox.layouts.trendyol.tables import SideTables
from inorder.ports.exceeded_store import Key
from inorder.ports.polling_store import MissingEvent
from inorder.stores.database import Database, Dialect, Installed, Result, Transaction, statements_of

LAYOUT = "trendyol"

_IDS_A_STATEMENT = 10_000
"""200 kB at most: far below what a server takes in a packet."""

_FRAGMENTS = ("now", "offset_column", "among", "ids", "reasons")

Where = Transaction | Database | Installed


class EventTables:
    """The statements of one set of tables; whoever calls them has the transaction."""

    def __init__(self, dialect: Dialect, table: str, sides: SideTables) -> None:
        self.events = table
        self.sides = sides.beside(table)
        self.layout = layout(LAYOUT, dialect)
        self._dialect = dialect
        self._statements = _rendered(dialect, table, self.sides)

    def execute(self, where: Where, name: str, **parameters: Any) -> Result:
        """Runs one of `polling.sql`."""
        return where.execute(self._statements[name], parameters)

    def offsets(self, where: Where, *, hold: bool = False) -> list[int]:
        """The offset, of which there should be one; with `hold` nobody moves it until the transaction ends."""
        found = self.execute(where, "hold" if hold else "offset").rows
        return [offset for (offset,) in found if offset is not None]

    def miss(self, where: Transaction, events: Sequence[MissingEvent]) -> None:
        """Records ids as missing, a statement for those that are alike; one that is there stays as it is."""
        alike: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)
        for event in events:
            alike[event.retry_count, event.exception_thrown].append(event.id)
        for (count, thrown), ids in alike.items():
            self.with_ids(where, "miss", ids, retry_count=count, exception_thrown=thrown)

    def exceed(self, where: Transaction, given_up: Sequence[tuple[int, str]]) -> None:
        """Moves ids from missing to exceeded; those that are not missing are left alone."""
        for some in _cut(given_up):
            ids, reasons = [id for id, _ in some], [reason for _, reason in some]
            listed = self._listed(ids) | {"reasons": reasons, "json": _json(some)}
            self.execute(where, "forget_exceeded", **listed)
            self.execute(where, "exceed", **listed)
            self.execute(where, "leave_missing", **listed)

    def with_ids(self, where: Transaction, name: str, ids: Sequence[int], **more: Any) -> None:
        """Runs a statement for a list of ids, ten thousand at a time."""
        for some in _cut(ids):
            self.execute(where, name, **self._listed(some), **more)

    def parked(self, where: Where) -> dict[Key, tuple[int, ...]]:
        """The keys of exceeded events that are to be seen, with the ids of these."""
        found: defaultdict[Key, tuple[int, ...]] = defaultdict(tuple)
        for topic, key, id in self.execute(where, "parked").rows:
            found[topic, key] += (id,)
        return dict(found)

    def _listed(self, ids: Sequence[int]) -> dict[str, Any]:
        """A list as the dialect takes it; the driver of MySQL writes a tuple with brackets."""
        match self._dialect:
            case "postgres":
                return {"ids": list(ids)}
            case "mysql":
                return {"ids": tuple(ids), "json": _json(ids)}
            case "sqlite":
                return {"ids": _json(ids)}


def _rendered(dialect: Dialect, table: str, sides: SideTables) -> Mapping[str, str]:
    statements, found = statements_of(dialect, "polling.sql"), layout(LAYOUT, dialect)
    names = {side: quoted_table(dialect, name) for side, name in asdict(sides).items()}
    parts = {name: statements[name] for name in _FRAGMENTS}
    columns = {"id": found.id, "columns": found.columns, "topic": found.topic, "key": found.key}
    identifiers = {"table": quoted_table(dialect, table), "written_at": found.written_at, **columns, **names, **parts}
    return {name: statements.render(name, **identifiers) for name in statements if name not in _FRAGMENTS}


def _cut(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _IDS_A_STATEMENT):
        yield items[start : start + _IDS_A_STATEMENT]


def _json(items: Sequence[Any]) -> str:
    return orjson.dumps(list(items)).decode()
