"""A topic, a table and a job that is carried out by hand, so that a test decides when."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import inorder
from inorder.database.database import open_database
from inorder.engines.partition_reader import KafkaSource
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import ReadRecord, read_back
from inorder.pipeline.dead_letters import Fate, RetryResult
from inorder.pipeline.job import upsert_work
from tests.operating import list_dead_letters, retry_dead_letters
from tests.selection import few

# As long as `n` is an integer, text in it is rejected; a table that keeps text in it takes both.
STRICT = {"n": "integer", "data": "text"}
RELAXED = {"n": "text", "data": "text"}


@dataclass
class Job:
    """The upsert job of one table and one topic of one partition."""

    url: str
    bootstrap: str
    topic: str
    producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        self.producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        ensure_topic({"bootstrap.servers": self.bootstrap}, self.topic, 1)
        with self._store(STRICT) as store:
            store.install()
        with closing(open_database(self.url, "test")) as database:
            type_of_text = {"postgres": "ALTER COLUMN n TYPE text", "mysql": "MODIFY n LONGTEXT", "sqlite": ""}
            if change := type_of_text[database.dialect]:
                database.install([f"ALTER TABLE messages {change}"])

    def settings(self, fields: dict[str, str] | None = None, **sections: Any) -> inorder.Settings:
        return inorder.Settings.load(
            kafka={"bootstrap.servers": self.bootstrap},
            database={"url": self.url},
            pipeline={"upsert": {"topic": self.topic, "table": "messages", "fields": fields or RELAXED}},
            **sections,
        )

    def send(self, key: int, **fields: object) -> int:
        """Sends one record; returns its offset."""
        offsets: list[int | None] = []
        value = json.dumps({"id": key, **fields})
        self.producer.produce(
            self.topic, value, str(key), on_delivery=lambda _error, message: offsets.append(message.offset())
        )
        assert self.producer.flush(60) == 0
        return offsets[0] or 0

    def consume(self, fields: dict[str, str] | None = None) -> None:
        """Applies what is in the topic, as an engine would."""
        self.apply(self.settings(fields or STRICT))

    def apply(self, settings: inorder.Settings) -> None:
        """The same by other settings."""
        source = KafkaSource({"bootstrap.servers": self.bootstrap})
        end = (source.extents(self.topic) or {})[0].end
        with closing(upsert_work(settings).open()) as worker:
            start = worker.pointers(self.topic)
            at = start[0].next_offset if start else 0
            with closing(source.open({(self.topic, 0): at}, reports_ends=True)) as reader:
                ended: frozenset[object] = frozenset()
                while at < end and not ended:
                    slices, ended = reader.read(1000, 0.5)
                    for batch in slices:
                        at = worker.apply(batch, at).next_offset

    def retry(self, **options: Any) -> dict[int, Fate]:
        """Retries with the relaxed mapping; the fates by offset."""
        found: list[RetryResult] = list(retry_dead_letters(self.settings(), "mended", **options))
        return {int(one.id.rsplit(":", 1)[1]): one.fate for one in found}

    def left(self) -> list[int]:
        return [letter.offset for letter in list_dead_letters(self.settings(), 1000)]

    def rows(self) -> dict[int, tuple[Any, ...]]:
        with closing(open_database(self.url, "test")) as database:
            found = database.execute("SELECT id, n, data, version_offset FROM messages").rows
        return {key: (None if n is None else str(n), data, version) for key, n, data, version in found}

    def records(self) -> list[ReadRecord]:
        return list(read_back({"bootstrap.servers": self.bootstrap}, self.topic))

    def _store(self, fields: dict[str, str]) -> Any:
        [target] = upsert_work(self.settings(fields)).targets
        return closing(target.stores())


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A fresh SQLite file."""
    return f"sqlite:///{tmp_path / 'test.db'}"


@pytest.fixture(params=few(["postgres", "mariadb", "sqlite"], "sqlite"))
def job(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str) -> Job:
    """On each database in turn."""
    return Job(request.getfixturevalue(f"{request.param}_url"), kafka_bootstrap, unique)


@pytest.fixture
def postgres_job(postgres_url: str, kafka_bootstrap: str, unique: str) -> Job:
    """On PostgreSQL, for what does not differ between databases."""
    return Job(postgres_url, kafka_bootstrap, unique)
