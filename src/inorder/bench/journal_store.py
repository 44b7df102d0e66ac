"""Brings the store of a journal topic up to the topic's end, so that reads of what is replicated can be measured."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from inorder.journal.replication.replicating import ReplicateWorker
from inorder.kafka.partition_reader import KafkaSource
from inorder.stores.postgres.journal_replica import PostgresReplica

SEGMENT_SIZE = 10_000
MOST = 200
"""Records a transaction: each may have many events, and the server is not patient with long ones."""


def replicate_all(properties: Mapping[str, Any], url: str, topic: str) -> None:
    """Replicates every record that the topic has now."""
    source = KafkaSource(dict(properties))
    partitions = [(topic, number) for number in range(source.partitions(topic) or 0)]
    left = set(partitions)
    with (
        closing(ReplicateWorker(PostgresReplica(url), SEGMENT_SIZE)) as worker,
        closing(source.open(dict.fromkeys(partitions), headers=True, tells_ends=True)) as reader,
    ):
        while left:
            slices, ended = reader.read(MOST, 1.0)
            for batch in slices:
                worker.apply(batch, expected=0)
            left -= ended
