"""Making topics."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AdminClient,
    NewPartitions,
    NewTopic,
)

from inorder.kafka.admin import Cluster
from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.errors import error_of, meaning
from inorder.model.errors import UnreachableError

TIMEOUT_SECONDS = 15.0
BROKERS_CHOICE = -1
"""As many replicas as the broker gives a topic by itself."""


def ensure_compacted_topic(properties: Mapping[str, Any], name: str, partitions: int) -> None:
    """Makes a topic whose last record per key is kept for ever; one that is there gets the partitions that it lacks."""
    ensure_topic(properties, name, partitions, {"cleanup.policy": "compact"})
    # Asked first, since growing needs a right that nothing else of ours does.
    if partitions > 1 and (Cluster(properties).partitions(name) or partitions) < partitions:
        ensure_partitions(properties, name, partitions)


def ensure_topic(
    properties: Mapping[str, Any],
    name: str,
    partitions: int,
    config: Mapping[str, str] | None = None,
    *,
    replicas: int = BROKERS_CHOICE,
    seconds: float = TIMEOUT_SECONDS,
) -> None:
    """Makes a topic unless it is there; one that is there is left as it is."""
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
    client = AdminClient(dict(properties), logger=CLIENT_LOG)  # kept by name: its answers die with it
    created = client.create_topics([topic], request_timeout=seconds)
    _await(created[name], f"Making the topic {name!r}", seconds, unless=KafkaError.TOPIC_ALREADY_EXISTS)


def ensure_partitions(
    properties: Mapping[str, Any], name: str, partitions: int, *, seconds: float = TIMEOUT_SECONDS
) -> None:
    """Gives a topic more partitions, unless it has so many; none is ever taken away."""
    client = AdminClient(dict(properties), logger=CLIENT_LOG)
    grown = client.create_partitions([NewPartitions(name, partitions)], request_timeout=seconds)
    # What the broker answers where there are as many, or more.
    _await(grown[name], f"Giving {name!r} {partitions} partitions", seconds, unless=KafkaError.INVALID_PARTITIONS)


def _await(answer: Future[None], doing: str, seconds: float, *, unless: int) -> None:
    try:
        # The request ends by itself; the second on top is for the client's own thread.
        answer.result(seconds + 1)
    except TimeoutError as exception:
        raise UnreachableError(f"{doing}: no answer within {seconds:g} s.") from exception
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() != unless:
            raise meaning(error, doing) from exception
