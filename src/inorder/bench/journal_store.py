"""Brings the store of a journal topic up to the topic's end, so that reads of what is replicated can be measured."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from inorder.journal.replicate import Place, grouped, replicated
from inorder.kafka.partition_reader import KafkaSource
from inorder.ports.slice_work import Slice
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
        closing(PostgresReplica(url)) as replica,
        closing(source.open(dict.fromkeys(partitions), headers=True, tells_ends=True)) as reader,
    ):
        while left:
            slices, ended = reader.read(MOST, 1.0)
            for batch in slices:
                replicate_slice(replica, batch, SEGMENT_SIZE)
            left -= ended


def replicate_slice(replica: PostgresReplica, batch: Slice, segment_size: int) -> None:
    """Applies one slice in one transaction."""
    place = Place(batch.topic, batch.partition, segment_size)
    with replica.slice(batch.topic, batch.partition) as transaction:
        applied = transaction.lock_offset()
        found = grouped(batch, -1 if applied is None else applied).journals
        heads = transaction.heads(list(found))
        changes = [replicated(place, key, heads.get(key), acted).change for key, acted in found.items()]
        transaction.carry_out([change for change in changes if change.statements])
        transaction.move_offset(batch.offsets[-1])
