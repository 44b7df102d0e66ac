"""A broker that has just come back may know a topic in one answer and not in the next: that is waited out."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from inorder.kafka import admin
from inorder.kafka.admin import Cluster
from inorder.model.errors import UnreachableError

UNKNOWN = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


class Client:
    """Tells how many partitions a topic has, and then does not know it where its records are."""

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:
        assert topics
        return {"orders": answered(SimpleNamespace(partitions=[0, 1]))}

    def list_offsets(self, asked: Mapping[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[Any]]:
        return {place: failed(UNKNOWN) for place in asked}

    def poll(self, _seconds: float) -> None: ...


def answered(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(admin, "_client", lambda _properties: Client())
    return Cluster({"bootstrap.servers": "kafka:9092"})


def test_ends_that_are_not_known_although_the_topic_is_there_end_no_pipeline(cluster: Cluster) -> None:
    with pytest.raises(UnreachableError, match=r"kafka:9092.*the end offsets of 'orders' are not known"):
        cluster.extents("orders")
    with pytest.raises(UnreachableError):
        cluster.written_ends("orders", 2)
