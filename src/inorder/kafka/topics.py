"""Making topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # the stubs do not re-export it

from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.errors import error_of, meaning
from inorder.model.errors import UnreachableError

TIMEOUT_SECONDS = 15.0


def ensure_compacted_topic(properties: Mapping[str, Any], name: str, partitions: int) -> None:
    """Makes a topic whose last record per key is kept for ever, unless it is there."""
    ensure_topic(properties, name, partitions, {"cleanup.policy": "compact"})


def ensure_topic(
    properties: Mapping[str, Any],
    name: str,
    partitions: int,
    config: Mapping[str, str] | None = None,
    *,
    seconds: float = TIMEOUT_SECONDS,
) -> None:
    """Makes a topic unless it is there; one that is there is left as it is."""
    topic = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
    client = AdminClient(dict(properties), logger=CLIENT_LOG)  # kept by name: its answers die with it
    created = client.create_topics([topic], request_timeout=seconds)
    try:
        # The request ends by itself; the second on top is for the client's own thread.
        created[name].result(seconds + 1)
    except TimeoutError as exception:
        raise UnreachableError(f"Making the topic {name!r}: no answer within {seconds:g} s.") from exception
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise meaning(error, f"Making the topic {name!r}") from exception
