"""A database of any kind with the tables of Deimos, and relays of the strategy topic-lock on it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

import inorder
from inorder.database.database import open_database
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import ReadRecord, read_back
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.relay.events import BatchProduced, RelayEvent
from inorder.relay.stores.ports import TopicBacklog
from tests.contract.topic_store.places import age_lock
from tests.operating import install_schema, topic_states

TABLE = "kafka_messages"


@dataclass
class Office:
    """One pair of tables, its own topics, and the events of its relays."""

    url: str
    bootstrap: str
    group: str
    stack: ExitStack
    told: list[BatchProduced] = field(default_factory=list)

    def __post_init__(self) -> None:
        install_schema(self.settings(), "deimos")

    @property
    def properties(self) -> dict[str, object]:
        return {"bootstrap.servers": self.bootstrap}

    def settings(
        self, *, topics: dict[str, Any] | None = None, topic_lock: Any = None, **relay: Any
    ) -> inorder.Settings:
        """What an instance is given; keywords are settings of the relay."""
        chosen = {"group": self.group, "strategy": "topic-lock", "layout": "deimos", "io_back_off_ms": 50, **relay}
        return inorder.Settings.load(
            kafka={"bootstrap.servers": self.bootstrap},
            database={"url": self.url},
            relay={**chosen, "topic_lock": {"lock_seconds": 5, **(topic_lock or {})}},
            topics=topics or {},
        )

    def relay(self, **options: Any) -> inorder.Relay:
        """A relay that runs until the test ends."""
        found = inorder.Relay(self.settings(**options))
        found.on_event(self._tell)
        return self.stack.enter_context(found)

    def topic(self, name: str = "t", partitions: int = 1) -> str:
        """A topic of this office alone."""
        full = f"{self.group}.{name}"
        ensure_topic(self.properties, full, partitions)
        return full

    def publish(self, *messages: Message) -> None:
        engine = create_engine(self.url, poolclass=NullPool)
        with engine.begin() as connection:
            Outbox(TABLE, layout="deimos").publish_list(connection, messages)

    def execute(self, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
        with closing(open_database(self.url, "test")) as database:
            return database.execute(statement, parameters).rows

    def age_lock(self, topic: str, seconds: float) -> None:
        """Makes the lock of a topic older than it is."""
        with closing(open_database(self.url, "test")) as database:
            age_lock(database, topic, seconds)

    def count(self) -> int:
        return int(self.execute(f"SELECT count(*) FROM {TABLE}")[0][0])

    def lock(self, topic: str) -> TopicBacklog:
        return next(state for state in topic_states(self.settings()) if state.topic == topic)

    def records(self, topic: str) -> list[ReadRecord]:
        return list(read_back(self.properties, topic))

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.records(topic)]

    def config(self, folder: Path, **topic_lock: int) -> Path:
        """The settings as a file, for commands."""
        lines = "".join(f"{name} = {value}\n" for name, value in topic_lock.items())
        file = folder / f"{self.group}.toml"
        file.write_text(
            f'[kafka]\n"bootstrap.servers" = "{self.bootstrap}"\n[database]\nurl = "{self.url}"\n'
            f'[relay]\ngroup = "{self.group}"\nstrategy = "topic-lock"\nlayout = "deimos"\nio_back_off_ms = 50\n'
            f"[relay.topic_lock]\n{lines}"
        )
        return file

    def _tell(self, event: RelayEvent) -> None:
        if isinstance(event, BatchProduced):
            self.told.append(event)
