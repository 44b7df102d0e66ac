"""The places in which messages and lock rows can be, each with a way to write beside its stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

from inorder.database.database import Database, open_database
from inorder.outbox.layouts import install_statements
from inorder.relay.stores.exceeded import ExceededFilter, SqlExceededStore
from inorder.relay.stores.ports import Exceeding, TopicBacklog, TopicStore
from inorder.relay.stores.topic_lock import SqlTopicStore
from tests.fakes.topics import MemoryTopicStore, MemoryTopicTables

TABLE = "kafka_messages"


class Place(ABC):
    """Both tables, and what operators and other programs do to them."""

    @abstractmethod
    def store(self) -> TopicStore:
        """Another worker's store; closed when the test ends."""

    @abstractmethod
    def insert(self, topic: str, key: bytes | None = b"k", value: bytes | None = b"v") -> None:
        """Commits one message."""

    @abstractmethod
    def set_lock(self, topic: str, **columns: Any) -> None:
        """Writes columns of a lock row, which is there."""

    @abstractmethod
    def age_lock(self, topic: str, seconds: float) -> None:
        """Makes a lock older than it is."""

    @abstractmethod
    def exceed(self, exceeding: Exceeding) -> None:
        """Sets a message aside."""

    @abstractmethod
    def retry(self, id: int) -> None:
        """Puts it back."""

    def lock_row(self, topic: str) -> TopicBacklog:
        """The lock row of a topic, and what waits for it."""
        return next(state for state in self.store().pending() if state.topic == topic)


class MemoryPlace(Place):
    """The store of simulations."""

    def __init__(self) -> None:
        self.tables = MemoryTopicTables()

    def store(self) -> TopicStore:
        return MemoryTopicStore(self.tables)

    def insert(self, topic: str, key: bytes | None = b"k", value: bytes | None = b"v") -> None:
        self.tables.insert(topic, key, value)

    def set_lock(self, topic: str, **columns: Any) -> None:
        self.tables.locks[topic] = replace(self.tables.locks[topic], **columns)

    def age_lock(self, topic: str, seconds: float) -> None:
        locked_at = self.tables.locks[topic].locked_at
        assert locked_at is not None
        self.set_lock(topic, locked_at=locked_at - timedelta(seconds=seconds))

    def exceed(self, exceeding: Exceeding) -> None:
        self.tables.exceed(exceeding)

    def retry(self, id: int) -> None:
        self.tables.retry(id)


_OLDER = {
    "postgres": "locked_at - make_interval(secs => %(seconds)s)",
    "mysql": "locked_at - INTERVAL %(seconds)s SECOND",
    "sqlite": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', locked_at, '-' || %(seconds)s || ' seconds')",
}


def age_lock(database: Database, topic: str, seconds: float) -> None:
    """Makes a lock older than it is."""
    statement = f"UPDATE kafka_topic_info SET locked_at = {_OLDER[database.dialect]} WHERE topic = %(topic)s"
    database.execute(statement, {"topic": topic, "seconds": seconds})


class SqlPlace(Place):
    """Tables in a database."""

    def __init__(self, url: str, stack: ExitStack, table: str = TABLE) -> None:
        self.url = url
        self.table = table
        self._stack = stack
        self.database = self._opened()
        self.database.install(install_statements("deimos", self.database.dialect, table))
        self._exceeded = SqlExceededStore(self._opened(), table, "deimos")

    def store(self, *, stale_seconds: float = 60.0) -> SqlTopicStore:
        found = SqlTopicStore(self._opened(), self.table, stale_seconds=stale_seconds)
        self._stack.callback(found.close)
        return found

    def insert(self, topic: str, key: bytes | None = b"k", value: bytes | None = b"v") -> None:
        column = "`key`" if self.database.dialect == "mysql" else "key"
        statement = f"INSERT INTO {self.table} (topic, {column}, message) VALUES (%(topic)s, %(key)s, %(value)s)"
        self.database.execute(statement, {"topic": topic, "key": key, "value": value})

    def set_lock(self, topic: str, **columns: Any) -> None:
        changes = ", ".join(f"{name} = %({name})s" for name in columns)
        self.database.execute(
            f"UPDATE kafka_topic_info SET {changes} WHERE topic = %(topic)s", {"topic": topic, **columns}
        )

    def age_lock(self, topic: str, seconds: float) -> None:
        age_lock(self.database, topic, seconds)

    def exceed(self, exceeding: Exceeding) -> None:
        self._exceeded.exceed(exceeding)

    def retry(self, id: int) -> None:
        self._exceeded.settle(ExceededFilter(id=id), "retry", "")

    def _opened(self) -> Database:
        database = open_database(self.url, "test")
        self._stack.callback(database.close)
        return database
