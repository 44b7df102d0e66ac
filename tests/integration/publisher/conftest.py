"""Publishers on the session's servers, closed at the end of the test, and eyes on the topic."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import inorder
from inorder.embedded import Kafka
from inorder.kafka.readers import read_back
from tests.contract.outbox.conftest import client as client
from tests.contract.outbox.conftest import database_url as database_url
from tests.contract.outbox.conftest import sqlite_url as sqlite_url
from tests.contract.shard_log.conftest import settle
from tests.integration.relay.conftest import Bench

LIMIT = 20_000
LARGE = random.Random(1).randbytes(2 * LIMIT)  # nothing that compression could save

Make = Callable[..., inorder.Publisher]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Kafka]:
    """A broker that a test may stop."""
    with Kafka(tmp_path) as broker:
        settle(broker)
        yield broker


@pytest.fixture
def make(kafka_bootstrap: str) -> Iterator[Make]:
    """Makes publishers: `make(backend="kafka", topics={…})`; other keywords are settings of the publisher."""
    made: list[inorder.Publisher] = []

    def publisher(
        *,
        bootstrap: str = kafka_bootstrap,
        kafka: dict[str, Any] | None = None,
        topics: dict[str, Any] | None = None,
        relay: dict[str, Any] | None = None,
        database_url: str | None = None,
        on_delivery: Callable[[inorder.Message, inorder.InorderError | None], None] | None = None,
        **settings: object,
    ) -> inorder.Publisher:
        loaded = inorder.Settings.load(
            kafka={"bootstrap.servers": bootstrap, **(kafka or {})},
            publisher=settings,
            topics=topics or {},
            relay=relay or {},
            database={"url": database_url},
        )
        made.append(inorder.Publisher(loaded, on_delivery=on_delivery))
        return made[-1]

    yield publisher
    for one in made:
        one.close(0)


def alter_topic(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    """Changes settings of a topic, as an operator would."""
    Bench("", bootstrap, "").alter_topic(topic, config)


def values_by_key(bootstrap: str, topic: str) -> dict[bytes | None, list[bytes | None]]:
    """What a reader finds: for each key its values in their order."""
    found: dict[bytes | None, list[bytes | None]] = {}
    for record in read_back({"bootstrap.servers": bootstrap}, topic):
        found.setdefault(record.key, []).append(record.value)
    return found


def expected_by_key(messages: list[inorder.Message]) -> dict[bytes | None, list[bytes | None]]:
    """The same of messages with texts for keys and values."""
    found: dict[bytes | None, list[bytes | None]] = {}
    for message in messages:
        value = message.value if isinstance(message.value, bytes) else str(message.value).encode()
        found.setdefault(str(message.key).encode(), []).append(value)
    return found


def numbered(topic: str, count: int, keys: int = 7) -> list[inorder.Message]:
    """Messages whose values count up within each key."""
    return [inorder.Message(topic, key=str(n % keys), value=str(n // keys)) for n in range(count)]
