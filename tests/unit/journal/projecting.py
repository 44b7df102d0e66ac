"""A projection of journals in memory into an SQLite file, with instances that share partitions as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inorder.database.database import Database, Transaction, open_database
from inorder.journal.projection import Appended, Change, Deleted, Projection, Purged
from inorder.journal.projection_runner import ProjectionRunner
from inorder.journal.stores.ports import EventualJournal
from inorder.journal.stores.projection_store import ProjectionStore
from inorder.testing.memory_journal import MemorySharedTail
from tests.unit.journal.subscribing import TOPIC, Topic

SEEN = """
    CREATE TABLE IF NOT EXISTS seen
    (n integer PRIMARY KEY AUTOINCREMENT, id text, kind text, seq_nr integer, at integer)
"""
VIEW = "CREATE TABLE IF NOT EXISTS view (id text, seq_nr integer, at integer, PRIMARY KEY (id, seq_nr))"


def fold_change(transaction: Transaction, change: Change) -> None:
    """A read model with the visible events of each journal, and a list of all changes."""
    id = change.key.id
    match change:
        case Appended(_, record):
            values = {"id": id, "seq_nr": record.seq_nr, "at": record.offset}
            transaction.execute("INSERT INTO view VALUES (%(id)s, %(seq_nr)s, %(at)s)", values)
            kind, number, at = "appended", record.seq_nr, record.offset
        case Deleted(_, to):
            transaction.execute("DELETE FROM view WHERE id = %(id)s AND seq_nr <= %(to)s", {"id": id, "to": to})
            kind, number, at = "deleted", to, -1
        case Purged():
            transaction.execute("DELETE FROM view WHERE id = %(id)s", {"id": id})
            kind, number, at = "purged", 0, -1
    transaction.execute(
        "INSERT INTO seen (id, kind, seq_nr, at) VALUES (%(id)s, %(kind)s, %(number)s, %(at)s)",
        {"id": id, "kind": kind, "number": number, "at": at},
    )


@dataclass
class ReadModel:
    """The database of the read model, and runners of one projection into it."""

    topic: Topic
    path: Path
    handler: Callable[[Transaction, Change], object] = fold_change
    journals: EventualJournal | None = None
    database: Database = field(init=False)
    options: dict[str, Any] = field(default_factory=dict)
    topic_id: str = "one"

    def __post_init__(self) -> None:
        self.database = self.open()
        self.database.install([SEEN, VIEW])

    def open(self) -> Database:
        return open_database(f"sqlite:///{self.path}", "test")

    def runner(self, tail: MemorySharedTail | None = None, **options: Any) -> ProjectionRunner:
        """An instance with a connection of its own."""
        projection = Projection("view", self.handler, [TOPIC], **self.options)
        places = {(TOPIC, number): 0 for number in range(self.topic.partitions)}

        def open_tail(_: Projection, is_alone: bool) -> MemorySharedTail:
            return MemorySharedTail(self.topic.log, places, id=self.topic_id) if is_alone or tail is None else tail

        store = ProjectionStore(self.open(), "view")
        return ProjectionRunner(projection, store, self.journals or self.topic.store, open_tail, **options)

    def close(self) -> None:
        self.database.close()

    def catch_up(self) -> dict[str, int]:
        """Runs once to the end of the topic."""
        return self.runner().run(once=True)

    def seen(self, id: str | None = None) -> list[tuple[str, str, int]]:
        """Every change that was committed, in order."""
        rows = self.database.execute("SELECT id, kind, seq_nr FROM seen ORDER BY n").rows
        return [(row[0], row[1], row[2]) for row in rows if id in (None, row[0])]

    def view(self) -> set[tuple[str, int, int]]:
        return {(row[0], row[1], row[2]) for row in self.database.execute("SELECT id, seq_nr, at FROM view").rows}


class Interrupted(BaseException):
    """Ends a runner as a kill does: no handler of an error sees it."""


def kill_at(count: int) -> Callable[[Transaction, Change], object]:
    """A handler after whose writes for the change with this number the process is gone."""
    calls: Iterator[int] = iter(range(1, 1_000_000))

    def handler(transaction: Transaction, change: Change) -> None:
        fold_change(transaction, change)
        if next(calls) == count:
            raise Interrupted

    return handler


def in_thread(runner: ProjectionRunner) -> threading.Thread:
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    return thread
