"""The broker of the session, and one implementation of the port a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from inorder.embedded import Kafka
from inorder.kafka import fenced_producer, idempotent_producer, topic_facts
from inorder.kafka.admin import ensure_topic
from inorder.kafka.errors import CLIENT_LOG
from tests.contract.shard_log.making import Case, in_memory, on_kafka
from tests.contract.shard_log.strict_broker import StrictKafka


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests ask what arrives, not how soon: a busy machine may take longer than the relay would wait."""
    monkeypatch.setattr(idempotent_producer, "PATIENCE_SECONDS", 20.0)
    monkeypatch.setattr(topic_facts, "MAKING_SECONDS", 20.0)
    monkeypatch.setattr(fenced_producer, "SHORTEST_BACKOFF_MS", 4_000)


@pytest.fixture(scope="session")
def settled_kafka(kafka: Kafka) -> Kafka:
    """The session's broker, ready for producers."""
    settle(kafka)
    return kafka


@pytest.fixture
def properties(settled_kafka: Kafka) -> dict[str, object]:
    return {"bootstrap.servers": settled_kafka.bootstrap}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Kafka]:
    """A broker to be stopped and killed."""
    with Kafka(tmp_path) as broker:
        settle(broker)
        yield broker


def settle(broker: Kafka) -> None:
    """Waits until the broker gives producers their ids, which is some seconds after its start on a busy machine."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}, logger=CLIENT_LOG)
    ensure_topic({"bootstrap.servers": broker.bootstrap}, "settled", 1)
    producer.produce("settled", b"")
    assert not producer.flush(60)


@pytest.fixture(scope="session")
def strict_kafka(servers_folder: Path) -> Iterator[StrictKafka]:
    """A second broker, on which topics can be missing or closed."""
    with StrictKafka(servers_folder / "strict-kafka") as broker:
        settle(broker)
        yield broker


@pytest.fixture
def case(request: pytest.FixtureRequest, unique: str) -> Case:
    """To be parametrised with names out of `FENCED` and `UNFENCED`."""
    place, _, unfenced = str(request.param).partition(", ")
    if place == "memory":
        return in_memory(fenced=not unfenced)
    return on_kafka(request.getfixturevalue("properties"), unique, fenced=not unfenced)
