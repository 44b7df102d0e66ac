"""A database of any kind with the tables of PollingOutboxPublisher, and relays of the strategy polling on it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine

import inorder
from inorder.database.database import open_database
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import ReadRecord, read_back
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.relay.parts import RelayParts
from inorder.relay.stores.ports import PollingState
from tests.operating import install_schema

TABLE = "outbox_events"

TOO_LARGE = random.Random(1).randbytes(2500).hex()
"""Text that compression does not make small enough for a topic that takes 2,000 bytes."""


@dataclass
class Depot:
    """One set of tables, its own topics, and its relays."""

    url: str
    bootstrap: str
    group: str
    stack: ExitStack
    relays: list[inorder.Relay] = field(default_factory=list)

    def __post_init__(self) -> None:
        install_schema(self.settings(), "trendyol")
        self._outbox = Outbox(TABLE, layout="trendyol")
        self._engine = create_engine(self.url)
        self.stack.callback(self._engine.dispose)

    @property
    def properties(self) -> dict[str, object]:
        return {"bootstrap.servers": self.bootstrap}

    def settings(self, *, polling: Any = None, **relay: Any) -> inorder.Settings:
        """What an instance is given; keywords are settings of the relay."""
        chosen = {"strategy": "polling", "layout": "trendyol", "leadership": "none", "io_back_off_ms": 50, **relay}
        swift = {"queue_wait_ms": 10, "missing_wait_ms": 100, "missing_max_retries": 2, **(polling or {})}
        return inorder.Settings.load(
            kafka={"bootstrap.servers": self.bootstrap},
            database={"url": self.url},
            relay={"group": self.group, **chosen, "polling": swift},
        )

    def relay(self, **options: Any) -> inorder.Relay:
        """A relay that runs until the test ends."""
        found = self.stack.enter_context(inorder.Relay(self.settings(**options)))
        self.relays.append(found)
        return found

    def topic(self, name: str = "t", partitions: int = 1) -> str:
        """A topic of this depot alone."""
        full = f"{self.group}.{name}"
        ensure_topic(self.properties, full, partitions)
        return full

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One that is committed at the end of the block."""
        with self._engine.begin() as connection:
            yield connection

    def add(self, connection: Connection, *messages: Message) -> None:
        """Into a transaction that is open."""
        self._outbox.publish_list(connection, messages)

    def publish(self, *messages: Message) -> None:
        with self.transaction() as connection:
            self.add(connection, *messages)

    def roll_back(self, *messages: Message) -> None:
        """Takes ids that are rolled back."""
        with self._engine.connect() as connection:
            self.add(connection, *messages)
            connection.rollback()

    def execute(self, statement: str, **parameters: object) -> Sequence[Any]:
        with closing(open_database(self.url, "test")) as database:
            return database.execute(statement, parameters).rows

    def state(self) -> PollingState:
        parts = RelayParts(self.settings())
        with closing(parts.polling_store(parts.open_database("test"))) as store:
            return store.state()

    def is_done(self) -> bool:
        """Whether everything is delivered, and nothing waits to be proven."""
        found = self.state()
        return found.offset >= found.newest_id and not found.missing

    def records(self, topic: str) -> list[ReadRecord]:
        return list(read_back(self.properties, topic))

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.records(topic)]

    def config(self, folder: Path) -> Path:
        """The settings as a file, for commands."""
        file = folder / f"{self.group}.toml"
        file.write_text(
            f'[kafka]\n"bootstrap.servers" = "{self.bootstrap}"\n[database]\nurl = "{self.url}"\n'
            f'[relay]\ngroup = "{self.group}"\nstrategy = "polling"\nlayout = "trendyol"\nleadership = "none"\n'
        )
        return file


def numbered(topic: str, numbers: range, keys: int = 3) -> list[Message]:
    """Events of a few keys."""
    return [Message(topic, key=f"k{number % keys}", value=str(number)) for number in numbers]
