"""The peer of the pipeline: the least code that brings a topic into a table, without any guarantee.

It keeps no pointer, checks nothing, and would lose or repeat records with its first crash. What it does per record is
what anybody must do: read, parse, fold to the newest of each key, write in bulk.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from inorder.kafka.client_log import CLIENT_LOG
from inorder.stores.postgres.connect import connect

CHUNK = 10_000
GATHER_SECONDS = 0.02

INSTALL = "CREATE TABLE IF NOT EXISTS {table} (id bigint PRIMARY KEY, enabled boolean, data text)"
_UPSERT = """
INSERT INTO {table} AS t (id, enabled, data)
SELECT * FROM unnest(%s::bigint[], %s::boolean[], %s::text[])
ON CONFLICT (id) DO UPDATE SET enabled = coalesce(excluded.enabled, t.enabled), data = excluded.data
"""


def raw_copy(kafka: Mapping[str, Any], url: str, topic: str, table: str, total: int) -> dict[str, Any]:
    """Carries the first `total` records of a topic into a table; returns when each commit came back."""
    looks: list[tuple[float, int]] = []
    done = 0
    consumer = _consumer(kafka, topic)
    try:
        with connect(url, "inorder bench (raw-copy)") as connection:
            while done < total:
                messages = consumer.consume(CHUNK, GATHER_SECONDS)
                if not messages:
                    continue
                connection.execute(_UPSERT.format(table=table), _folded(messages))
                connection.commit()
                done += len(messages)
                looks.append((time.monotonic(), done))
    finally:
        consumer.close()
    return {"looks": looks}


def _folded(messages: Sequence[Message]) -> list[list[Any]]:
    newest: dict[int, tuple[int, bool | None, str]] = {}
    for message in messages:
        if error := message.error():
            raise KafkaException(error)
        fields = orjson.loads(message.value() or b"{}")
        key, enabled = fields["id"], fields.get("enabled")
        if enabled is None and key in newest:
            enabled = newest[key][1]
        newest[key] = (key, enabled, fields["data"])
    return [list(column) for column in zip(*newest.values(), strict=True)]


def _consumer(kafka: Mapping[str, Any], topic: str) -> Consumer:
    consumer = Consumer(
        {
            **kafka,
            "group.id": "inorder.bench.raw-copy",
            "enable.auto.commit": False,
            # With its default of a second the client reads a backlog at a quarter of its rate.
            "fetch.queue.backoff.ms": 2,
        },
        logger=CLIENT_LOG,
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    return consumer
