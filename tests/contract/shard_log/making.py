"""Ways to open a shard log, and the rows that tests put into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from inorder.kafka.fenced_producer import FencedProducer
from inorder.kafka.idempotent_producer import IdempotentShardLog
from inorder.kafka.readers import read_back
from inorder.kafka.shard_log import Delivery, Incomplete, ShardLog, require_delivered
from inorder.model.message import OutboxRow, RecordHeaders
from inorder.model.partitioning import Partitioner
from inorder.relay.stores.kafka_log import LETTERS, KafkaShardLog
from tests.fakes.log import IDS, MemoryBroker, MemoryShardLog, MemoryUnfencedLog

FENCED = ("memory", "kafka")
UNFENCED = ("memory, unfenced", "kafka, unfenced")


@dataclass(frozen=True)
class Case:
    """One implementation: how to open a log on the shard, and how to see what is delivered."""

    open: Callable[[], ShardLog]
    delivered: Callable[[], list[tuple[bytes | None, bytes | None]]]
    begin_take_over: Callable[[], object]
    """What is left of a take-over that dies between its two transactional ids."""


def in_memory(*, fenced: bool) -> Case:
    broker = MemoryBroker()
    kind = MemoryShardLog if fenced else MemoryUnfencedLog
    return Case(
        lambda: kind(broker),
        lambda: [(row.key, row.value) for row in broker.records],
        lambda: broker.fence(IDS[0]),
    )


def on_kafka(properties: dict[str, object], unique: str, *, fenced: bool) -> Case:
    return Case(
        lambda: open_log(properties, unique, fenced=fenced),
        lambda: [(record.key, record.value) for record in read_back(properties, unique)],
        lambda: FencedProducer(properties, f"inorder.{unique}.0.{LETTERS[0]}"),
    )


def open_log(
    properties: dict[str, object],
    group: str,
    *,
    fenced: bool,
    partitioners: Mapping[str, Partitioner] | None = None,
) -> ShardLog:
    if fenced:
        return KafkaShardLog(properties, group=group, partitioners=partitioners)
    return IdempotentShardLog(properties, partitioners=partitioners)


def publish(log: ShardLog, rows: Sequence[OutboxRow], marker: bytes) -> None:
    """Publishes all rows, or raises the error."""
    require_delivered(publish_patiently(log, rows, marker))


def publish_patiently(log: ShardLog, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
    """As the relay does: waits for a batch that a busy broker has not acknowledged yet."""
    while True:
        delivery = log.publish(rows, marker)
        if not isinstance(delivery, Incomplete) or not delivery.is_under_way:
            return delivery


def row(
    topic: str, id: int, *, key: bytes = b"k", value: bytes | None = None, headers: RecordHeaders = ()
) -> OutboxRow:
    return OutboxRow(id, topic, key, value or str(id).encode(), headers, None, None)
