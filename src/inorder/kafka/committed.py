"""A consumer that reads committed records up to a partition's end, and answers at once when it is there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from confluent_kafka import Consumer

from inorder.kafka.client_log import CLIENT_LOG

NOTHING_MORE: Mapping[str, object] = MappingProxyType({})


def committed_consumer(
    properties: Mapping[str, object], group: str, more: Mapping[str, object] = NOTHING_MORE
) -> Consumer:
    """To be assigned partitions by hand; it commits no offsets and tells the end of each partition."""
    return Consumer(
        {
            **properties,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 2,
            # Half a second of waiting for more would be most of a take-over.
            "fetch.wait.max.ms": 10,
            **more,
        },
        logger=CLIENT_LOG,
    )
