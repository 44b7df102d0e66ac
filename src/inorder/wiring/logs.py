"""The Kafka side of a shard, by the delivery that is set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

from inorder.kafka.idempotent_log import IdempotentShardLog
from inorder.kafka.shard_log import KafkaShardLog
from inorder.model.partition import Partitioner
from inorder.ports.registry import Setup
from inorder.ports.shard_log import ShardLog
from inorder.relay.identity import SigningShardLog
from inorder.settings import Settings
from inorder.settings.kafka import Property
from inorder.stores.opening import open_database
from inorder.stores.registry import SqlRegistry
from inorder.stores.topic_generations import SqlTopicGenerations
from inorder.topics.routed_log import RoutedShardLog, RoutedUnfencedLog
from inorder.topics.routes import Routes


def shard_log(
    settings: Settings,
    setup: Setup,
    shard: int,
    holds: Callable[[], bool] = lambda: True,
    *,
    is_restored: bool = False,
) -> ShardLog:
    """The log of one shard of a set-up; it follows the generations of its topics.

    `holds` is that of the shard's lease, which counts where there is no fence. `is_restored` lets a marker pass that is
    of another outbox.
    """
    match settings.relay.delivery:
        case "exactly-once":
            partitioners = partitioners_of(settings)
            log = fenced_log(settings, setup, shard, partitioners)
            signing = _signing(settings, setup, log, is_restored)
            return RoutedShardLog(signing, database_routes(settings), partitioners)
        case "at-least-once":
            return unfenced_log(settings, settings.kafka.properties, holds)


def _signing(settings: Settings, setup: Setup, log: ShardLog, is_restored: bool) -> ShardLog:
    return SigningShardLog(log, partial(_identity, settings), setup.group, is_restored=is_restored)


def _identity(settings: Settings) -> str:
    """Asked once a term; a connection for that is not kept."""
    database = open_database(settings.database.require_url(), "inorder relay (identity)")
    with closing(SqlRegistry(database, settings.relay.table)) as registry:
        return registry.identity()


def fenced_log(
    settings: Settings, setup: Setup, shard: int, partitioners: Mapping[str, Partitioner] | None = None
) -> KafkaShardLog:
    """The log of a shard as the broker knows it, whatever the delivery."""
    return KafkaShardLog(
        settings.kafka.properties, group=setup.group, shard=shard, shards=setup.shards, partitioners=partitioners
    )


def unfenced_log(
    settings: Settings, properties: Mapping[str, Property], holds: Callable[[], bool] = lambda: True
) -> ShardLog:
    """A log without a fence that follows the generations of its topics."""
    partitioners = partitioners_of(settings)
    log = IdempotentShardLog(properties, partitioners=partitioners, holds=holds)
    return RoutedUnfencedLog(log, database_routes(settings), partitioners)


def database_routes(settings: Settings) -> Routes:
    """Routes as the database has them; nothing is connected before the first question."""
    return Routes(SqlTopicGenerations(open_database(settings.database.require_url(), "inorder relay (routes)")))


def setup_of(settings: Settings) -> Setup:
    """What the settings say that all instances must agree on."""
    return Setup(settings.relay.group, settings.relay.strategy, settings.relay.shards)


def partitioners_of(settings: Settings) -> dict[str, Partitioner]:
    """Topics whose partitions we choose ourselves; the client chooses for all others."""
    named = {name: Partitioner(topic.partitioner) for name, topic in settings.topics.items()}
    return {name: partitioner for name, partitioner in named.items() if partitioner is not Partitioner.MURMUR2}
