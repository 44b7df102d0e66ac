"""The Kafka side of a shard, by the delivery that is set."""

from __future__ import annotations

from inorder.kafka.idempotent_log import IdempotentShardLog
from inorder.kafka.shard_log import KafkaShardLog
from inorder.model.partition import Partitioner
from inorder.ports.registry import Setup
from inorder.ports.shard_log import ShardLog
from inorder.settings import Settings


def shard_log(settings: Settings, setup: Setup, shard: int) -> ShardLog:
    """The log of one shard of a set-up."""
    properties, partitioners = settings.kafka.properties, partitioners_of(settings)
    match settings.relay.delivery:
        case "exactly-once":
            return KafkaShardLog(
                properties, group=setup.group, shard=shard, shards=setup.shards, partitioners=partitioners
            )
        case "at-least-once":
            return IdempotentShardLog(properties, partitioners=partitioners)


def setup_of(settings: Settings) -> Setup:
    """What the settings say that all instances must agree on."""
    return Setup(settings.relay.group, settings.relay.strategy, settings.relay.shards)


def partitioners_of(settings: Settings) -> dict[str, Partitioner]:
    """Topics whose partitions we choose ourselves; the client chooses for all others."""
    named = {name: Partitioner(topic.partitioner) for name, topic in settings.topics.items()}
    return {name: partitioner for name, partitioner in named.items() if partitioner is not Partitioner.MURMUR2}
