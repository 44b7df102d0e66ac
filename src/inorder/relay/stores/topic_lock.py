"""The tables of the deimos layout in any database, as the strategy `topic-lock` uses them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson

from inorder.database.database import Database, InstallingDatabase, Result, Transaction, statements_of, written_at
from inorder.database.sql import quoted_table
from inorder.model.errors import FencedError
from inorder.outbox.layouts import layout, lock_table
from inorder.outbox.stores.table import as_needed
from inorder.relay.stores.exceeded import exceeded_tables
from inorder.relay.stores.outbox_store import ById, columns_unless_large, complete, marked_page
from inorder.relay.stores.ports import LAST_ID, Page, TopicBacklog

LAYOUT = "deimos"
HINT = "`inorder schema sql --layout deimos` prints both tables, `inorder schema install --layout deimos` creates them."


class SqlTopicStore:
    """A `TopicStore` on one connection."""

    def __init__(self, database: Database, table: str, *, stale_seconds: float = 60.0) -> None:
        # Parked keys are in a table of inorder.
        self._database = InstallingDatabase(database, exceeded_tables(database.dialect))
        self._in_arrays = database.dialect == "postgres"
        self._decode = layout(LAYOUT, database.dialect).decode
        self._statements = _render(database, table)
        self._always = {"outbox": table, "stale_seconds": stale_seconds}
        self._table = table
        self._has_row: set[str] = set()

    def check(self) -> None:
        for name, table in (("check_messages", self._table), ("check_locks", lock_table(self._table))):
            with as_needed(table, LAYOUT, HINT):
                self._execute(self._database, name)

    def topics(self) -> list[str]:
        """By skipping through the index (topic, id)."""
        return [topic for (topic,) in self._execute(self._database, "topics").rows]

    def lock(self, topic: str, worker: UUID) -> bool:
        """Inserts the lock row at the first call for a topic."""
        if topic not in self._has_row:
            self._execute(self._database, "create", topic=topic)
            self._has_row.add(topic)
        return self._execute(self._database, "lock", topic=topic, worker=str(worker)).count == 1

    def read(self, topic: str, limit: int, max_bytes: int = LAST_ID) -> Page:
        """One statement, so one snapshot; large messages are read by id afterwards."""
        found = self._execute(self._database, "read", topic=topic, limit=limit, most=max_bytes // limit).rows
        by_id = ById(self._decode, self._read_by_id, self._sizes)
        return marked_page(complete(found, max_bytes, by_id), limit)

    def stamp(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
        """Lock and messages in one transaction."""
        return self._under_lock("stamp", topic, worker, session, ids)

    def delete(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int], group_size: int) -> int:
        """Lock and messages in one transaction for each group."""
        groups = [ids[start : start + group_size] for start in range(0, len(ids), group_size)]
        return sum(self._under_lock("delete", topic, worker, session, group) for group in groups)

    def heartbeat(self, topic: str, worker: UUID) -> bool:
        """Updates the row only while it names us."""
        return self._execute(self._database, "renew", topic=topic, worker=str(worker)).count == 1

    def unlock(self, topic: str, worker: UUID) -> None:
        self._execute(self._database, "unlock", topic=topic, worker=str(worker))

    def fail(self, topic: str, worker: UUID) -> None:
        self._execute(self._database, "fail", topic=topic, worker=str(worker))

    def touch_empty(self, except_topics: Collection[str]) -> None:
        self._execute(self._database, "touch_empty", topics=self._list(list(except_topics)))

    def pending(self) -> list[TopicBacklog]:
        """Counts every topic; on a long table that takes a while."""
        waiting = {topic: (count, oldest) for topic, count, oldest in self._execute(self._database, "waiting").rows}
        locks = {topic: rest for topic, *rest in self._execute(self._database, "locks").rows}
        return [
            _state(topic, *waiting.get(topic, (0, None)), *locks.get(topic, _NO_LOCK))
            for topic in sorted(waiting.keys() | locks.keys())
        ]

    def close(self) -> None:
        self._database.close()

    def _read_by_id(self, ids: Sequence[int], most: int) -> Sequence[Sequence[Any]]:
        return self._execute(self._database, "read_by_id", ids=self._list(ids), most=most).rows

    def _sizes(self, ids: Sequence[int]) -> dict[int, int]:
        found = self._execute(self._database, "sizes", ids=self._list(ids))
        return {id: int(size) for id, size in found.rows}

    def _under_lock(self, name: str, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
        """Runs a statement on messages and renews the lock; raises, with nothing changed, if the lock is not ours."""
        lock = {"topic": topic, "worker": str(worker)}
        batch = {**lock, "session": str(session), "ids": self._list(ids)}
        if f"{name}_held" in self._statements:
            held, count = self._execute(self._database, f"{name}_held", **batch).rows[0]
        else:
            with self._database.transaction() as transaction:
                held = self._execute(transaction, "renew", **lock).count
                count = self._execute(transaction, name, **batch).count if held else 0
        if not held:
            raise FencedError(f"The lock of topic {topic!r} was taken from worker {worker}.")
        return int(count)

    def _list(self, items: Sequence[Any]) -> Any:
        return list(items) if self._in_arrays else orjson.dumps(list(items)).decode()

    def _execute(self, where: Transaction | InstallingDatabase, name: str, **parameters: Any) -> Result:
        return where.execute(self._statements[name], self._always | parameters)


_NO_LOCK = (None, None, None, False, 0)


def _render(database: Database, table: str) -> Mapping[str, str]:
    dialect = database.dialect
    statements, found = statements_of("inorder.relay", dialect, "topics.sql"), layout(LAYOUT, dialect)
    identifiers = {
        "table": quoted_table(dialect, table),
        "locks": quoted_table(dialect, lock_table(table)),
        "key": quoted_table(dialect, "key"),
        "columns": columns_unless_large(statements_of("inorder.relay", dialect, "outbox.sql"), found),
        "size": found.size,
        "now": statements["now"],
        "stale": statements["stale"],
    }
    return {name: statements.render(name, **identifiers) for name in statements}


def _state(
    topic: str, messages: int, oldest: Any, processed: Any, by: str | None, at: Any, error: Any, retries: int
) -> TopicBacklog:
    moments = written_at(oldest), written_at(processed)
    return TopicBacklog(topic, messages, *moments, by, written_at(at), bool(error), retries)
